"""Every line that a learner needs stands on a page: no name is used before its source was shown."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import sys
import tokenize
from pathlib import Path

import pytest
import torch

from jumok.course.pages.chapter import LANGUAGES, Chapter, Code, Language, chapters
from jumok.course.pages.sources import CHAPTERS, definition, program, with_sources

PACKAGE = "jumok.course.chapters"
LONGEST = {ast.FunctionDef: 25, ast.ClassDef: 45}  # lines
ALL = [chapter for language in LANGUAGES for chapter in chapters(language)]
each_chapter = pytest.mark.parametrize("chapter", ALL, ids=lambda each: f"{each.language}-{each.number:02d}")


def code_of(chapter: Chapter) -> list[Code]:
    return [part for part in chapter.parts() if isinstance(part, Code)]


def shown_until(chapter: Chapter) -> set[str]:
    """The definitions that the chapters before this one show, as MODULE.NAME."""
    assert chapter.number is not None
    earlier = chapters(chapter.language)[: chapter.number]
    return {block.name for each in earlier for block in code_of(each) if block.name}


def imported(source: str) -> set[tuple[str, str]]:
    """The names that code imports from the package of the course, with their modules."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", each.name) for node in nodes for each in node.names}


@each_chapter
def test_a_name_is_shown_before_it_is_imported(chapter: Chapter) -> None:
    """A page may import what an earlier page shows, what only draws, and what belongs to jumok itself."""
    shown = shown_until(chapter)
    for block in code_of(chapter):
        for module, name in imported(block.source):
            assert module != PACKAGE, f"line {block.line}: import the names of {name}, not the module"
            if module.startswith(PACKAGE):
                assert f"{module.removeprefix(PACKAGE + '.')}.{name}" in shown, f"line {block.line}: {name}"


@each_chapter
def test_the_page_shows_the_code_of_the_module(chapter: Chapter) -> None:
    """`python docs/sources.py` writes it there."""
    assert with_sources(chapter.text) == chapter.text


@each_chapter
def test_what_is_shown_is_short(chapter: Chapter) -> None:
    """And speaks for itself: its comments are shapes, so that it is the same in both languages."""
    for block in code_of(chapter):
        if not block.name:
            continue
        [node] = ast.parse(block.source).body
        assert len(block.source.splitlines()) <= LONGEST.get(type(node), 12), block.name
        for token in tokenize.generate_tokens(io.StringIO(block.source).readline):
            if token.type == tokenize.COMMENT:
                assert not re.search(r"[a-z]{4}|[가-힣]", token.string.replace("noqa", "")), token.string


def test_all_code_of_the_chapters_is_shown() -> None:
    """What no page shows is not needed, or only draws and belongs to jumok.course.pictures."""
    shown = {block.name for chapter in ALL for block in code_of(chapter) if block.name}
    if any(chapter.number != 13 and not any(block.name for block in code_of(chapter)) for chapter in ALL):
        pytest.skip("some chapters are not rewritten yet")
    for path in sorted(CHAPTERS.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert f"{path.stem}.{node.name}" in shown


def as_shown(last: Chapter, printed: str) -> bool:
    """Whether the program of a chapter printed what its page shows; `...` there is any text."""
    expected = "".join(block.output for block in code_of(last) if block.kind == "program")
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


@each_chapter
def test_the_program_so_far_runs_without_jumok(
    chapter: Chapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And prints what the page shows."""
    ends = [block for block in code_of(chapter) if block.kind == "program"]
    if not ends:
        pytest.skip("this chapter builds no program")
    source = program(chapters(chapter.language), chapter)
    assert source == program(chapters("en"), chapters("en")[chapter.number or 0]) or chapter.language == "ko"
    for name in [name for name in sys.modules if name.partition(".")[0] == "jumok"]:
        monkeypatch.setitem(sys.modules, name, None)
    printed = io.StringIO()
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(printed), torch.random.fork_rng(devices=[]):
        exec(compile(source, "program.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert as_shown(chapter, printed.getvalue())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_typed_from_the_pages_trains_on_a_file(
    language: Language, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader without jumok types the definitions of chapters 1 to 11, and trains on a file as chapter 11 does."""
    blocks = [block for chapter in chapters(language)[1:12] for block in code_of(chapter)]
    lines = {
        line for block in blocks for line in block.source.splitlines() if re.match(r"(from|import) (?!jumok)", line)
    }
    own = [block.source for block in code_of(chapters(language)[11]) if "novel.txt" in block.source]
    assert len(own) == 2  # trains and saves; loads and writes
    typed = [
        *sorted(lines),
        'tales = "옛날에 호랑이가 살았어요. 곶감을 먹었어요.\\n" * 200',
        *(b.source for b in blocks if b.name),
        *own,
    ]
    for name in [name for name in sys.modules if name.partition(".")[0] == "jumok"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        exec(compile("\n".join(typed), "typed.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    *progress, same, length = capsys.readouterr().out.splitlines()
    assert (same, length) == ("True", "30")
    assert float(progress[-1].split()[2]) < 1 < float(progress[0].split()[2])  # the validation loss


@pytest.mark.parametrize("number", [5, 11, 19])
def test_what_a_program_needs_is_enough(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what its definitions use, in other chapters; and nothing else, so it is much shorter."""
    last = chapters("en")[number]
    source, whole = (program(chapters("en"), last, needed=needed) for needed in (True, False))
    assert len(source) < len(whole) / 2
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)} <= used
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        exec(compile(source, "program.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert as_shown(last, capsys.readouterr().out)


@pytest.mark.parametrize("language", LANGUAGES)
def test_chapter_11_lists_what_a_gpt_needs(language: Language) -> None:
    """By chapter, for a reader who types the program."""
    known = chapters(language)
    [end] = re.findall(r"`jumok learn script 11 --needed`.*?\n\n((?:[- ] .+\n)+)", known[11].text)
    source = program(known, known[11], needed=True)
    needed = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert sorted(re.findall(r"`(\w+)`", end)) == sorted(needed)


def test_a_definition_has_no_docstring(tmp_path: Path) -> None:
    assert definition("head.causal_mask") == (
        "def causal_mask(t: int) -> Tensor:\n    return torch.ones(t, t, dtype=torch.bool).tril()\n"
    )
    source = definition("head.Head")
    assert source.startswith("class Head(nn.Module):\n    def __init__(")
    assert '"""' not in source


@each_chapter
def test_a_block_has_one_output(chapter: Chapter) -> None:
    """A second one below it would be what an earlier form of the block printed."""
    assert not re.search(r"^```text\n(?:(?!```).*\n)*```\n\n```text$", chapter.text, re.MULTILINE)
