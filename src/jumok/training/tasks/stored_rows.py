"""What a run needs as text while it trains: rows of a table in `state/`, as lines of JSON, and the time of its chats.

A chat template may write the date. A run has one for all that it trains on and compares, that of its start: figures of
two days would be of two texts, and a resumed run would learn from another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jumok.data.ids import REMEDY
from jumok.errors import RunError
from jumok.files import parse_json, write_atomic
from jumok.messages import tr
from jumok.tokenizers import Tokenizer

Row = tuple[str, ...]


def start_time(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer for a run that begins now: its chats stay those of now."""
    return tokenizer.at(datetime.now().replace(microsecond=0))


def time_of(tokenizer: Tokenizer) -> str | None:
    """Return what config.json records of the time at which chats are written; None if they do not depend on it."""
    chat = tokenizer.chat
    return chat.time.isoformat() if chat is not None and chat.time is not None and chat.reads_the_clock else None


def at_time_of(data: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Let the tokenizer of a run write chats as at the recorded time."""
    if tokenizer.chat is not None and (time := data.get("time")) is not None:
        tokenizer.chat.time = datetime.fromisoformat(time)


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
