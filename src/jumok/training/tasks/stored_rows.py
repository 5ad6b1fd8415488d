"""The rows of a table in `state/`, as lines of JSON: what a run needs as text while it trains."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from jumok.data.ids import REMEDY
from jumok.errors import RunError
from jumok.files import parse_json, write_atomic
from jumok.messages import tr

Row = tuple[str, ...]


def write_cells(path: Path, rows: Iterable[Row]) -> None:
    """Write one row a line, a list of its cells."""
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_cells(path: Path, count: int, columns: int) -> list[Row]:
    """Read what `write_cells` has written.

    Raises:
        RunError: the file is missing, damaged, or does not hold `count` rows of so many columns.
    """
    try:
        rows = [_row(line, columns) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        if len(rows) != count:
            raise ValueError(f"{len(rows):,} rows, not {count:,}")
    except (OSError, ValueError) as error:
        raise RunError(
            "{path}, rows of the run, cannot be read ({error}). {remedy}", path=path, error=error, remedy=tr(REMEDY)
        ) from None
    return rows


def _row(line: str, columns: int) -> Row:
    row = parse_json(line)
    if not (isinstance(row, list) and len(row) == columns and all(isinstance(cell, str) for cell in row)):
        raise ValueError(f"{line[:40]!r} is no row of {columns} texts")
    return tuple(row)
