"""A chapter, and the list of them, as text for a terminal: coloured, or plain for a file or a pipe.

Widths are those of a terminal, where a Hangul syllable takes two columns.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, TableDataElement
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from jumok.lessons.chapters import Chapter, Code, Language, Part, Picture, Prose, offline

WIDEST = 96  # columns; longer lines are hard to follow

_INLINE_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Without the backgrounds and underlines of rich's own, which suit dark terminals only.
_THEME = Theme({"markdown.h1": "bold", "markdown.h2": "bold", "markdown.h3": "bold", "markdown.code": "bold cyan"})
_LADDER = {  # its title, and what it answers
    "ko": ("사다리", "GPT의 부품을 하나씩 더하면 손실이 얼마나 줄어들까요?"),
    "en": ("The ladder", "How much better is a text of yours predicted with each part more?"),
}
_COMMANDS = {  # where to go from the list
    "ko": {
        "jumok learn 3": "3장 읽기",
        "jumok learn 3 --notebook 3.ipynb": "3장을 노트북으로 저장하기",
        "jumok learn ladder": "사다리 설명 읽기",
        "jumok learn ladder 소설.txt": "내 글로 사다리 학습하기",
    },
    "en": {
        "jumok learn 3": "read chapter 3",
        "jumok learn 3 --notebook 3.ipynb": "keep it as a notebook",
        "jumok learn ladder": "read about the ladder",
        "jumok learn ladder novel.txt": "climb it with a text of yours",
    },
}
_PICTURE = {"ko": "그림", "en": "Picture"}


def render(chapter: Chapter, *, width: int = 80, colour: bool = False) -> str:
    """A chapter to read.

    Args:
        chapter: which one.
        width: columns of the terminal; lines of prose are at most 96 long. Plain code and what it prints keep their
            lines, so that they can be copied.
        colour: with ANSI codes for colours and bold letters; without them, code within prose keeps its backquotes.
    """
    console = _console(width, colour)
    for part in chapter.parts():
        for piece in _pieces(part, chapter.language, colour):
            console.print(piece, soft_wrap=isinstance(piece, _WholeLines))
        console.print()
    return _printed(console)


def render_list(chapters: Sequence[Chapter], language: Language, *, width: int = 80, colour: bool = False) -> str:
    """All chapters with their questions, the ladder, and how to go on. Arguments as for `render`."""
    console = _console(width, colour)
    contents = _table()
    for chapter in chapters:
        contents.add_row(str(chapter.number), _entry(chapter.title, chapter.slug, chapter.question))
    title, question = _LADDER[language]
    contents.add_row("↑", _entry(title, "ladder", question))
    console.print(contents)
    console.print()
    commands = _table()
    for command, meaning in _COMMANDS[language].items():
        commands.add_row(command, Text(meaning, style="dim"))
    console.print(commands)
    return _printed(console)


def _table() -> Table:
    """Two columns without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", style="bold")
    table.add_column(overflow="fold")
    return table


class _LeftHeading(Heading):
    """A heading at the left, underlined by its rank; rich would centre it, and in plain text it would not stand out."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        if self.tag != "h1":
            yield Text("")
        yield self.text
        yield Rule(characters="═" if self.tag == "h1" else "─", style="dim")


class _WholeCell(TableDataElement):
    """A cell that breaks its lines and drops nothing.

    rich counts letters where it takes the space off the end of a broken line. With Hangul, where a letter takes two
    columns, the space stays, the line seems too long, and its last word is replaced by an ellipsis.
    """

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class _Prose(Markdown):
    """Markdown with headings at the left and whole tables."""

    elements = {  # noqa: RUF012  # as rich declares it
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "td_open": _WholeCell,
        "th_open": _WholeCell,
    }


class _WholeLines(Text):
    """Lines that are left to the terminal to break: code, output and paths, to be copied."""


def _pieces(part: Part, language: Language, colour: bool) -> Iterator[RenderableType]:
    match part:
        case Prose():
            text = offline(part.text)
            yield _Prose(text if colour else _INLINE_CODE.sub(r"`` `\1` ``", text), hyperlinks=False)
        case Code():
            code = part.source.rstrip("\n")
            yield (
                Syntax(code, "python", word_wrap=True, padding=(0, 1))
                if colour
                else _WholeLines(_indented(code, "    "))
            )
            if part.shown:
                yield Text("")
                yield _WholeLines(_indented(part.shown.rstrip("\n"), "    │ "), style="dim")
        case Picture():
            yield Text.assemble((f"[{_PICTURE[language]}] ", "bold"), part.title)
            yield _WholeLines(f"    {part.path}", style="dim")


def _entry(title: str, name: str, question: str) -> Text:
    return Text.assemble((title, "bold"), (f"  {name}\n", "dim"), question)


def _indented(text: str, margin: str) -> str:
    return "\n".join(f"{margin}{line}".rstrip() for line in text.split("\n"))


def _console(width: int, colour: bool) -> Console:
    """A console that writes to a string, in 256 colours or in none."""
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
    """What was printed, without the spaces and empty lines at ends."""
    assert isinstance(console.file, io.StringIO)  # `_console` made it
    lines = [line.rstrip() for line in console.file.getvalue().split("\n")]
    return "\n".join(lines).strip("\n") + "\n"
