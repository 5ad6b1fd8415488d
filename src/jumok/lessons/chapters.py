"""The chapters: what there is to read, what a chapter is made of, and whether its code prints what it says.

A chapter is a Markdown file, docs/learn/LANGUAGE/NN-slug.md. Four things in it are of interest here:

- a fence of ```python is a block of code; all blocks of a chapter run in order, in one namespace;
- a fence of ```text right after a block is what that block prints, to the character, but that `...` stands for anything
  (as with the ELLIPSIS of https://docs.python.org/3/library/doctest.html); a block without one prints nothing;
- a line that is nothing but `![words](file)` is a picture, drawn by a block before it;
- a fence of ```sh that is nothing but `pip install NAME` says that the code needs a package beyond those of jumok;
- all else is prose.

The page on the ladder, docs/learn/LANGUAGE/ladder.md, is made of the same things, but is no chapter and has no number.

An installed package carries the same files in the folder `text` beside this module. This module does not import torch,
so that a list of chapters takes no time; `check` does, when it runs one.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from jumok.config import require_choice
from jumok.errors import ConfigError, LessonError
from jumok.messages import closest, did_you_mean, tr

Language = Literal["ko", "en"]
LANGUAGES: tuple[Language, ...] = ("ko", "en")
FOLDER = Path(__file__).parent / "text"  # in a checkout a link to docs/learn

_EXACT = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1 | doctest.DONT_ACCEPT_BLANKLINE
_FILE = re.compile(r"(\d\d)-([a-z0-9-]+)\.md")
_TITLE = re.compile(r"# (\d+)\. (.+)")
_PART = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\s*^```text\n(?P<output>.*?)^```$)?"
    r"|^!\[(?P<title>[^\]]*)\]\((?P<file>[^)\s]+)\)$"
    r"|(?P<other>^```.*?^```$)",
    re.MULTILINE | re.DOTALL,
)
_INSTALL = re.compile(r"^```sh\npip install ([\w.-]+)\n```$", re.MULTILINE)
_CHAPTER_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./\w\w/)?(\d\d|ladder)[a-z0-9-]*\.md\)")
_INDEX_ROW = re.compile(r"\| *(\d+) *\| *\[([^\]]+)\]\((\w+)/([^)]+)\) *\| *(.+?) *\|")


@dataclass(frozen=True)
class Prose:
    """Markdown to read. line: where it begins in the file, from 1."""

    text: str
    line: int


@dataclass(frozen=True)
class Code:
    """A block to run, and what it prints; "" for nothing. line: of its first line of code."""

    source: str
    output: str
    line: int

    @property
    def shown(self) -> str:
        """The output for people to read: nothing, if the chapter leaves all of it open, as a measured time is."""
        return "" if all(line == "..." for line in self.output.splitlines()) else self.output


@dataclass(frozen=True)
class Picture:
    """A picture: what it shows in words, and its file."""

    title: str
    path: Path
    line: int


Part = Prose | Code | Picture


@dataclass(frozen=True)
class Failure:
    """A block that did not do what the chapter says. printed: what it printed, or how it failed."""

    path: Path
    line: int
    source: str
    expected: str
    printed: str

    def __str__(self) -> str:
        return (
            f"{self.path.name}, line {self.line}:\n{_indented(self.source)}\n"
            f"should print\n{_indented(self.expected) or '    nothing'}\nbut printed\n{_indented(self.printed)}"
        )


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One chapter in one language. question: in one line, what it answers ("" if the index does not say)."""

    number: int
    slug: str
    language: Language
    title: str
    question: str
    path: Path

    @property
    def text(self) -> str:
        """The whole Markdown."""
        return self.path.read_text(encoding="utf-8")

    @property
    def packages(self) -> list[str]:
        """The packages that its code needs beyond those of jumok: those that its reader is told to install."""
        return _INSTALL.findall(self.text)

    def parts(self) -> list[Part]:
        """Prose, code and pictures, in order. Raises `LessonError` for a fence that never ends."""
        return list(_parts(self.text, self.path))


def chapters(language: Language = "ko") -> list[Chapter]:
    """All chapters in one language, the first one first.

    Raises `ConfigError` for an unknown language, and `LessonError` if this installation lacks the chapters.
    """
    require_choice("language", language, LANGUAGES)
    files = sorted(path for path in (FOLDER / language).glob("*.md") if _FILE.fullmatch(path.name))
    if not files:
        raise LessonError(
            "the chapters are missing in this installation: {path} holds none. Install jumok again; "
            "on a system without symbolic links, install it from a wheel. The chapters are in the "
            "folder docs/learn of the project.",
            path=FOLDER / language,
        )
    questions = _questions(language)
    return [_chapter(path, language, questions.get(path.name, "")) for path in files]


def chapter(key: int | str, language: Language = "ko") -> Chapter:
    """One chapter, by its number (3 or "3") or its slug ("queries-keys-values").

    Raises as `chapters`, and `ConfigError` for a chapter that there is not.
    """
    known = chapters(language)
    name = str(key).strip().lower().removesuffix(".md")
    if re.fullmatch(r"[+-]?\d+", name):
        found = [each for each in known if each.number == int(name)]
        if not found:
            raise ConfigError(
                "there is no chapter {key}; there are chapters {first} to {last}.",
                key=name,
                first=known[0].number,
                last=known[-1].number,
            )
        return found[0]
    slug = re.sub(r"^\d\d?-", "", name)
    for each in known:
        if slug == each.slug:
            return each
    slugs = [each.slug for each in known]
    hint = did_you_mean(slug, slugs)
    if not hint:  # a word of a slug is often all that is remembered
        words = {word: each for each in slugs for word in each.split("-") if len(word) > 3}
        close = closest(slug, words)
        hint = tr(" Did you mean {word!r}?", word=words[close]) if close else ""
    raise ConfigError(
        "there is no chapter {key!r}; give a number from {first} to {last}, or one of {slugs}.{hint}",
        key=str(key),
        first=known[0].number,
        last=known[-1].number,
        slugs=", ".join(slugs),
        hint=hint,
    )


def ladder_page(language: Language = "ko") -> Chapter:
    """The page on the ladder, which is read like a chapter; its number is 0, and the index asks no question of it.

    Raises `ConfigError` for an unknown language, and `LessonError` if this installation lacks the page.
    """
    require_choice("language", language, LANGUAGES)
    path = FOLDER / language / "ladder.md"
    if not path.is_file():
        raise LessonError(
            "the page on the ladder is missing in this installation: {path}. Install jumok again.", path=path
        )
    with path.open(encoding="utf-8") as file:
        title = file.readline().strip().removeprefix("# ")
    return Chapter(number=0, slug="ladder", language=language, title=title, question="", path=path)


def check(chapter: Chapter, folder: Path) -> list[Failure]:
    """Run all blocks of a chapter and compare what they print with what the chapter says.

    Args:
        chapter: which one; its `packages` must be installed.
        folder: the working directory, where pictures are drawn: an empty one, or docs/learn/pictures/LANGUAGE, to draw
            those of the project anew.

    Returns:
        The blocks that did something else; none if all is well. After a block that raises no other is run.

    The settings of torch that a chapter may change, the seed and how tensors are printed, are as before afterwards (how
    they are printed: as torch has it by default).
    """
    failures = []
    for block, printed, failed in _run(chapter, folder):
        if failed or not doctest.OutputChecker().check_output(block.output, printed, _EXACT):
            failures.append(Failure(chapter.path, block.line, block.source, block.output, printed))
    return failures


def offline(prose: str) -> str:
    """Prose to read outside the project's folder: links into it become words, those to its pages also the command
    that shows them."""
    prose = _CHAPTER_LINK.sub(lambda link: f"{link[1]} (`jumok learn {link[2].lstrip('0')}`)", prose)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)\s]+\)", r"\1", prose)


def _run(chapter: Chapter, folder: Path) -> list[tuple[Code, str, bool]]:
    """Each block, what it printed, and whether it ended in an exception, which is then part of what it printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    results: list[tuple[Code, str, bool]] = []
    with contextlib.chdir(folder), _own_torch_settings():
        for block in chapter.parts():
            if not isinstance(block, Code):
                continue
            printed, failed = io.StringIO(), False
            with contextlib.redirect_stdout(printed):
                try:
                    exec(_compiled(block, chapter.path), namespace)
                except Exception as error:
                    failed = True
                    trace = error.__traceback__.tb_next if error.__traceback__ else None  # without the line above
                    print("".join(traceback.format_exception(error.with_traceback(trace))), end="")
            results.append((block, printed.getvalue(), failed))
            if failed:
                break
    return results


def _compiled(block: Code, path: Path) -> CodeType:
    """The code of a block, behind so many empty lines that a traceback names the line of the chapter."""
    return compile("\n" * (block.line - 1) + block.source, str(path), "exec", dont_inherit=True)


@contextlib.contextmanager
def _own_torch_settings() -> Iterator[None]:
    """What a chapter may change is undone: the random state, and how tensors are printed."""
    import torch

    torch.set_printoptions(profile="default")
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_printoptions(profile="default")


def _parts(text: str, path: Path) -> Iterator[Part]:
    """See the top of this module. path: of the chapter; its pictures are found from there, and errors name it."""
    fences = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith("```")]
    if len(fences) % 2:
        raise LessonError(
            "{name}: a code fence is not closed; the last one is on line {line}.", name=path.name, line=fences[-1]
        )
    begin = 0
    for match in _PART.finditer(text):
        if match["other"] is not None:  # a fence in another language is read, not run
            continue
        yield from _prose(text, begin, match.start())
        begin = match.end()
        line = text.count("\n", 0, match.start()) + 1
        if match["code"] is not None:
            yield Code(match["code"], match["output"] or "", line + 1)
        else:
            yield Picture(match["title"], (path.parent / match["file"]).resolve(), line)
    yield from _prose(text, begin, len(text))


def _prose(text: str, begin: int, end: int) -> Iterator[Prose]:
    """What lies between two other parts, if it is more than empty lines."""
    prose = text[begin:end]
    if prose.strip():
        begin += len(prose) - len(prose.lstrip("\n"))
        yield Prose(prose.strip("\n"), text.count("\n", 0, begin) + 1)


def _chapter(path: Path, language: Language, question: str) -> Chapter:
    """What a file says of itself: its number and slug in its name, its title in its first line."""
    number, slug = path.stem.split("-", 1)
    with path.open(encoding="utf-8") as file:
        heading = _TITLE.fullmatch(file.readline().strip())
    if heading is None or int(heading[1]) != int(number):
        raise LessonError("{name} must begin with the line '# {number}. TITLE'.", name=path.name, number=int(number))
    return Chapter(number=int(number), slug=slug, language=language, title=heading[2], question=question, path=path)


def _questions(language: Language) -> dict[str, str]:
    """File name -> question, from the tables of the index, README.md."""
    index = FOLDER / "README.md"
    rows = _INDEX_ROW.findall(index.read_text(encoding="utf-8")) if index.is_file() else []
    return {name: question for _, _, folder, name, question in rows if folder == language}


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip("\n").split("\n")) if text else ""
