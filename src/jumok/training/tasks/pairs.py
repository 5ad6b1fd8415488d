"""The held-out pairs of a run, as texts in `state/val.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from jumok.data.id_files import REMEDY
from jumok.errors import RunError
from jumok.evaluation.seq2seq import Pair
from jumok.files import parse_json, write_atomic
from jumok.messages import tr
from jumok.runs.folder import RunFolder

FILE = "val.jsonl"


def write_pairs(folder: RunFolder, pairs: Iterable[Pair]) -> None:
    """Write one pair a line."""
    lines = (json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
    write_atomic(folder.state / FILE, "".join(lines))


def read_pairs(folder: RunFolder, count: int) -> list[Pair]:
    """The held-out pairs of a run.

    Raises:
        RunError: the file is missing, damaged, or does not hold `count` of them.
    """
    path = folder.state / FILE
    try:
        pairs = [_pair(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except (OSError, ValueError) as error:
        raise RunError(
            "{path}, the held-out pairs, cannot be read ({error}). {remedy}", path=path, error=error, remedy=tr(REMEDY)
        ) from None
    if len(pairs) != count:
        raise RunError(
            "{path} holds {count:,} pairs where the run had {expected:,}. {remedy}",
            path=path,
            count=len(pairs),
            expected=count,
            remedy=tr(REMEDY),
        )
    return pairs


def _pair(line: str) -> Pair:
    pair = parse_json(line)
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise ValueError(f"{line[:40]!r} is no pair of texts")
    return pair[0], pair[1]
