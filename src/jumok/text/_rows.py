"""Rows of .jsonl, .csv and .tsv files, with the number of the last line of each."""

from __future__ import annotations

import csv
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._inputs import Format
from jumok.text._source import Place, Reading

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


def listed(columns: Iterable[str]) -> str:
    """Return column names for a message; long names and long lists are shortened."""
    names = [repr(name if len(name) <= 30 else name[:30] + "…") for name in columns] or [tr("none")]
    shown = ", ".join(names[:12])
    return tr("{shown} and {more} more", shown=shown, more=len(names) - 12) if len(names) > 12 else shown


# --- JSON lines -------------------------------------------------------------------------------------------------


class JsonObject(dict[str, Any]):
    """A JSON object with its names in NFC. `repeated` lists the names that occur more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        names = [unicodedata.normalize("NFC", name) for name, _ in pairs]
        super().__init__(zip(names, (value for _, value in pairs), strict=True))
        self.repeated = [] if len(self) == len(pairs) else [name for name, n in Counter(names).items() if n > 1]


def json_objects(reading: Reading) -> Iterator[tuple[int, JsonObject]]:
    """Yield line number and object of each line that is not blank.

    Raises:
        TextError: a line is not a JSON object, or repeats a name.
    """
    for number, line in enumerate(lines(reading.pieces()), 1):
        if not line.strip():
            continue
        where = Place(reading.file.name, number)
        try:
            row = json.loads(line, object_pairs_hook=JsonObject)
        except (ValueError, RecursionError) as error:  # ValueError also for numbers with thousands of digits
            raise TextError(
                "{where}: not JSON: {error}; each line must be one JSON object", where=where, error=error
            ) from None
        require_object(where, row)
        yield number, row


def require_object(where: Place, row: Any) -> None:
    """Raise TextError unless a row of JSON is an object with different names."""
    if not isinstance(row, JsonObject):
        kind = type(row).__name__
        raise TextError("{where}: a JSON {kind}; each row must be an object such as {{...}}", where=where, kind=kind)
    if row.repeated:
        raise TextError(
            "{where}: the name {key!r} occurs more than once in this object; rename one",
            where=where,
            key=row.repeated[0],
        )


def is_missing(value: object) -> bool:
    """Return whether a cell is empty: null, NaN, or NA and NaT of pandas."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


# --- Delimited rows ---------------------------------------------------------------------------------------------


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


def delimited_rows(reading: Reading, format: Format, columns: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row that is not blank; the first is the header, in NFC.

    Args:
        columns: names that the header should have. They choose between the delimiter of the format and others, such as
            the semicolon of a spreadsheet program.

    Raises:
        TextError: a row has more or fewer fields than the header, or the quoting is invalid.
    """
    delimiter = _delimiter(reading, "\t" if format == "tsv" else ",", set(columns))
    dialect = _Dialect(delimiter, quotes=True)
    if delimiter == "\t":
        dialect = next((known for known in _TSV if _consistent(lines(reading.pieces()), known)), _UNQUOTED_TSV)
    name, number, width = reading.file.name, 1, 0
    try:
        for number, fields in _records(lines(reading.pieces()), dialect):
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
        raise TextError(
            "{name}, after line {number:,}: broken quoting: {error}", name=name, number=number, error=error
        ) from None


def _delimiter(reading: Reading, usual: str, columns: set[str]) -> str:
    """Return the delimiter with which the header names the columns, or else, for a message, has several fields."""
    headers: dict[str, list[str]] = {}
    for delimiter in (usual, *(one for one in _DELIMITERS if one != usual)):
        try:
            _, header = next(_records(lines(reading.pieces()), _Dialect(delimiter, quotes=True)), (0, []))
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
