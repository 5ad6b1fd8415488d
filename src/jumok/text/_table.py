"""Tables in memory: rows with named columns, such as pairs of texts, or texts and their labels."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from jumok.errors import ConfigError, TextError
from jumok.messages import did_you_mean, tr
from jumok.text._columnar import Columnar
from jumok.text._columns import cells_of
from jumok.text._reading import Inputs, Reading
from jumok.text._rows import lines
from jumok.text._source import Place, Source, describe_sources, listed, no_rows, require_no_half_pair

Row = tuple[str, ...]

_LARGEST_EXACT = 2.0**53  # above, a float is a whole number because it has no more digits


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Table:
    """Rows of cells: strings in NFC with "\\n" for newlines. An empty cell is "".

    Tables are made by `read_table` and `from_rows`.

    Attributes:
        columns: names of the columns.
        rows: one tuple per row, its cells in the order of `columns`.
        sources: the record of each input.
        names: names of the columns in the inputs; `renamed` does not change them.
        notes: sentences for people about how the inputs were read.
    """

    columns: tuple[str, ...]
    rows: list[Row]
    sources: tuple[Source, ...]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", self.columns)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> list[str]:
        """Return the cells of one column, in the order of the rows. Raises `TextError` if there is no such column."""
        wanted = unicodedata.normalize("NFC", name)
        if wanted not in self.columns:
            raise TextError(
                "no column {wanted!r} in this table; the columns are {columns}{hint}",
                wanted=wanted,
                columns=listed(self.columns),
                hint=did_you_mean(wanted, self.columns, clause=True),
            )
        at = self.columns.index(wanted)
        return [row[at] for row in self.rows]

    def split(self, at: int) -> tuple[Table, Table]:
        """Return the first `at` rows and the remaining rows as two tables; both keep all sources."""
        return replace(self, rows=self.rows[:at]), replace(self, rows=self.rows[at:])

    def renamed(self, columns: Sequence[str]) -> Table:
        """Return a table with the same rows and other names of all its columns."""
        return replace(self, columns=tuple(columns))

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of columns and cells: one compact JSON array per line, the columns first, in UTF-8."""
        return _digest([self.columns, *self.rows])

    @cached_property
    def empty_cells(self) -> int:
        """The number of empty cells; a cell with white space is not empty."""
        return sum(row.count("") for row in self.rows)

    def describe(self) -> str:
        """Return a few lines: number of rows, columns and empty cells, then the sources and the notes."""
        if self.notes:  # of conversations, which have columns of their own here, and may have empty cells
            line = tr("{rows:,} rows", rows=len(self))
        else:
            line = tr("{rows:,} rows of {columns}", rows=len(self), columns=", ".join(self.names))
        if self.empty_cells and not self.notes:
            cells = (self.column(column).count("") for column in self.columns)
            counted = dict(zip(self.names, cells, strict=True))
            empty = (tr("{n:,} in {name}", n=n, name=name) for name, n in counted.items() if n)
            line += tr("; empty cells: {counts}", counts=", ".join(empty))
        sources = describe_sources(self.sources, sum(source.chars for source in self.sources))
        return "\n".join((line, sources, *self.notes))


def read_table(
    paths: Sequence[str | Path] | str | Path,
    columns: Sequence[str] | str,
    *,
    encoding: str | None = None,
    remedy: str = "",
) -> Table:
    """Read the named columns of .csv, .tsv, .jsonl and .parquet files into one table.

    Encodings, newlines, normal form, folders and copies are handled as in `read`; a folder is searched only for tables.
    A file that is JSON is read whatever its name: objects one per line, in a list, or one after another. Standard input
    ("-") that is no JSON is read as .csv if its first line contains a comma and no tab, and otherwise as .tsv. Empty
    lines are skipped.

    - .csv and .tsv begin with a header that names the columns. If it does not with the usual delimiter, a tab, a
      semicolon, a vertical bar and a comma are tried. In a .csv, a cell that contains the delimiter, a newline or a
      (doubled) quotation mark is enclosed in double quotes (RFC 4180, https://www.rfc-editor.org/rfc/rfc4180). In a
      .tsv, quotation marks enclose cells only if all rows then have the same width; otherwise they are ordinary
      characters.
    - Numbers and truth values become their JSON spelling, whole numbers without a point: a label 1.0 is "1". null, NaN
      and missing names become "".

    Args:
        columns: columns that every input must have. Other columns are ignored.
        remedy: what to do about a missing column, for the message.

    Raises:
        TextError: an input cannot be read; the message names file and line.
        ConfigError: `columns` is empty or names a column twice.
    """
    names = _checked_columns(columns)
    inputs = Inputs(paths, encoding, tables_only=True, table=True)
    if not len(inputs):
        raise TextError("no table was given; name at least one file or folder, or - for standard input")
    rows: list[Row] = []
    sources = []
    for found in inputs:
        if new := _rows_of(found, names, remedy=remedy):
            rows += new
            sources.append(found.source(chars=new.chars, normalised=new.composed, rows=len(new)))
    if not sources:
        raise TextError("{path} holds only empty tables; jumok needs rows to work with", path=inputs.first)
    return Table(columns=names, rows=rows, sources=with_copies(sources, inputs))


def read_column(path: str | Path, column: str, *, encoding: str | None = None, table: bool = True) -> list[str]:
    """Return the cells of one column of a table, or the lines of a file that is no table; a blank line is "".

    Args:
        table: whether standard input is a table if it is not JSON.

    Raises:
        TextError: as for `read_table`.
    """
    names = _checked_columns(column)
    inputs = Inputs(path, encoding, tables_only=True, table=table)
    return [cell for found in inputs for [cell] in _rows_of(found, names, lines_are_rows=True)]


def _rows_of(found: Reading | Columnar, names: Row, *, lines_are_rows: bool = False, remedy: str = "") -> _CleanRows:
    """Return the rows of an input; raise TextError if one that was named has none."""
    cells = cells_of(found, names, remedy=remedy)
    if lines_are_rows and isinstance(found, Reading) and found.format == "text":
        numbered = enumerate(lines(found.pieces()), 1)
        cells = ((Place(found.file.name, number), [line if line.strip() else ""]) for number, line in numbered)
    rows = _CleanRows(names, cells)
    if not rows and found.file.named:
        raise no_rows(found.file.name)
    return rows


def from_rows(columns: Sequence[str] | str, rows: Iterable[Sequence[object]], name: str = "<rows>") -> Table:
    """Make a `Table` from rows in memory, with the same newlines, NFC and checks as for a file.

    Args:
        rows: a cell is a string, a number, a truth value, or None or NaN for an empty cell.
        name: of the rows, for messages.

    Raises:
        TextError: a cell has another type, a row has another length than `columns`, or there are no rows; the message
            names the row, counted from 1.
        ConfigError: `columns` is empty or names a column twice.
    """
    names = _checked_columns(columns)

    def placed() -> Iterator[tuple[Place, Sequence[object]]]:
        for number, row in enumerate(rows, 1):
            where = Place(name, number, row=True)
            if isinstance(row, str) or len(row) != len(names):
                given = repr(row) if isinstance(row, str) else tr("{count} cells", count=len(row))
                raise TextError(
                    "{where}: {given} where a sequence of {count} cells is expected",
                    where=where,
                    given=given,
                    count=len(names),
                )
            yield where, row

    found = _CleanRows(names, placed())
    if not found:
        raise no_rows(name)
    source = Source(
        name=name,
        bytes=sum(len(cell.encode()) for row in found for cell in row),
        chars=found.chars,
        normalised=found.composed,
        rows=len(found),
        sha256=_digest(found),
    )
    return Table(columns=names, rows=list(found), sources=(source,))


def with_copies(sources: Sequence[Source], inputs: Inputs) -> tuple[Source, ...]:
    """Return the sources with the names of the copies that were skipped."""
    return tuple(replace(source, copies=tuple(inputs.copies[source.sha256])) for source in sources)


def _digest(rows: Iterable[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _checked_columns(columns: Sequence[str] | str) -> Row:
    """Return the names of columns in NFC; raise ConfigError if there is none, or one is named twice."""
    given = [columns] if isinstance(columns, str) else columns
    names = tuple(unicodedata.normalize("NFC", name) for name in given)
    if not names:
        raise ConfigError("columns=() names no column; name at least one")
    if len(set(names)) < len(names):
        raise ConfigError("columns={columns} names a column twice; name each column once", columns=names)
    return names


class _CleanRows(list[Row]):
    """The rows of one source: strings in NFC with "\\n" for newlines.

    Attributes:
        chars: of all cells. composed: whether NFC changed one.
    """

    def __init__(self, columns: Row, rows: Iterable[tuple[Place, Sequence[object]]]) -> None:
        self.chars, self.composed = 0, False
        for where, cells in rows:
            row = []
            for column, cell in zip(columns, cells, strict=True):
                unified = spelled(where, column, cell).replace("\r\n", "\n").replace("\r", "\n")
                normal = unicodedata.normalize("NFC", unified)
                require_no_half_pair(where, normal)
                self.composed = self.composed or normal != unified
                self.chars += len(normal)
                row.append(normal)
            self.append(tuple(row))


def is_missing(value: object) -> bool:
    """Return whether a cell is empty: null, NaN, or NA and NaT of pandas."""
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def spelled(where: Place, column: str, value: object) -> str:
    """Return a cell as a string: "" for a missing one; numbers in their JSON spelling, whole ones without a point.

    pandas stores a column of whole numbers with a missing one as floats; as labels they have to equal those of other
    files.
    """
    if is_missing(value):
        return ""
    if isinstance(value, str):
        return value
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy
        return spelled(where, column, value.item())  # type: ignore[attr-defined]
    if isinstance(value, float) and math.isinf(value):
        raise TextError(
            "{where}: column {column!r} holds {value}, which is not a finite number; remove the row or empty the cell",
            where=where,
            column=column,
            value=value,
        )
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT:
        return str(int(value))
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise TextError(
        "{where}: column {column!r} holds {value}, which is not text, number or truth value",
        where=where,
        column=column,
        value=str(value)[:40],
    )
