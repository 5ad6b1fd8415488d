"""The chapters do what they say, in both languages alike; they can be read in a terminal, and run as notebooks.

What is not written yet is not tested, but for one test: all chapters are there.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from html import escape, unescape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len

from jumok.cli.learn import learn
from jumok.course.drawings import ARCHITECTURES
from jumok.course.pages import chapter as lessons
from jumok.course.pages import wheel
from jumok.course.pages.chapter import (
    LANGUAGES,
    Chapter,
    Code,
    Failure,
    Language,
    Picture,
    Prose,
    Question,
    check,
    map_page,
    offline,
)
from jumok.course.pages.html import IMAGES, ChapterPage
from jumok.course.pages.notebook import notebook, write_notebook
from jumok.course.pages.terminal import render, render_list
from jumok.course.practice.catalogue import exercises
from jumok.errors import ConfigError, LessonError

ROOT = Path(__file__).resolve().parents[2]
LEARN = ROOT / "docs" / "learn"

SLUGS = [
    "before-you-start", "bigram-and-batches", "average-the-past", "dot-product", "queries-keys-values", "causal-mask",
    "many-heads", "the-block", "positions", "gpt", "training", "writing", "tokenizers", "ladder", "fast-attention",
    "cross-attention", "from-recurrent-networks", "the-2017-paper", "bert", "encoder-decoder", "real-words",
    "agreement", "conversations", "preferences", "rewards", "models-of-others",
]  # fmt: skip
PROGRAM = {"ko": "지금까지의 프로그램", "en": "The program so far"}  # where there is one, after the mistakes
SECTIONS = {
    "ko": ["예측하고 실험하기", "흔한 실수", "용어", "더 읽기", "확인 문제", "연습"],
    "en": ["Predict, then try", "Common mistakes", "Terms", "Further reading", "Questions", "Practice"],
}
LARGEST_PICTURE = 150_000  # bytes


def written(language: Language) -> list[Chapter]:
    """The chapters there are; none before the first is written."""
    with contextlib.suppress(LessonError):
        return lessons.chapters(language)
    return []


CHAPTERS = [chapter for language in LANGUAGES for chapter in written(language)]
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda each: f"{each.language}-{each.number:02d}")


def code_of(chapter: Chapter) -> list[Code]:
    return [part for part in chapter.parts() if isinstance(part, Code)]


def pictures_of(chapter: Chapter) -> list[Picture]:
    return [part for part in chapter.parts() if isinstance(part, Picture)]


def is_piece(picture: Picture) -> bool:
    """Whether it is the picture of an interactive piece; tests/view/test_chapter_pieces.py is about those."""
    return picture.path.name.startswith("try-")


def drawn_by_code(chapter: Chapter) -> list[Picture]:
    """The pictures that its own blocks draw; the others are drawings of the architecture, and interactive pieces."""
    return [picture for picture in pictures_of(chapter) if picture.path.suffix == ".png"]


def installed(package: str) -> bool:
    """Whether pip has installed a package, by its name there."""
    with contextlib.suppress(PackageNotFoundError):
        return bool(version(package))
    return False


# --- the chapters of the project ---

# Chapter 5 prints published tables with dropout, whose zeros PyTorch draws in another way elsewhere.
as_in_the_book = pytest.mark.xfail(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="dropout draws other numbers", strict=False
)
LONG = {0, 1, *range(7, 15), *range(16, 26)}  # they train models or measure times; both languages have the same code


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_chapters_are_there(language: Language) -> None:
    assert [(each.number, each.slug) for each in written(language)] == list(enumerate(SLUGS))


@pytest.mark.slow
@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param(
            each,
            id=f"{each.language}-{each.number:02d}",
            marks=[pytest.mark.long] * (each.number in LONG or each.language == "en")
            + [as_in_the_book] * (each.number == 5),
        )
        for each in CHAPTERS
    ],
)
def test_a_chapter_prints_what_it_says(chapter: Chapter, tmp_path: Path) -> None:
    """And draws the pictures it shows, no others, and leaves the settings of torch alone."""
    missing = [name for name in chapter.packages if not installed(name)]
    if missing and not os.environ.get("CI"):  # where all chapters are to be run, a missing package is a failure
        pytest.skip(f"the code of chapter {chapter.number} needs {', '.join(missing)}, which is not installed")
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    failures = check(chapter, tmp_path)
    assert not failures, "\n\n".join(map(str, failures))
    assert {path.name for path in tmp_path.iterdir()} == {picture.path.name for picture in drawn_by_code(chapter)}
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()) == before


@each_chapter
def test_a_chapter_has_its_sections(chapter: Chapter) -> None:
    """In this order, after what is its own; and it ends by pointing to the next one."""
    prose = [part.text for part in chapter.parts() if isinstance(part, Prose)]
    headings = [heading for text in prose for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    has_program = any(block.kind == "program" for block in code_of(chapter))
    assert (PROGRAM[chapter.language] in headings) == has_program
    if has_program:
        assert headings.pop(-5) == PROGRAM[chapter.language]
    assert headings[-6:] == SECTIONS[chapter.language]
    assert len(headings) > 6
    following = next((each for each in written(chapter.language) if each.number == chapter.number + 1), None)
    if following:
        assert f"]({following.path.name})" in prose[-1].split("\n\n")[-1]


def ending_of(chapter: Chapter, section: int) -> str:
    """The text of a section by its place in SECTIONS."""
    name = re.escape(SECTIONS[chapter.language][section])
    [text] = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", chapter.text, re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


@each_chapter
def test_a_chapter_asks_three_questions(chapter: Chapter) -> None:
    """With answers of more than a word, in the section for it, and nothing else there."""
    asked = [part for part in chapter.parts() if isinstance(part, Question)]
    assert [part.question[:3] for part in asked] == ["1. ", "2. ", "3. "]
    assert all(len(part.answer) > 20 for part in asked)
    assert re.fullmatch(r"\s*(?:<details>.*?</details>\s*){3}", ending_of(chapter, 4), re.DOTALL)


@each_chapter
def test_a_chapter_lists_its_exercises(chapter: Chapter) -> None:
    """All that belong to it by the table of the course, perhaps others too; and how to check one of them."""
    text = ending_of(chapter, 5)
    titles = dict(re.findall(r"^(?:- |\| )`(\d\d_\w+\.py)`(?::| \|) (\S.*?)(?: \|)?$", text, re.MULTILINE))
    listed = list(titles)  # in a list or a table
    known = {each.file: each.title.said(chapter.language) for each in exercises()}
    assert titles == {file: known.get(file) for file in listed}
    own = [each.file for each in exercises() if each.chapter == chapter.number]
    assert [file for file in listed if file in own] == own
    commands = re.findall(r"^jumok learn check (\S+\.py)", text, re.MULTILINE)
    assert set(commands) <= set(listed)
    assert bool(commands) == bool(listed)
    assert text.strip()


@each_chapter
def test_a_chapter_has_pictures(chapter: Chapter) -> None:
    """One to three, besides drawings; in the folder of its language, small enough for a page, described in words."""
    assert 1 <= len(drawn_by_code(chapter)) <= 3
    for picture in pictures_of(chapter):
        assert picture.path.parent == LEARN / "pictures" / chapter.language
        content = picture.path.read_bytes()
        if picture.path.suffix == ".svg":
            assert picture.path.stem in ARCHITECTURES or is_piece(picture)
        else:
            assert picture.path.name.startswith(f"{chapter.number:02d}-")
            assert content.startswith(b"\x89PNG")
        assert len(content) < LARGEST_PICTURE
        assert picture.title


@each_chapter
def test_a_question_is_html_and_its_answer_is_not(chapter: Chapter) -> None:
    """GitHub, Jupyter and the site show Markdown in a summary as it is, with its signs."""
    for part in chapter.parts():
        if isinstance(part, Question):
            assert not re.search(r"[`*]|\]\(", part.question)
            assert not re.search(r"</?\w+>", part.answer)


@each_chapter
def test_links_lead_somewhere(chapter: Chapter) -> None:
    for part in chapter.parts():
        if isinstance(part, Prose):
            for target in re.findall(r"\]\(([^)\s]+)\)", part.text):
                if not target.startswith(("https://", "http://", "#")):
                    assert (chapter.path.parent / target.partition("#")[0]).exists(), target


@each_chapter
def test_terms_are_a_table_of_both_languages(chapter: Chapter) -> None:
    [table] = re.findall(rf"^## {SECTIONS[chapter.language][2]}\n+((?:\|.*\n)+)", chapter.text, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert {len(row) for row in rows} in ({3}, {4})  # with other names of the terms, where there are some
    assert {"한국어", "English"} <= set(rows[0])
    assert len(rows) > 3


def masked(source: str) -> str:
    """Code without its comments, and with each text in it as the same text."""

    class Mask(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant("") if isinstance(node.value, str) else node

        def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Tuple:
            inserted = [self.visit(value) for value in node.values if isinstance(value, ast.FormattedValue)]
            return ast.Tuple([value.value for value in inserted], ast.Load())

    return ast.unparse(Mask().visit(ast.parse(source)))


def twins() -> list[tuple[Chapter, Chapter]]:
    korean, english = ({each.number: each for each in written(language)} for language in LANGUAGES)
    return [(korean[number], english[number]) for number in sorted(korean.keys() & english.keys())]


@pytest.mark.parametrize(("korean", "english"), twins(), ids=lambda each: f"{each.number:02d}")
def test_both_languages_have_the_same_code(korean: Chapter, english: Chapter) -> None:
    """Up to comments and words, block by block; it prints the same numbers and draws the same pictures."""
    assert korean.path.name == english.path.name
    ours, theirs = code_of(korean), code_of(english)
    assert [masked(block.source) for block in ours] == [masked(block.source) for block in theirs]
    numbers = [[sorted(re.findall(r"\d+(?:\.\d+)?", block.output)) for block in blocks] for blocks in (ours, theirs)]
    assert numbers[0] == numbers[1]
    assert [p.path.name for p in pictures_of(korean)] == [p.path.name for p in pictures_of(english)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_left_over(language: Language) -> None:
    """Each file is a chapter, or the map, and each picture is in one, or on the page on practice."""
    pages = sorted(path.name for path in (LEARN / language).iterdir())
    assert [name for name in pages if name != "map.md"] == [each.path.name for each in written(language)]
    practice = ROOT / "docs" / ("ko" if language == "ko" else "") / "practice.md"
    files = [*(LEARN / language / name for name in pages), practice]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    unused = [path.name for path in (LEARN / "pictures" / language).iterdir() if f"{language}/{path.name})" not in text]
    assert unused == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_index_has_each_chapter(language: Language) -> None:
    index = (LEARN / "README.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| (\d+) \| \[(.+)\]\({language}/(\d\d)-([\w-]+)\.md\) \| (.+) \|$", index, re.MULTILINE)
    assert [(int(number), slug) for number, _, _, slug, _ in rows] == [
        (each.number, each.slug) for each in written(language)
    ]
    titles = {int(number): (title, question) for number, title, _, _, question in rows}
    for each in written(language):
        assert titles[each.number] == (each.title, each.question)


def test_the_index_can_be_followed() -> None:
    """Its links lead to files, and its commands are ones that there are."""
    index = (LEARN / "README.md").read_text(encoding="utf-8")
    assert all(f"]({language}/map.md)" in index for language in LANGUAGES)
    for target in re.findall(r"\]\(([^)#\s]+)\)", index):
        assert (LEARN / target).is_file(), target
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", index, re.M | re.S) for line in block.splitlines()]
    assert len(commands) == 10
    for command in commands:
        assert shlex.split(command)[:2] == ["jumok", "learn"]
        words = shlex.split(command, comments=True)[2:]
        verb = learn.commands[words.pop(0) if words and words[0] in learn.commands else "chapter"]
        assert verb.make_context(verb.name, words).params.get("lesson") in {None, "3"}


# --- parsing and checking, with chapters made up for it ---


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of chapters of our own, with an empty working directory beside it."""
    folder = tmp_path / "library"
    for name in ("ko", "en", "pictures/ko"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(lessons, "FOLDER", folder)
    monkeypatch.chdir(tmp_path / "work")
    return folder


def chapter_of(library: Path, text: str, name: str = "ko/03-three.md") -> Chapter:
    (library / name).write_text(f"# {int(name[3:5])}. 셋\n\n{text}", encoding="utf-8")
    return lessons.chapter(name[6:], "ko" if name.startswith("ko") else "en")


def failures_of(library: Path, text: str) -> list[Failure]:
    return check(chapter_of(library, text), Path())


def test_the_parts_of_a_chapter(library: Path) -> None:
    text = """\
Words.

```python
x = 1
print(x)
```

```text
1
```
![한 그림](../pictures/ko/03-a.png)

```sh
jumok learn  # not run
```

![inside a line](x.png) is prose.

```python
y = 2
```

```python
pass
```
The end.
"""
    parts = chapter_of(library, text).parts()
    assert parts == [
        Prose("# 3. 셋\n\nWords.", 1),
        Code("x = 1\nprint(x)\n", "1\n", 6),
        Picture("한 그림", (library / "pictures/ko/03-a.png").resolve(), 13),
        Prose("```sh\njumok learn  # not run\n```\n\n![inside a line](x.png) is prose.", 15),
        Code("y = 2\n", "", 22),
        Code("pass\n", "", 26),
        Prose("The end.", 28),
    ]


def test_the_packages_that_a_chapter_needs(library: Path) -> None:
    """They are what the reader is told; a chapter that tells nothing needs nothing."""
    text = "Install it.\n\n```sh\npip install some-package2\n```\n\n```sh\njumok learn\n```\n\n`pip install other`\n"
    assert chapter_of(library, text).packages == ["some-package2"]
    assert [each.number for each in CHAPTERS if each.packages] == [20, 20]
    for each in (each for each in CHAPTERS if each.packages):
        first = each.parts()[0]
        assert isinstance(first, Prose), "it is said before there is code to run"
        assert all(f"pip install {name}" in first.text for name in each.packages)


QUESTIONS = """\
Words.

<details>
<summary>1. <code>dim</code>이란? 0 &lt; 1?</summary>

첫 문단, [4장](04-causal-mask.md).

```text
print(1)
```

</details>

<details>
<summary>2. 왜?</summary>

그래서.

</details>

The end.
"""


def test_questions_are_parts(library: Path) -> None:
    """With what fences an answer has; none of them is run, nor taken for an output."""
    parts = chapter_of(library, QUESTIONS).parts()
    assert parts == [
        Prose("# 3. 셋\n\nWords.", 1),
        Question(
            "1. <code>dim</code>이란? 0 &lt; 1?",
            "첫 문단, [4장](04-causal-mask.md).\n\n```text\nprint(1)\n```",
            5,
        ),
        Question("2. 왜?", "그래서.", 16),
        Prose("The end.", 23),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<details>\n<summary>1. Why?</summary>\nno empty line\n\n</details>\n",
        "<details>\n<summary>1. Why?</summary>\n\nno empty line\n</details>\n",
        "<details>\n<summary>1. Why?</summary>\n\nno end\n",
        "<details>\n\nno question\n\n</details>\n",
        "<details>\n<summary>1. Why?</summary>\n\n```python\nnever_run()\n```\n\n</details>\n",
        "<details>\n<summary>1. Why?</summary>\n\n" * 2 + "one in another\n\n</details>\n\n</details>\n",
    ],
)
def test_a_question_that_is_written_in_another_way(library: Path, text: str) -> None:
    """It would be shown in a terminal as HTML, or its code would never be checked."""
    with pytest.raises(LessonError, match=r"03-three\.md, line 5: a question needs the lines <details> and <summary>"):
        chapter_of(library, f"Words.\n\n{text}").parts()


@pytest.mark.parametrize("colour", [False, True])
def test_a_terminal_shows_all_questions_before_the_answers(library: Path, colour: bool) -> None:
    text = render(chapter_of(library, QUESTIONS), width=40, colour=colour)
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert f"1 {'' if colour else '`'}dim{'' if colour else '`'}이란? 0 < 1?" in plain
    order = ["Words.", "1 ", "이란? 0", "2 왜?", "답", "1 첫 문단, 4장 (", "print(1)", "2 그래서.", "The end."]
    found = [plain.index(words, 0 if n < 5 else plain.index("\n답")) for n, words in enumerate(order)]
    assert found == sorted(found)
    assert colour == ("\x1b[2m그래서." in text)  # answers are dim where that can be shown


def test_a_picture_that_a_notebook_lacks_is_named(library: Path) -> None:
    with pytest.raises(LessonError, match=r"the picture .*03-a\.png cannot be read"):
        notebook(chapter_of(library, "![그림](../pictures/ko/03-a.png)\n"))


def test_a_notebook_unfolds_the_answers(library: Path) -> None:
    cells = ["".join(cell["source"]) for cell in notebook(chapter_of(library, QUESTIONS))["cells"]]
    assert cells[2].startswith(
        "<details>\n<summary>1. <code>dim</code>이란? 0 &lt; 1?</summary>\n\n첫 문단, 4장 (`jumok learn 4`)."
    )
    assert cells[3] == "<details>\n<summary>2. 왜?</summary>\n\n그래서.\n\n</details>"


@pytest.mark.parametrize("text", ["```python\nx = 1\n", "```python\nx = 1\n```\n\n```text\n1\n", "```sh\n"])
def test_a_fence_without_an_end(library: Path, text: str) -> None:
    with pytest.raises(LessonError, match=r"03-three\.md: a code fence is not closed"):
        chapter_of(library, text).parts()


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(1)", "1\n"),
        ("x = 1", None),
        ("print('0.1234 ms')", "... ms\n"),
        ("print('a'); print(); print('b')", "a\n\nb\n"),
        ("print('가나다')", "가나다\n"),
        ("import os; print(os.listdir())", "[]\n"),
        ("print(__name__)", "__main__\n"),
        ("def f(x: 'unknown') -> None: pass\nprint(f.__annotations__['x'])", "unknown\n"),
        ("print(int.__add__.__class__.__name__, True)", "wrapper_descriptor True\n"),
    ],
)
def test_a_block_that_does_what_it_says(library: Path, code: str, output: str | None) -> None:
    fence = "" if output is None else f"\n```text\n{output}```\n"
    assert failures_of(library, f"```python\n{code}\n```\n{fence}") == []


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(1)", None),
        ("x = 1", "1\n"),
        ("print(1)", "2\n"),
        ("print(True)", "1\n"),
        ("print('a ')", "a\n"),
        ("print('a\\n\\nb')", "a\n<BLANKLINE>\nb\n"),
        ("print('a  b')", "a b\n"),
        ("print('a', end='')", "a\n"),
    ],
)
def test_a_block_that_does_something_else(library: Path, code: str, output: str | None) -> None:
    """doctest alone would take True for 1 and <BLANKLINE> for an empty line."""
    fence = "" if output is None else f"\n```text\n{output}```\n"
    [failure] = failures_of(library, f"```python\n{code}\n```\n{fence}")
    assert (failure.line, failure.expected) == (4, output or "")
    assert f"03-three.md, line 4:\n    {code}\nshould print" in str(failure)


def test_blocks_share_their_names_and_nothing_else(library: Path) -> None:
    """A second run knows nothing of the first, and the future imports of the harness are not those of the chapter."""
    text = "```python\nassert 'x' not in globals()\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n"
    assert failures_of(library, text) == []
    assert failures_of(library, text) == []


def test_a_block_that_raises(library: Path) -> None:
    """What it printed before, and the line of the chapter; no block after it is run."""
    text = "```python\nprint('so far')\n1 / 0\n```\n\n```python\nopen('later', 'w')\n```\n"
    [failure] = failures_of(library, text)
    assert failure.printed.startswith("so far\nTraceback")
    assert 'three.md", line 5, in <module>' in failure.printed
    assert failure.printed.endswith("ZeroDivisionError: division by zero\n")
    assert "chapters.py" not in failure.printed
    assert list(Path().iterdir()) == []


def test_a_chapter_leaves_torch_as_it_was(library: Path) -> None:
    """Its seed and its printing are its own, both ways: what was set before does not reach it either."""
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    torch.set_printoptions(precision=2)
    text = (
        "```python\nimport torch\nprint(torch.tensor([1 / 3]))\ntorch.manual_seed(0)\n_ = torch.rand(3)\n"
        "torch.set_printoptions(precision=1)\nprint(torch.tensor([1 / 3]))\n```\n\n"
        "```text\ntensor([0.3333])\ntensor([0.3])\n```\n"
    )
    assert failures_of(library, text) == []
    assert torch.equal(torch.rand(1), expected)
    assert str(torch.tensor([1 / 3])) == "tensor([0.3333])"


# --- finding a chapter ---


@pytest.mark.parametrize("key", [3, "3", "03", " 3 ", "three", "THREE", "03-three", "3-three", "03-three.md"])
def test_a_chapter_by_number_or_name(library: Path, key: int | str) -> None:
    chapter_of(library, "Words.")
    found = lessons.chapter(key, "ko")
    assert (found.number, found.slug, found.language, found.title) == (3, "three", "ko", "셋")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (0, "there is no chapter 0; there are chapters 2 to 3"),
        ("tree", "there is no chapter 'tree'; give a number from 2 to 3, or one of two, three. Did you mean 'three'?"),
        ("", "there is no chapter ''"),
        ("../ko/03-three", "there is no chapter"),
    ],
)
def test_a_chapter_that_there_is_not(library: Path, key: int | str, message: str) -> None:
    for name in ("ko/02-two.md", "ko/03-three.md"):
        chapter_of(library, "Words.", name)
    with pytest.raises(ConfigError, match=re.escape(message)):
        lessons.chapter(key, "ko")


def test_the_page_with_the_map(library: Path) -> None:
    page = library / "ko/map.md"
    with pytest.raises(LessonError, match="the map is missing in this installation"):
        lessons.map_page("ko")
    page.write_text("# 지도\n\n글.\n", encoding="utf-8")
    found = lessons.map_page("ko")
    assert (found.number, found.slug, found.title, found.question, found.path) == (None, "map", "지도", "", page)
    book = notebook(found)
    assert book["metadata"]["title"] == "지도"
    assert book["cells"][0]["id"] == "map-000"


def test_an_installation_without_chapters(library: Path) -> None:
    with pytest.raises(LessonError, match="the chapters are missing in this installation"):
        lessons.chapters("ko")


@pytest.mark.parametrize("heading", ["", "## 3. 셋", "# 셋", "# 4. 셋", "#3. 셋"])
def test_a_chapter_without_its_title(library: Path, heading: str) -> None:
    (library / "ko/03-three.md").write_text(f"{heading}\n\nWords.\n", encoding="utf-8")
    with pytest.raises(LessonError, match=r"03-three\.md must begin with the line '# 3\. TITLE'"):
        lessons.chapters("ko")


def test_links_for_readers_who_are_elsewhere() -> None:
    assert offline("see [4장](04-causal-mask.md)") == "see 4장 (`jumok learn 4`)"
    assert offline("see [0장](00-before-you-start.md)") == "see 0장 (`jumok learn 0`)"
    assert offline("see [ch. 10](../en/10-three-models.md)") == "see ch. 10 (`jumok learn 10`)"
    assert offline("[the map](map.md)") == "the map (`jumok learn map`)"
    assert offline("[code](../../../src/jumok/attention.py) [x](#top)") == "code x"
    assert offline("[paper](https://arxiv.org/abs/1706.03762)") == "[paper](https://arxiv.org/abs/1706.03762)"


# --- in a terminal ---


@each_chapter
@pytest.mark.parametrize("width", [60, pytest.param(80, marks=pytest.mark.long)])
def test_a_chapter_fits_a_terminal(chapter: Chapter, width: int) -> None:
    """Counted in columns, of which a Hangul syllable takes two; and no word of it is lost."""
    text = render(chapter, width=width)
    assert "\x1b" not in text
    assert max(cell_len(line) for line in text.splitlines() if not line.startswith("    ")) <= width  # but for code
    for part in chapter.parts():
        if isinstance(part, Code):
            assert all(f"    │ {line}".rstrip() in text for line in part.shown.splitlines())
        elif isinstance(part, Picture):
            assert part.title in text.replace("\n", " ")
            assert str(part.path) in text


@pytest.mark.slow
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("language", LANGUAGES)
def test_code_is_never_broken(language: Language, colour: bool) -> None:
    """In colour, lines of code were wrapped at the width of the terminal: pasted, they were a NameError."""
    for chapter in written(language):
        text = re.sub(r"\x1b\[[\d;]*m", "", rendered := render(chapter, width=60, colour=colour))
        assert colour == (len(rendered) > len(text))
        margin = "" if colour else "    "  # in colour, code is at the margin, so that it runs as it is copied
        lines = [line for part in chapter.parts() if isinstance(part, Code) for line in part.source.splitlines()]
        commands = re.findall(r"^```sh\n(.*?)^```$", chapter.text, re.MULTILINE | re.DOTALL)
        lines += [line for command in commands for line in command.splitlines()]
        shown = set(text.splitlines())
        assert [line for line in lines if f"{margin}{line}".rstrip() not in shown] == []


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_of_a_chapter_needs_nothing_but_itself(language: Language, tmp_path: Path) -> None:
    for chapter in [*written(language), map_page(language)]:
        page = ChapterPage(chapter).html
        assert not re.search(r"""(?:src|href)=["'](?!data:|https?://|#)|@import|url\(""", page)
        assert not re.search(r"<(?:script|img|link|iframe)[^>]*https?:", page)
        for part in chapter.parts():
            if isinstance(part, Code):
                text = unescape(re.sub(r"<[^>]+>", "", page))
                assert part.source.strip("\n") in text
                assert part.shown.rstrip() in text
            elif isinstance(part, Picture):
                assert escape(part.title) in page
            elif isinstance(part, Prose):
                headings = re.findall(r"^##+ ([^`*\[\n]+)$", part.text, re.MULTILINE)
                assert all(f">{escape(heading, quote=False)}</h" in page for heading in headings)
            elif isinstance(part, Question):
                assert f"<summary>{part.question}</summary>" in page
        pieces = re.findall(r'data-piece="(\w+)"', page)
        assert pieces == re.findall(r"\(\S+/try-(\w+)\.svg\)", chapter.text)
        assert ("<script>" in page) == bool(pieces)


@pytest.mark.parametrize("width", [20, 37, 59])
def test_no_word_of_a_table_is_lost(library: Path, width: int) -> None:
    """A line of a cell that filled its column was cut, and its last word replaced by "…" (see `_WholeCell`)."""
    words = ["소프트맥스를", "한", "뒤의", "값,", "한", "행의", "합이", "일"]
    chapter = chapter_of(library, f"| 말 | 뜻 |\n|---|---|\n| 가중치 | {' '.join(words)} |\n")
    text = render(chapter, width=width)
    assert "…" not in text
    assert "".join(words) in re.sub(r"\s+|가중치", "", text)
    assert max(map(cell_len, text.splitlines())) <= width


def test_plain_text_marks_code_and_headings(library: Path) -> None:
    text = render(chapter_of(library, "## 용어\n\n`causal=True`를 써요.\n"), width=40)
    assert "`causal=True`를" in text
    assert f"3. 셋\n{'═' * 40}\n" in text
    assert f"용어\n{'─' * 40}\n" in text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [60, 200])
def test_the_list_of_chapters(language: Language, width: int) -> None:
    known = written(language)
    text = render_list(known, language, width=width)
    assert max(map(cell_len, text.splitlines())) <= min(width, 96)
    flat = re.sub(r"\s+", " ", text)
    for each in known:
        assert f"{each.number} {each.title} {each.slug} {each.question}" in flat
        assert 5 <= each.minutes <= 30
    assert f" {known[5].minutes}" in flat
    assert f" {known[5].code_lines}" in flat
    assert "map" in text


def test_figures_of_a_chapter(library: Path) -> None:
    """Only its text takes time, and only definitions are lines of code."""
    text = "가" * 999 + "\n\n```python\nx = 1\n```\n\n```python source=gpt.GPT\na = 1\nb = 2\n```\n"
    chapter = chapter_of(library, text)
    assert (chapter.minutes, chapter.code_lines) == (3, 2)  # 999 characters and a title


# --- notebooks ---


@each_chapter
def test_a_chapter_as_a_notebook(chapter: Chapter, tmp_path: Path) -> None:
    """Valid, complete, and what its cells print when they run in order is what is stored in it."""
    import nbformat

    path = tmp_path / "chapter.ipynb"
    write_notebook(chapter, path)
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells[1:] if cell.cell_type == "code"]  # the first one installs jumok
    assert [cell.source for cell in code] == [block.source.rstrip("\n") for block in code_of(chapter)]
    stored = ["".join(output.text for output in cell.outputs) for cell in code]
    assert stored == [block.shown for block in code_of(chapter)]
    embedded = [content for cell in book.cells for content in cell.get("attachments", {}).values()]
    assert [(kind, base64.b64decode(data)) for content in embedded for kind, data in content.items()] == [
        (IMAGES[picture.path.suffix], picture.path.read_bytes()) for picture in pictures_of(chapter)
    ]
    prose = "".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    assert not re.search(r"\]\((?!https?:|attachment:)", prose), "a notebook is read away from the other files"


def test_measured_times_are_left_out(library: Path) -> None:
    """Where a chapter leaves its output open, readers were shown "..." as if the block had printed it."""
    chapter = chapter_of(
        library, "```python\nprint(0.12)\n```\n\n```text\n...\n```\n\n```python\nprint(7)\n```\n\n```text\n7\n```\n"
    )
    assert [cell.get("outputs") for cell in notebook(chapter)["cells"][1:] if cell["cell_type"] == "code"] == [
        [], [{"output_type": "stream", "name": "stdout", "text": ["7\n"]}],
    ]  # fmt: skip
    shown = render(chapter)
    assert "..." not in shown
    assert "│ 7" in shown


def first_cell(library: Path, language: Language) -> str:
    """The first cell of the notebook of a chapter that needs a package."""
    (library / language).mkdir(exist_ok=True)
    path = library / language / "03-three.md"
    path.write_text("# 3. Three\n\n```sh\npip install no-such-package\n```\n", encoding="utf-8")
    cell = notebook(Chapter(number=3, slug="three", language=language, title="T", question="", path=path))["cells"][0]
    return "".join(cell["source"])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("published", [False, True], ids=["wheel beside it", "published"])
def test_a_notebook_installs_what_is_missing(
    language: Language, published: bool, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without jumok, the first cell installs it, and the packages of the chapter.

    It asked the index for jumok==0.1.0, which it does not have; anybody could have put something else there.
    """
    if published:
        monkeypatch.setattr(wheel, "addresses", lambda: {"Index": "https://index.example/jumok/"})
    own = f"jumok=={version('jumok')}" if published else wheel.wheel_name()
    run: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: run.append(command[1:]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    cell = first_cell(library, language)
    if not published:
        with pytest.raises(FileNotFoundError, match=own):
            exec(compile(cell, "cell", "exec", dont_inherit=True), {})
        assert run == []
        Path(own).touch()
    exec(compile(cell, "cell", "exec", dont_inherit=True), {})
    install = ["-m", "pip", "install", "-q"]
    assert run == [[*install, own], [*install, "no-such-package"]]


def test_a_published_notebook_needs_no_wheel(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chapter = chapter_of(library, "Words.")
    written = write_notebook(chapter, tmp_path / "a.ipynb")
    assert written == tmp_path / wheel.wheel_name()
    monkeypatch.setattr(wheel, "addresses", lambda: {"Index": "https://index.example/jumok/"})
    (tmp_path / "b").mkdir()
    assert write_notebook(chapter, tmp_path / "b" / "b.ipynb") is None
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["b.ipynb"]


@pytest.mark.long
def test_a_notebook_brings_jumok_to_an_empty_environment(tmp_path: Path) -> None:
    """Its first cell installs the wheel that was written beside it, without a network.

    The wheel is made of an installation of any kind: what it installs makes the same wheel again.
    """
    written = write_notebook(lessons.chapter(3, "ko"), tmp_path / "3.ipynb")
    assert written is not None
    cell = json.loads((tmp_path / "3.ipynb").read_text(encoding="utf-8"))["cells"][0]
    program = "".join(cell["source"]) + "\nimport jumok; print(jumok.__file__)"
    (tmp_path / "cell.py").write_text(program, encoding="utf-8")
    venv.create(tmp_path / "venv", with_pip=True)
    folder = "Scripts" if os.name == "nt" else "bin"
    python = tmp_path / "venv" / folder / "python"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP", "VIRTUAL"))}
    offline = {**own, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [python, "cell.py"], cwd=tmp_path, env=offline, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    installed = Path(done.stdout.strip()).parents[1]
    assert installed.is_relative_to(tmp_path.resolve() / "venv")
    assert (tmp_path / "venv" / folder / ("jumok.exe" if os.name == "nt" else "jumok")).is_file()
    (tmp_path / "again").mkdir()
    program = "from jumok.course.pages.wheel import *; print(write_wheel(Path('again')))"
    again = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (tmp_path / again.stdout.strip()).read_bytes() == written.read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("there.ipynb", "there.ipynb exists already; give another name, or force."),
        ("nowhere/3.ipynb", "there is no folder nowhere. Make it first"),
        ("there.ipynb/3.ipynb", "cannot write there.ipynb/3.ipynb: Not a directory"),
        ("3.json", "3.json is not the name of a notebook"),
    ],
)
def test_a_notebook_that_cannot_be_written(library: Path, name: str, message: str) -> None:
    chapter = chapter_of(library, "Words.")
    Path("there.ipynb").write_text("mine")
    with pytest.raises(LessonError, match=re.escape(message)):
        write_notebook(chapter, Path(name))
    assert [path.name for path in Path().iterdir()] == ["there.ipynb"]
    assert Path("there.ipynb").read_text() == "mine"


# --- in an installed package ---


def test_the_package_points_to_the_chapters() -> None:
    assert (ROOT / "src/jumok/course/chapters/text").resolve() == LEARN


def can_build() -> bool:
    """Whether the tools are there that pyproject.toml asks for."""
    with contextlib.suppress(PackageNotFoundError):
        return int(version("setuptools").split(".")[0]) >= 77 and bool(version("pip"))
    return False


@pytest.mark.long
@pytest.mark.skipif(not can_build(), reason="building a wheel without a network needs pip and setuptools 77 or newer")
def test_a_wheel_carries_the_chapters(tmp_path: Path) -> None:
    """Built from a copy of what is built from; the chapters are read from what it installs."""
    copy = tmp_path / "copy"
    copy.mkdir()
    with tarfile.open(tmp_path / "tree.tar", "w") as archive:  # keeps the symbolic link that shutil would follow
        for name in ("pyproject.toml", "README.md", "LICENSE", "src/jumok", "docs/learn"):
            archive.add(ROOT / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    with tarfile.open(tmp_path / "tree.tar") as archive:
        archive.extractall(copy, filter="data")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run([*build, str(tmp_path), str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    for path in LEARN.rglob("*.*"):
        assert f"jumok/course/chapters/text/{path.relative_to(LEARN).as_posix()}" in names
    listed = subprocess.run(
        [sys.executable, "-m", "jumok.cli", "learn", "--lang", "ko", "--json"],
        cwd=tmp_path / "installed", capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(listed.stdout)["chapters"]
    assert [each["slug"] for each in found] == [each.slug for each in written("ko")]
    assert all(str(tmp_path) in each["path"] for each in found)


def test_a_misspelled_word_of_a_slug_is_enough_for_a_hint() -> None:
    """`jumok learn quries` was only told the list, since no whole slug is like it."""
    with pytest.raises(ConfigError, match="Did you mean 'queries-keys-values'"):
        lessons.chapter("quries", "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_chapter_opens_in_a_browser(jumok: Any, monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    end = jumok("learn", "3", "--open", "--lang", language, "--json")
    assert (end.code, end.out.count("\n")) == (0, 1), end.err
    assert opened == [Path(end.json["page"]).as_uri()]
    page = Path(end.json["page"]).read_text(encoding="utf-8")
    assert f'<html lang="{language}">' in page
    assert end.json["title"] in page
    assert jumok("learn", "--open").code == 2
    monkeypatch.setattr("webbrowser.open", lambda uri: False)
    end = jumok("learn", "3", "--open", "--lang", language)
    assert end.code == 1
    assert "page.html" in end.err
