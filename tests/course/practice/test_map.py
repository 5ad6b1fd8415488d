"""The map of the exercises: each has its place, and the page of the exercises lists what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import Jumok
from jumok.cli.learn.practice import _draw_map
from jumok.course.drawings import ARCHITECTURES
from jumok.course.practice.catalogue import exercises
from jumok.course.practice.folder import Practice
from jumok.course.practice.map import draw_map, part_of, place_of, places, ranges
from jumok.course.words import LANGUAGES, Language

DOCS = Path(__file__).resolve().parents[3] / "docs"
ROW = re.compile(r"^\| (\d+) \| `(\w+\.py)`: (.+) \| (\d+) \| (.+) \|$", re.MULTILINE)


def test_each_exercise_has_one_place() -> None:
    placed = [slug for slugs in places().values() for slug in slugs]
    assert sorted(placed) == sorted(one.slug for one in exercises())
    assert places().keys() <= ARCHITECTURES["map"]().parts
    for one in exercises():
        assert one.slug in places()[part_of(one)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_lists_each_exercise(language: Language) -> None:
    """After a change: python docs/draw.py."""
    page = (DOCS / ("ko" if language == "ko" else "") / "practice.md").read_text(encoding="utf-8")
    rows = ROW.findall(page)
    assert [(number, file, chapter, part) for number, file, _, chapter, part in rows] == [
        (str(one.number), one.file, str(one.chapter), place_of(one).said(language)) for one in exercises()
    ]
    for one, (_, _, title, _, _) in zip(exercises(), rows, strict=True):
        assert title == one.title.said(language)


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([7], "7"), ([4, 3], "3–4"), ([9, 1, 2, 3, 10, 12], "1–3, 9–10, 12")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_the_map_shows_what_is_done_and_what_is_next(tmp_path: Path) -> None:
    following = next(one for one in exercises() if one.slug == "padding_mask")
    draw_map(tmp_path / "map.svg", "en", following=following, done={"causal_mask", "softmax", "averaging_softmax"})
    drawn = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert drawn.count('class="b on"') == 1
    assert ">ch. 3 · 7–8 ✓</text>" in drawn  # both exercises on softmax
    assert ">ch. 5 · 11, 38, 43</text>" in drawn  # one of two on masks


def test_the_folder_of_the_reader_gets_the_map(tmp_path: Path) -> None:
    """With the next exercise, and drawn again after one is done."""
    course = Practice(tmp_path)
    assert _draw_map(course, "ko") == tmp_path / "map.svg"
    first = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert "토크나이저" in first
    assert 'class="b on"' in first
    for entry in course.progress.values():
        entry.right = True
    _draw_map(course, "ko")
    done = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert done.count(" ✓</text>") == len(places())
    assert 'class="b on"' not in done


@pytest.mark.slow
def test_the_commands_keep_the_map(jumok: Jumok) -> None:
    """`practice` writes it, and `check` draws it again after an exercise is right."""
    course = jumok("learn", "practice", "--json").json
    assert Path(course["map"]).is_file()
    assert [one["part"] for one in course["exercises"]] == [part_of(one) for one in exercises()]
    assert "weighted sum" in jumok("learn", "practice", "--lang", "en").out
    before = Path(course["map"]).read_text(encoding="utf-8")
    one = exercises()[0]
    Path(course["exercises"][0]["file"]).write_text(one.solution("en"), encoding="utf-8")
    end = jumok("learn", "check", "1")
    assert end.code == 0, end
    assert Path(course["map"]).read_text(encoding="utf-8") != before
