"""Slides in Markdown: nothing of a chapter is lost, and each slide has a title."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import Jumok
from jumok.course.pages import chapter as lessons
from jumok.course.pages.chapter import Chapter, Code, Picture, Prose, Question, offline
from jumok.course.pages.deck import deck, first_sentence
from jumok.course.pages.html import blocks
from jumok.course.words import LANGUAGES, Language


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_deck_has_all_of_its_chapter(language: Language) -> None:
    for chapter in lessons.chapters(language):
        text = deck(chapter)
        head, first, *slides = text.split("\n---\n")
        assert head.startswith("---\nmarp: true")
        assert f"# {chapter.title}" in first
        assert chapter.question in first
        assert all(re.match(r"\n## \S", slide) for slide in slides)
        for part in chapter.parts():
            match part:
                case Code():
                    assert part.source.rstrip() in text
                    assert part.shown.rstrip() in text
                case Picture():
                    assert f"![{part.title} h:" in text
                case Question():
                    assert text.count(offline(part.answer)) >= 1
                case Prose():
                    for block in blocks(offline(part.text)):
                        if block.kind == "paragraph":
                            assert f"- {first_sentence(block.text)}\n" in text
                            assert block.text.replace("--", "- -") in text  # in the notes
        assert text.count("<!--") == text.count("-->")


def test_a_section_an_answer_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "03-three.md").write_text(
        "# 3. 셋\n\n첫 문장. 둘째 문장.\n\n## 절\n\n- 하나\n\n| 가 |\n|---|\n| 1 |\n\n"
        "<details>\n<summary>1. <code>dim</code>이란? 0 &lt; 1?</summary>\n\n답입니다.\n\n</details>\n",
        encoding="utf-8",
    )
    chapter = Chapter(number=3, slug="three", language="ko", title="셋", question="왜?", path=tmp_path / "03-three.md")
    assert deck(chapter).split("\n\n---\n\n")[1:] == [
        "## 셋\n\n- 첫 문장.\n\n<!--\n첫 문장. 둘째 문장.\n-->",
        "## 절\n\n- 하나\n\n| 가 |\n|---|\n| 1 |",
        "## 절\n\n1. `dim`이란? 0 < 1?\n\n<!--\n답입니다.\n-->",
        "## 절\n\n1. `dim`이란? 0 < 1?\n\n답입니다.\n",
    ]


def test_the_command(jumok: Jumok, own_folder: Path) -> None:
    end = jumok("learn", "slides", "3", "--lang", "en", "--json")
    assert (end.code, end.json["slides"]) == (0, "03-dot-product.md")
    assert Path(end.json["slides"]).read_text(encoding="utf-8").startswith("---\nmarp: true\nlang: en\n")
    end = jumok("learn", "slides", "3", "--lang", "en")
    assert end.code == 1
    assert "exists already; give another name, or --force." in end.err
    assert jumok("learn", "slides", "causal-mask", "--out", "mask.md").code == 0
    assert jumok("learn", "slides", "99").code == 2
