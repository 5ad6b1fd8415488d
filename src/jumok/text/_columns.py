"""The cells of some columns of a table, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

from jumok.errors import TextError
from jumok.messages import did_you_mean, tr
from jumok.text._columnar import COLUMNAR, Columnar, columnar
from jumok.text._format import format_of
from jumok.text._inputs import TABLES, Format, Input, open_input
from jumok.text._json import inner_rows, json_rows
from jumok.text._rows import delimited_rows, listed, only_place
from jumok.text._source import Place, Reading, reading

HALF_PAIR = re.compile("[\ud800-\udfff]")  # of surrogates: JSON can hold it
FIRST_ROWS = 100  # of a .jsonl file, whose rows may have different names


@contextmanager
def opened(
    file: Input, data: IO[bytes], codec: str | None, *, table: bool
) -> Iterator[tuple[Reading | Columnar, Format] | None]:
    """Open an input and judge its format; yield None for an empty file found in a folder.

    Args:
        table: whether standard input is a table.

    Raises:
        TextError: the input cannot be read, also inside the block.
    """
    if file.format in COLUMNAR:
        with columnar(file, data) as stored:
            yield None if stored is None else (stored, file.format)
        return
    with reading(file, data, codec) as found:
        yield None if found is None else (found, format_of(found, table=table))


def cells_of(
    table: Reading | Columnar, format: Format, columns: Sequence[str], *, every_row: bool = False, remedy: str = ""
) -> Iterator[tuple[Place, list[Any]]]:
    """Yield the place of each row and its cells in these columns: strings, or values of JSON or Arrow.

    Args:
        every_row: refuse a row of JSON that lacks a column; otherwise its cell is None.
        remedy: what to do about a missing column, for the message.

    Raises:
        TextError: a column is missing or occurs twice, the rows are damaged, or the format is "text".
    """
    name = table.file.name
    if isinstance(table, Columnar):
        _require(columns, table.columns, name, remedy)
        yield from table.rows(columns)
    elif format in ("json", "jsonl"):
        names: dict[str, str] = {}  # in the order in which they appear, with a hint
        row = None
        for where, row in json_rows(table, format):
            names.update(dict.fromkeys(row, inner_rows(row)))
            if every_row:
                _require(columns, row, where, remedy + inner_rows(row))
            yield where, [row.get(column) for column in columns]
        if row is not None:
            _require(columns, names, name, remedy + next(filter(None, names.values()), ""))
    elif format == "text":
        raise no_table(name)
    else:
        rows = delimited_rows(table, format, columns)
        _, header = next(rows, (0, []))
        if header:
            _require(columns, header, Place(name, 1), tr("; the first line must name the columns") + remedy)
        places = [only_place(name, header, column) for column in columns if header]
        for number, fields in rows:
            yield Place(name, number), [fields[at] for at in places]


def names_of(file: Input) -> tuple[str, ...]:
    """Return the names of the columns of a table, in NFC: of rows of JSON those of the first ones.

    Raises:
        TextError: the file is no table, or cannot be read.
    """
    with open_input(file) as data, opened(file, data, None, table=True) as found:
        if found is None:
            return ()
        table, format = found
        if isinstance(table, Columnar):
            return tuple(table.columns)
        if format in ("jsonl", "json"):
            rows = islice(json_rows(table, format), FIRST_ROWS)
            names = dict.fromkeys(name for _, row in rows for name in row)
            return tuple(name for name in names if not HALF_PAIR.search(name))  # nobody can ask for such a name
        if format == "text":
            raise no_table(file.name)
        _, header = next(delimited_rows(table, format, ()), (1, []))
        return tuple(header)


def no_table(name: str) -> TextError:
    """Return the error for a file that has no columns."""
    return TextError(
        "{name} is not a table, judging by its suffix; give {suffixes} files with named columns, or "
        "- for standard input",
        name=name,
        suffixes=", ".join(TABLES),
    )


def _require(columns: Sequence[str], known: Iterable[str], where: Place | str, remedy: str) -> None:
    """Raise TextError if a column is not among the known ones."""
    for column in columns:
        if column not in known:
            raise TextError(
                "{where}: no column {column!r}; the columns are {columns}{hint}",
                where=where,
                column=column,
                columns=listed(known),
                hint=did_you_mean(column, list(known), clause=True) + remedy,
            )
