"""The plan for a semester: each chapter and each exercise in its week, and the figures that the page names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumok.course.exam.questions import KINDS
from jumok.course.exam.sheets import QUESTIONS
from jumok.course.pages.chapter import chapters
from jumok.course.practice.catalogue import exercises

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("teaching.md", "ko/teaching.md")


def numbers(cell: str) -> Iterator[int]:
    """ "01–03, 23" -> 1, 2, 3, 23."""
    for first, last in re.findall(r"(\d+)(?:[–~](\d+))?", cell):
        yield from range(int(first), int(last or first) + 1)


def weeks(name: str) -> list[list[str]]:
    text = (DOCS / name).read_text(encoding="utf-8")
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \d+ \|.*$", text, re.MULTILINE)]


@pytest.mark.parametrize("name", PAGES)
def test_each_chapter_and_each_exercise_has_its_week(name: str) -> None:
    plan = weeks(name)
    assert [int(week[0]) for week in plan] == list(range(1, 16))
    planned = [number for week in plan for number in numbers(week[1])]
    assert sorted(planned) == list(range(26))
    assert {chapter.number for chapter in chapters()} <= set(planned)
    files = [number for week in plan for number in numbers(week[2])]
    assert sorted(files) == [one.number for one in exercises()]


@pytest.mark.parametrize("name", PAGES)
def test_an_exercise_comes_in_the_week_of_its_chapter(name: str) -> None:
    """And what is handed in was exercised by then."""
    plan = weeks(name)
    chapter_week = {number: int(week[0]) for week in plan for number in numbers(week[1])}
    file_week = {number: int(week[0]) for week in plan for number in numbers(week[2])}
    assert {one.number: chapter_week[one.chapter] for one in exercises()} == file_week
    for week in plan:
        for number in map(int, re.findall(r"\b\d\d\b", week[4])):
            assert file_week[number] <= int(week[0])


@pytest.mark.parametrize("name", PAGES)
def test_the_figures_of_the_page(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert re.search(rf"of {len(KINDS)}, in|{len(KINDS)}가지 가운데", text)
    least = sorted(kind.chapter for kind in KINDS.values())[QUESTIONS - 1]
    assert re.search(rf"up to {least} or more|{least}장 이상", text)
