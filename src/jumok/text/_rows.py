"""Rows of .csv and .tsv files, with the number of the last line of each."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from jumok.errors import TextError
from jumok.messages import tr

Pieces = Callable[[], Iterable[str]]  # the characters of a file, from its start

_MAX_FIELD = 1 << 26  # characters in a field; a longer field means an unclosed quote


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the lines without their "\\n". `str.splitlines` would split at U+2028, which JSON strings can contain."""
    held: list[str] = []
    for piece in pieces:
        first, *rest = piece.split("\n")
        held.append(first)
        for line in rest:
            yield "".join(held)
            held = [line]
    if any(held):
        yield "".join(held)


class _Dialect(NamedTuple):
    delimiter: str
    quotes: bool
    tabs_in_quotes: bool = True


_DELIMITERS = (",", "\t", ";", "|")
# Some .tsv files are quoted and some are not (film reviews often begin with a quotation mark). The first dialect that
# gives every row as many fields as the header is used. Quoted fields with a tab come last: in an unquoted file, two
# stray quotation marks would otherwise enclose all rows between them.
_UNQUOTED_TSV = _Dialect("\t", quotes=False)
_TSV = (_Dialect("\t", quotes=True, tabs_in_quotes=False), _UNQUOTED_TSV, _Dialect("\t", quotes=True))


def delimited_rows(name: str, pieces: Pieces, usual: str, columns: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row that is not blank; the first is the header, in NFC.

    Args:
        name: of the file, for messages.
        usual: the delimiter of the format.
        columns: names that the header should have. They choose between the usual delimiter and others, such as the
            semicolon of a spreadsheet program.

    Raises:
        TextError: a row has more or fewer fields than the header, or the quoting is invalid.
    """
    delimiter = _delimiter(pieces, usual, set(columns))
    dialect = _Dialect(delimiter, quotes=True)
    if delimiter == "\t":
        dialect = next((known for known in _TSV if _consistent(lines(pieces()), known)), _UNQUOTED_TSV)
    number, width = 1, 0
    try:
        for number, fields in _records(lines(pieces()), dialect):
            if not width:
                width = len(fields)
                fields = [unicodedata.normalize("NFC", field) for field in fields]
            elif len(fields) != width:
                raise TextError(
                    "{name}, line {number:,}: {count} fields where the header has {width}; a field with "
                    "{delimiter!r} or a newline in it must be enclosed in double quotes",
                    name=name,
                    number=number,
                    count=len(fields),
                    width=width,
                    delimiter=dialect.delimiter,
                )
            yield number, fields
    except csv.Error as error:
        reason = str(error)
        raise TextError(
            "{name}, after line {number:,}: broken quoting: {error}", name=name, number=number, error=tr(reason)
        ) from None


def _delimiter(pieces: Pieces, usual: str, columns: set[str]) -> str:
    """Return the delimiter with which the header names the columns, or else, for a message, has several fields."""
    headers: dict[str, list[str]] = {}
    for delimiter in (usual, *(one for one in _DELIMITERS if one != usual)):
        try:
            _, header = next(_records(lines(pieces()), _Dialect(delimiter, quotes=True)), (0, []))
        except csv.Error:
            continue
        headers[delimiter] = [unicodedata.normalize("NFC", field) for field in header]
        if columns <= set(headers[delimiter]):
            return delimiter
    if len(headers.get(usual, ())) > 1:
        return usual
    return max(headers, key=lambda delimiter: len(headers[delimiter]), default=usual)


def only_place(name: str, header: list[str], column: str) -> int:
    """Return the index of a column in the header.

    Raises:
        TextError: the column occurs more than once.
    """
    if header.count(column) > 1:
        raise TextError(
            "{name}: the column {column!r} occurs {count} times in the header; rename one",
            name=name,
            column=column,
            count=header.count(column),
        )
    return header.index(column)


def _records(rows: Iterable[str], dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row that is not blank; raises `csv.Error`."""
    csv.field_size_limit(max(_MAX_FIELD, csv.field_size_limit()))  # a global limit of the module; never lower it
    reader = csv.reader(
        (row + "\n" for row in rows),
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
        strict=True,
    )
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _consistent(rows: Iterable[str], dialect: _Dialect) -> bool:
    width = None
    try:
        for _, fields in _records(rows, dialect):
            width = width or len(fields)
            if len(fields) != width or (not dialect.tabs_in_quotes and any("\t" in field for field in fields)):
                return False
    except csv.Error:
        return False
    return True
