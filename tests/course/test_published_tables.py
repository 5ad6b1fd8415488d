"""Readers who know the usual books find each of their tables on attention in the chapters, digit by digit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jumok.course.pages import chapter as lessons
from jumok.course.pages.chapter import Code
from jumok.course.words import LANGUAGES, Language

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "attention.json"
PUBLISHED: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
NUMBER = re.compile(r"-?\d+(?:\.\d*)?|-?inf")


def rows(value: Any, name: str = "") -> Iterator[tuple[str, list[float]]]:
    """Each list of numbers, and each number of its own, with its place in the file."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from rows(each, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for index, each in enumerate(value):
            yield from rows(each, f"{name}[{index}]")
    elif isinstance(value, list):
        yield name, [float(number) for number in value]
    elif isinstance(value, float):
        yield name, [value]


def numbers_of_lines(language: Language) -> list[list[float]]:
    """The numbers of each line of code and output of chapters 2 to 6."""
    parts = [part for number in range(2, 7) for part in lessons.chapter(number, language).parts()]
    lines = [line for part in parts if isinstance(part, Code) for line in (part.source + part.output).splitlines()]
    return [[float(found) for found in NUMBER.findall(line)] for line in lines]


def contains(line: list[float], row: list[float]) -> bool:
    """Whether the row stands in the line, up to the last digit (a product of a rounded number may be off by one)."""
    starts = range(len(line) - len(row) + 1)
    return any(all(x == y or abs(x - y) < 1.01e-4 for x, y in zip(line[start:], row, strict=False)) for start in starts)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_published_row_is_in_a_chapter(language: Language) -> None:
    lines = numbers_of_lines(language)
    found = dict(rows(PUBLISHED))
    missing = [name for name, row in found.items() if not any(contains(line, row) for line in lines)]
    assert missing == []
    assert len(found) > 70


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_the_book_is_named_and_linked(language: Language, number: int) -> None:
    text = lessons.chapter(number, language).text
    assert "Sebastian Raschka" in text
    assert "(https://github.com/rasbt/LLMs-from-scratch)" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_book_of_the_bert_example_is_named_and_linked(language: Language) -> None:
    text = lessons.chapter(6, language).text
    assert "Tunstall" in text
    assert "(https://github.com/nlp-with-transformers/notebooks)" in text
    assert PUBLISHED["bert_tokens"]["text"] in text


def test_a_row_is_found_only_where_it_stands() -> None:
    assert contains([7.0, 0.5, -0.25], [0.5, -0.25])
    assert not contains([0.5, 0.25], [0.5, -0.25])
    assert not contains([0.5], [0.5, 0.25])
    assert contains([float("-inf")], [float("-inf")])
