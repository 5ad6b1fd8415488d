"""Whatever is wrong is explained: a mistake by name, an error with its line, or where values are wrong, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mutants import mutants

from jumok.course.practice.catalogue import HERE, Exercise, exercises
from jumok.course.practice.checking import FORMS, texts
from jumok.course.practice.child import judge
from jumok.course.words import LANGUAGES, Language, words_in

LEAST = 3  # wrong solutions of an exercise
PLACES = (
    "one-index", "right-index", "range", "every-second", "on-diagonal", "above-diagonal", "below-diagonal",
    "everywhere", "nearly-everywhere", "scattered",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("one", exercises(), ids=lambda one: one.slug)
def test_no_wrong_solution_is_left_with_a_number_of_wrong_values(one: Exercise, tmp_path: Path) -> None:
    path = tmp_path / one.file
    wrong = 0
    for what, source in mutants(one.solution("en")):
        path.write_text(source, encoding="utf-8")
        torch.manual_seed(0)
        verdict = judge(path, one.slug)
        for fault in verdict["faults"]:
            wrong += 1
            if fault["mistake"] is None:
                _require_explained(one, what, fault)
    assert wrong >= (1 if one.slug == "chat_template" else LEAST)  # that has hardly an operator to change


def _require_explained(one: Exercise, what: str, fault: dict[str, Any]) -> None:
    """Check that a fault without a name says what to look at, and of values also where they are wrong."""
    for language in LANGUAGES:
        said = fault["words"][language]
        if fault["line"] is not None or any(_opening(key, language) in said for key in FORMS):
            continue
        assert words_in(HERE / "look.toml", "look")[one.slug].said(language) in said, (what, said)
        if _opening("entries", language) in said:
            assert any(_opening(key, language) in said for key in PLACES), (what, said)


def _opening(key: str, language: Language) -> str:
    """Return the longest part of a text without fields."""
    text = texts("difference")[key].said(language)
    parts = text.replace("}", "{").split("{")[::2]
    return max(parts, key=len)


def test_each_exercise_says_what_to_look_at() -> None:
    assert list(words_in(HERE / "look.toml", "look")) == [one.slug for one in exercises()]
