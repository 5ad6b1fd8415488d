"""The cells of some columns of a table, whatever its format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from jumok.errors import TextError
from jumok.messages import did_you_mean, tr
from jumok.text._columnar import Columnar
from jumok.text._inputs import TABLES
from jumok.text._json import inner_rows, json_rows
from jumok.text._reading import Inputs, Reading
from jumok.text._rows import delimited_rows, only_place
from jumok.text._source import Place, listed

HALF_PAIR = re.compile("[\ud800-\udfff]")  # of surrogates: JSON can hold it
FIRST_ROWS = 100  # of JSON, whose rows may have different names


def cells_of(
    table: Reading | Columnar, columns: Sequence[str], *, every_row: bool = False, remedy: str = ""
) -> Iterator[tuple[Place, list[Any]]]:
    """Yield the place of each row and its cells in these columns: strings, or values of JSON or Parquet.

    Args:
        every_row: refuse a row of JSON that lacks a column; otherwise its cell is None.
        remedy: what to do about a missing column, for the message.

    Raises:
        TextError: a column is missing or occurs twice, the rows are damaged, or the input is no table.
    """
    name = table.file.name
    if isinstance(table, Columnar):
        _require(columns, table.columns, name, remedy)
        yield from table.rows(columns)
    elif table.format == "json":
        names: dict[str, None] = {}  # in the order in which they appear
        row = None
        for where, row in json_rows(name, table.pieces()):
            names.update(dict.fromkeys(row))
            if every_row:
                _require(columns, row, where, remedy + inner_rows(row))
            yield where, [row.get(column) for column in columns]
        if row is not None:
            _require(columns, names, name, remedy + inner_rows(row))
    else:
        rows = _delimited(table, columns)
        _, header = next(rows, (0, []))
        if header:
            _require(columns, header, Place(name, 1), tr("; the first line must name the columns") + remedy)
        places = [only_place(name, header, column) for column in columns if header]
        for number, fields in rows:
            yield Place(name, number), [fields[at] for at in places]


def rows_of(table: Reading | Columnar) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield the place of each row and all its cells by column.

    Raises:
        TextError: as `cells_of`.
    """
    if isinstance(table, Reading) and table.format == "json":
        yield from json_rows(table.file.name, table.pieces())
        return
    # No column has this name, so that the delimiter is one which gives a header with several names.
    names = table.columns if isinstance(table, Columnar) else next(_delimited(table, ("\0",)), (1, []))[1]
    for where, cells in cells_of(table, names):
        yield where, dict(zip(names, cells, strict=True))


def _delimited(table: Reading, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    if table.format == "text":
        raise TextError(
            "{name} is not a table, judging by its suffix; give {suffixes} files with named columns, or "
            "- for standard input",
            name=table.file.name,
            suffixes=", ".join(TABLES),
        )
    return delimited_rows(table.file.name, table.pieces, "\t" if table.format == "tsv" else ",", columns)


def column_names(path: str | Path) -> tuple[str, ...]:
    """Return the names of the columns of a table, in NFC: of JSON those of the first rows.

    Raises:
        TextError: the file is no table, or cannot be read.
    """
    for table in Inputs(path, None, tables_only=True, table=True):
        if isinstance(table, Columnar):
            return tuple(table.columns)
        if table.format == "json":
            rows = islice(json_rows(table.file.name, table.pieces()), FIRST_ROWS)
            names = dict.fromkeys(name for _, row in rows for name in row)
            return tuple(name for name in names if not HALF_PAIR.search(name))  # nobody can ask for such a name
        return tuple(next(_delimited(table, ()), (1, []))[1])
    return ()


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
