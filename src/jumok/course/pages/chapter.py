"""The chapters: reading them, splitting them into parts, and checking that their code prints what they show.

A chapter is a Markdown file, docs/learn/LANGUAGE/NN-slug.md, with these parts:

- A ```python fence is a block of code. All blocks of a chapter run in order, in one namespace. With `source=NAME` it
  is a definition of the chapters' modules (`jumok.course.pages.sources`); with `program` it is the end of the program
  that is built up to this chapter.
- A ```text fence directly after a block is the exact output of that block, except that `...` matches anything, as
  ELLIPSIS does in https://docs.python.org/3/library/doctest.html. A block without such a fence prints nothing.
- A line with only `![words](file)` is a picture. A PNG is drawn by an earlier block. An SVG is one of the drawings of
  `jumok.course.drawings`, which no block draws, so it can stand at the head of a chapter; or it is named try-NAME.svg
  and shows an interactive piece, `view/assets/chapters/NAME_piece.js`, which stands in its place on the site.
- `<details>`, `<summary>QUESTION</summary>`, an empty line, the answer, an empty line and `</details>`, each on a line
  of its own, are a question with its answer. Notebooks, the site and GitHub show the answer after a click, a terminal
  after the last of several questions. QUESTION is HTML, with `<code>`; the answer is Markdown, without Python fences.
- A ```sh fence with only `pip install NAME` names a package that the code needs in addition to those of jumok.
- Everything else is prose.

The page with the map of a GPT, docs/learn/LANGUAGE/map.md, stands before the chapters and has no number.

An installed package contains the same files in the folder `text` next to this module. Importing this module does not
import torch, so listing the chapters is fast; only `check` imports it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from jumok.config import require_choice
from jumok.course.words import LANGUAGES, Language
from jumok.errors import ConfigError, LessonError
from jumok.files import write_atomic
from jumok.messages import closest, did_you_mean, tr

FOLDER = Path(__file__).parents[1] / "chapters" / "text"  # in a checkout a link to docs/learn
TEXTS = Path(__file__).parent / "texts.toml"  # what stands around a chapter

_EXACT = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1 | doctest.DONT_ACCEPT_BLANKLINE
_FILE = re.compile(r"(\d\d)-([a-z0-9-]+)\.md")
_TITLE = re.compile(r"# (\d+)\. (.+)")
_PART = re.compile(
    r"^```python(?: source=(?P<name>[\w.]+)| (?P<kind>program))?\n(?P<code>.*?)^```$"
    r"(?:\n\s*^```text\n(?P<output>.*?)^```$)?"
    r"|^!\[(?P<title>[^\]]*)\]\((?P<file>[^)\s]+)\)$"
    r"|^<details>\n<summary>(?P<question>[^\n]+)</summary>\n\n(?P<answer>.+?)\n\n</details>$"
    r"|(?P<other>^```.*?^```$)",
    re.MULTILINE | re.DOTALL,
)
_NOT_AN_ANSWER = re.compile(r"^(?:</?(?:details|summary)>|```python\b.*$)", re.MULTILINE)
_INSTALL = re.compile(r"^```sh\npip install ([\w.-]+)\n```$", re.MULTILINE)
_CHAPTER_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./\w\w/)?(\d\d|map)[a-z0-9-]*\.md\)")
_INDEX_ROW = re.compile(r"\| *(\d+) *\| *\[([^\]]+)\]\((\w+)/([^)]+)\) *\| *(.+?) *\|")


@dataclass(frozen=True)
class Prose:
    """Markdown text. line: the line in the file where it begins, from 1."""

    text: str
    line: int


@dataclass(frozen=True)
class Code:
    """A block of code and its output ("" for none).

    line: of its first line of code. name: of the definition that it shows, MODULE.NAME, or "". kind: "program" for the
    end of the program built so far, or "".
    """

    source: str
    output: str
    line: int
    name: str = ""
    kind: str = ""

    @property
    def shown(self) -> str:
        """The output to show to readers: "" if every line is `...`, as for a measured time."""
        return "" if all(line == "..." for line in self.output.splitlines()) else self.output


@dataclass(frozen=True)
class Picture:
    """A picture: its description, and its file, a PNG or an SVG."""

    title: str
    path: Path
    line: int


@dataclass(frozen=True)
class Question:
    """A question, in HTML (a browser shows a backquote as it is, so code is `<code>`), and its answer in Markdown."""

    question: str
    answer: str
    line: int


Part = Prose | Code | Picture | Question


@dataclass(frozen=True)
class Failure:
    """A block whose output differs from the chapter. printed: the actual output, with the traceback of an exception."""

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
    """One chapter in one language.

    number: from 0; None for the map. question: the question that it answers ("" if the index has none).
    """

    number: int | None
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
        """The packages that its code needs in addition to those of jumok, from its `pip install` fences."""
        return _INSTALL.findall(self.text)

    @property
    def minutes(self) -> int:
        """The minutes that reading its text takes: for 500 characters of Korean or 1,200 of English a minute each."""
        characters = sum(len(part.text) for part in self.parts() if isinstance(part, Prose))
        return math.ceil(characters / {"ko": 500, "en": 1200}[self.language])

    @property
    def code_lines(self) -> int:
        """How many lines the definitions have that it shows."""
        return sum(part.source.count("\n") for part in self.parts() if isinstance(part, Code) and part.name)

    def parts(self) -> list[Part]:
        """Prose, code, pictures and questions, in order.

        Raises `LessonError` for a fence that is not closed, and for a question that is written in another way.
        """
        return list(_parts(self.text, self.path))


def chapters(language: Language = "ko") -> list[Chapter]:
    """Return all chapters in one language, in order.

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


def chapter(key: int | str, language: Language = "ko", *, hint: str = "") -> Chapter:
    """Return a chapter, by its number (3 or "3") or its slug ("queries-keys-values").

    hint: what may be meant if there is no such chapter; by default the closest slug.

    Raises as `chapters`, and `ConfigError` for a chapter that does not exist.
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
    if slug == "map":
        return map_page(language)
    for each in known:
        if slug == each.slug:
            return each
    slugs = [each.slug for each in known]
    # Readers often remember only one word of a slug.
    words = {word: each for each in slugs for word in each.split("-") if len(word) > 3}
    hint = hint or ("" if slug in words else did_you_mean(slug, slugs))
    if not hint:
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


def map_page(language: Language = "ko") -> Chapter:
    """Return the page with the map of a GPT, which stands before the chapters, as a `Chapter` without a number.

    Raises `ConfigError` for an unknown language, and `LessonError` if this installation lacks the page.
    """
    require_choice("language", language, LANGUAGES)
    path = FOLDER / language / "map.md"
    if not path.is_file():
        raise LessonError("the map is missing in this installation: {path}. Install jumok again.", path=path)
    with path.open(encoding="utf-8") as file:
        title = file.readline().strip().removeprefix("# ")
    return Chapter(number=None, slug="map", language=language, title=title, question="", path=path)


def check(chapter: Chapter, folder: Path) -> list[Failure]:
    """Run all blocks of a chapter and compare their output with that in the chapter.

    Args:
        chapter: the chapter; its `packages` must be installed.
        folder: the working directory, into which pictures are drawn: an empty folder, or docs/learn/pictures/LANGUAGE
            to redraw the pictures of the project.

    Returns:
        The blocks with a different output. After a block that raises an exception, no further block is run.

    Afterwards torch's random state is restored, and its print options have their default values.
    """
    failures = []
    for block, printed, failed in _run(chapter, folder):
        if failed or not doctest.OutputChecker().check_output(block.output, printed, _EXACT):
            failures.append(Failure(chapter.path, block.line, block.source, block.output, printed))
    return failures


def offline(prose: str) -> str:
    """Prose without links to local files: a link becomes its text, and a link to a chapter also names the command
    that shows it."""
    prose = _CHAPTER_LINK.sub(
        lambda link: f"{link[1]} (`jumok learn {link[2] if link[2] == 'map' else int(link[2])}`)", prose
    )
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)\s]+\)", r"\1", prose)


def write_new(path: Path, content: str, *, force: bool = False) -> None:
    """Write a new file, or replace an existing one if `force`.

    Raises `LessonError` if `path` exists, because it may contain someone's work, or if it cannot be written. An
    existing file is then unchanged.
    """
    if path.exists() and not force:
        raise LessonError("{path} exists already; give another name, or {--force}.", path=path)
    try:
        write_atomic(path, content)
    except FileNotFoundError:
        raise LessonError(
            "cannot write {path}: there is no folder {parent}. Make it first.", path=path, parent=path.parent
        ) from None
    except OSError as error:
        raise LessonError(
            "cannot write {path}: {reason}. Give a file in a folder of yours.", path=path, reason=error
        ) from None


def _run(chapter: Chapter, folder: Path) -> list[tuple[Code, str, bool]]:
    """Return each block, its output, and whether it raised an exception. The output then ends with the traceback."""
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
    """The compiled code of a block, after empty lines, so that a traceback shows the line number in the chapter."""
    return compile("\n" * (block.line - 1) + block.source, str(path), "exec", dont_inherit=True)


@contextlib.contextmanager
def _own_torch_settings() -> Iterator[None]:
    """Run a chapter with default print options; afterwards reset them and restore the random state."""
    import torch

    torch.set_printoptions(profile="default")
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_printoptions(profile="default")


def _parts(text: str, path: Path) -> Iterator[Part]:
    """Split a chapter into the parts described at the top of this module. path: of the chapter."""
    fences = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith("```")]
    if len(fences) % 2:
        raise LessonError(
            "{name}: a code fence is not closed; the last one is on line {line}.", name=path.name, line=fences[-1]
        )
    begin = 0
    for match in _PART.finditer(text):
        if match["other"] is not None:  # a fence in another language is part of the prose
            continue
        yield from _prose(text, begin, match.start(), path)
        begin = match.end()
        line = text.count("\n", 0, match.start()) + 1
        if match["code"] is not None:
            yield Code(match["code"], match["output"] or "", line + 1, match["name"] or "", match["kind"] or "")
        elif match["question"] is not None:
            if _NOT_AN_ANSWER.search(match["answer"]):
                raise _bad_question(path, line)
            yield Question(match["question"], match["answer"].strip("\n"), line)
        else:
            yield Picture(match["title"], (path.parent / match["file"]).resolve(), line)
    yield from _prose(text, begin, len(text), path)


def _prose(text: str, begin: int, end: int, path: Path) -> Iterator[Prose]:
    """Yield the text between two other parts, if it is not empty."""
    prose = text[begin:end]
    if prose.strip():
        begin += len(prose) - len(prose.lstrip("\n"))
        line = text.count("\n", 0, begin) + 1
        prose = prose.strip("\n")
        if found := _NOT_AN_ANSWER.search(prose):
            raise _bad_question(path, line + prose.count("\n", 0, found.start()))
        yield Prose(prose, line)


def _bad_question(path: Path, line: int) -> LessonError:
    return LessonError(
        "{name}, line {line}: a question needs the lines <details> and <summary>QUESTION</summary>, an empty line, "
        "the answer without Python code, an empty line and </details>.",
        name=path.name,
        line=line,
    )


def _chapter(path: Path, language: Language, question: str) -> Chapter:
    """Return a chapter with number and slug from its file name, and the title from its first line."""
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
