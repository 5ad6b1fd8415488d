"""Messages as people type them to a chatbot, with what a fitting or honest answer says; free.toml has them.

They are written apart from the grammar of `jumok.corpora.talk`, and nobody trains on them: they measure how a model
answers what its material does not list.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

TURN, TRUTH = " // ", " => "
# No answer fits that is long, spells a letter four times or a word three times in a row, or has a stray consonant.
SOUND = (
    "(?s)(?=.{1,400}$)"
    r"(?!.*([^\d\sㅋㅎㅠㅜ.!?~♥-])\1{3})(?!.*(\S{2,})(?:\s+\2){2})"
    "(?!.*(?<![ㄱ-ㅎㅏ-ㅣ])[ㄱ-ㅎ](?=[가-힣])(?!.(?:이|입|은|는|을|를|과|와|받|로|으|야|예|도|만)))"
)


class Kind(NamedTuple):
    """Messages of a kind. rows: conversations; right and wrong: examples of answers to the first one."""

    rows: list[dict[str, Any]]
    right: list[str]
    wrong: list[str]


def write() -> Iterator[dict[str, Any]]:
    """Yield conversations as `jumok.corpora.talk.write` does, each of which ends with an answer that is an example.

    Their `skill` is the kind of the message. Their last check accepts every fitting or honest answer.
    """
    for kind in kinds().values():
        yield from kind.rows


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds by their names."""
    tables = tomllib.loads(resources.files("jumok.corpora").joinpath("free.toml").read_text(encoding="utf-8"))
    patterns = tables.pop("patterns")
    return {name: _kind(name, table, patterns) for name, table in tables.items()}


def _kind(name: str, table: dict[str, Any], patterns: dict[str, str]) -> Kind:
    lines = [line.partition(TRUTH) for line in table["messages"].strip().splitlines()]
    rows = [_row(name, table, patterns, message.split(TURN), truth) for message, _, truth in lines]
    examples = [[_filled(text, lines[0][2]) for text in table[part]] for part in ("right", "wrong")]
    return Kind(rows, *examples)


def _row(name: str, table: dict[str, Any], patterns: dict[str, str], turns: list[str], truth: str) -> dict[str, Any]:
    turns = [*turns, _filled(table["right"][0], truth)]
    roles = ("user", "assistant")
    answers = len(turns) // 2
    fits = table["fits"] + (f"|{truth}" if truth and "{truth}" not in table["fits"] else "")
    unfit = f"(?!.*(?:{table['unfit']}))" if "unfit" in table else ""
    check = f"{SOUND}{unfit}(?=.*(?:{fits}))"
    for slot, pattern in {**patterns, "truth": truth or "(?!)"}.items():
        check = check.replace(f"{{{slot}}}", f"(?:{pattern})")
    return {
        "messages": [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)],
        "skill": name,
        "checks": [*[""] * (answers - 1), f"{check}.*"],
    }


def _filled(example: str, truth: str) -> str:
    """Return an example with the first true answer."""
    return example.replace("{truth}", truth.partition("|")[0])
