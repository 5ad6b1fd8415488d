"""A chapter or the list of chapters as text for a terminal: in colour, or plain for a file or a pipe.

Widths are in terminal columns; a Hangul syllable takes two.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from html import unescape

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableDataElement
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from jumok.course.pages.chapter import TEXTS, Chapter, Code, Picture, Prose, Question, map_page, offline
from jumok.course.words import Language, read_toml, words_in

WIDEST = 96  # columns; longer lines are hard to follow

_NUMBER = re.compile(r"\d+\. ")
_INLINE_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# rich's default backgrounds and underlines suit only dark terminals.
_THEME = Theme({"markdown.h1": "bold", "markdown.h2": "bold", "markdown.h3": "bold", "markdown.code": "bold cyan"})


def render(chapter: Chapter, *, width: int = 80, colour: bool = False) -> str:
    """Return a chapter as text.

    Args:
        chapter: the chapter.
        width: columns of the terminal; lines of prose have at most 96. Lines of code and output are not broken, so
            that they can be copied. Answers stand after the last of several questions.
        colour: whether to use ANSI codes for colours and bold text; without them, code in prose has its backquotes.
    """
    console = _console(width, colour)
    asked: list[Question] = []  # the questions since the last other part
    for part in [*chapter.parts(), None]:
        if isinstance(part, Question):
            asked.append(part)
            continue
        pieces = [*(_questions(asked, chapter.language, colour) if asked else ())]
        pieces += [] if part is None else [*_pieces(part, chapter.language, colour), Text("")]
        asked = []
        for piece in pieces:
            console.print(piece, soft_wrap=isinstance(piece, _WholeLines), crop=False)
    return _printed(console)


def render_list(chapters: Sequence[Chapter], language: Language, *, width: int = 80, colour: bool = False) -> str:
    """Return the map, all chapters with their questions, and further commands. Arguments as for `render`."""
    console = _console(width, colour)
    contents = _table()
    overview = map_page(language)
    contents.add_row("", _entry(overview.title, overview.slug, overview.question))
    for chapter in chapters:
        entry = _entry(chapter.title, chapter.slug, chapter.question)
        figures = words_in(TEXTS, "terminal")["figures"].said(language)
        entry.append("\n" + figures.format(minutes=chapter.minutes, lines=chapter.code_lines), "dim")
        contents.add_row(str(chapter.number), entry)
    console.print(contents)
    console.print()
    commands = _table()
    for command, meaning in read_toml(TEXTS)["commands"][language].items():
        commands.add_row(command, Text(meaning, style="dim"))
    console.print(commands)
    return _printed(console)


def _table() -> Table:
    """Return two columns without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", style="bold")
    table.add_column(overflow="fold")
    return table


class _LeftHeading(Heading):
    """A heading that is aligned left and underlined; rich would centre it, which is hard to see in plain text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        if self.tag != "h1":
            yield Text("")
        yield self.text
        yield Rule(characters="═" if self.tag == "h1" else "─", style="dim")


class _WholeCell(TableDataElement):
    """A table cell that breaks lines without dropping text.

    When rich removes the space at the end of a broken line, it counts characters instead of columns. A Hangul syllable
    takes two columns, so the space stays, the line is too long, and its last word is replaced by an ellipsis.
    """

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class _WholeCode(CodeBlock):
    """A fence in another language, such as a command: its lines are not broken, so that they can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = _indented(str(self.text).rstrip("\n"), "" if console.color_system else "    ")
        yield Text(code, style="markdown.code", no_wrap=True, overflow="ignore")


class _Prose(Markdown):
    """Markdown with left-aligned headings, complete tables and whole lines of code."""

    elements = {  # noqa: RUF012  # as rich declares it
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _WholeCode,
        "td_open": _WholeCell,
        "th_open": _WholeCell,
    }


class _WholeLines(Text):
    """Lines that are not broken here, so that code, output and paths can be copied."""


def _markdown(text: str, colour: bool, style: str = "none") -> _Prose:
    text = offline(text)
    return _Prose(text if colour else _INLINE_CODE.sub(r"`` `\1` ``", text), hyperlinks=False, style=style)


def _questions(asked: Sequence[Question], language: Language, colour: bool) -> Iterator[RenderableType]:
    """Yield all questions, and then all answers, so that a reader can think first."""
    for each in asked:
        yield _markdown(unescape(re.sub(r"</?code>", "`", each.question)), colour)
    yield Text("\n" + words_in(TEXTS, "terminal")["answers"].said(language), style="bold")
    for each in asked:
        yield _markdown(_numbered(each), colour, style="dim")
    yield Text("")


def _numbered(asked: Question) -> str:
    """Return the answer with the number of its question, as an item of a Markdown list."""
    number = _NUMBER.match(asked.question)
    if number is None:
        return asked.answer
    return number[0] + asked.answer.replace("\n", "\n" + " " * len(number[0]))


def _pieces(part: Prose | Code | Picture, language: Language, colour: bool) -> Iterator[RenderableType]:
    match part:
        case Prose():
            yield _markdown(part.text, colour)
        case Code():
            code = part.source.rstrip("\n")
            if colour:  # at the margin, so that it runs as it is copied
                yield _WholeLines.assemble(
                    Syntax("", "python", theme="ansi_light", background_color="default").highlight(code)
                )
            else:
                yield _WholeLines(_indented(code, "    "))
            if part.shown:
                yield Text("")
                yield _WholeLines(_indented(part.shown.rstrip("\n"), "    │ "), style="dim")
        case Picture():
            said = words_in(TEXTS, "terminal")["picture"].said(language)
            yield Text.assemble((f"[{said}] ", "bold"), part.title)
            yield _WholeLines(f"    {part.path}", style="dim")


def _entry(title: str, name: str, question: str) -> Text:
    return Text.assemble((title, "bold"), (f"  {name}\n", "dim"), question)


def _indented(text: str, margin: str) -> str:
    return "\n".join(f"{margin}{line}".rstrip() for line in text.split("\n"))


def _console(width: int, colour: bool) -> Console:
    """Return a console that writes to a string, in 256 colours or in none."""
    return Console(
        file=io.StringIO(),
        width=min(width, WIDEST),
        force_terminal=colour,
        color_system="256" if colour else None,
        no_color=not colour,
        theme=_THEME,
        highlight=False,
        legacy_windows=False,
    )


def _printed(console: Console) -> str:
    """Return the printed text without trailing spaces and without empty lines at its start and end."""
    assert isinstance(console.file, io.StringIO)  # `_console` made it
    lines = [line.rstrip() for line in console.file.getvalue().split("\n")]
    return "\n".join(lines).strip("\n") + "\n"
