"""Chapters and other Markdown as HTML that needs no network: code, output, pictures and interactive pieces are inside.

`markdown_it` and `pygments` come with rich, which also uses them for Markdown and code.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from jumok.course.pages.chapter import Chapter, Code, Part, Picture, Prose, Question, offline
from jumok.errors import LessonError
from jumok.view.bundle import packaged, script
from jumok.view.page import HTMLFile

IMAGES = {".png": "image/png", ".svg": "image/svg+xml"}
PIECES = "view/assets/chapters/site.js"  # in the package
STYLES = ("view/assets/chapters/drawing.css", "view/assets/chapters/pieces.css")
_PIECE = re.compile(r"try-(\w+)\.svg")


class ChapterPage(HTMLFile):
    """The page of a chapter. A browser prints it as a PDF, with the pictures of the pieces in their place."""

    def __init__(self, chapter: Chapter) -> None:
        number = "" if chapter.number is None else f"{chapter.number}. "
        super().__init__(f"{number}{chapter.title}")
        self._chapter = chapter

    @property
    def html(self) -> str:
        """The whole file.

        Raises:
            LessonError: a picture is missing.
        """
        parts = self._chapter.parts()
        has_pieces = any(isinstance(part, Picture) and _PIECE.fullmatch(part.path.name) for part in parts)
        return Template(resources.files(__package__).joinpath("chapter.html").read_text(encoding="utf-8")).substitute(
            language=self._chapter.language,
            title=escape(self.title),
            colours=HtmlFormatter(style="default").get_style_defs(".code"),
            pieces="".join(map(packaged, STYLES)) if has_pieces else "",
            body="\n".join(_html(parts)),
            script=f"<script>{script(PIECES)}</script>" if has_pieces else "",
        )


def _html(parts: list[Part]) -> Iterator[str]:
    """Yield the parts of a chapter as HTML."""
    for part in parts:
        match part:
            case Prose():
                yield html_of(offline(part.text))
            case Code():
                yield code_html(part.source)
                if part.shown:
                    yield f'<pre class="output"><samp>{escape(part.shown.rstrip())}</samp></pre>'
            case Picture():
                piece = _PIECE.fullmatch(part.path.name)
                begin = f'<div class="jumok-piece" data-piece="{piece[1]}">' if piece else "<div>"
                yield f"{begin}<p>{image_html(part.path, part.title)}</p></div>"
            case Question():
                answer = html_of(offline(part.answer))
                yield f"<details><summary>{part.question}</summary>\n{answer}</details>"


class Block(NamedTuple):
    """A block of Markdown: its type as markdown_it names it, its text, and the texts of the items of a list."""

    kind: str
    text: str
    items: list[str]


def html_of(markdown: str) -> str:
    """Markdown (CommonMark and tables) as HTML. HTML in the text is escaped."""
    rendered: str = _parser().render(markdown)
    return rendered


def code_html(source: str) -> str:
    """Python code as HTML, its tokens in spans with the classes of pygments."""
    rendered: str = highlight(source.strip("\n"), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    return f'<pre class="code"><code>{rendered.rstrip()}</code></pre>'


def image_html(path: Path, title: str) -> str:
    """Return a picture inside the page."""
    return f'<img src="{data_url(path)}" alt="{escape(title)}">'


def data_url(path: Path) -> str:
    """Return a PNG or SVG as a data URL."""
    return "data:{};base64,{}".format(*encoded(path))


def encoded(path: Path) -> tuple[str, str]:
    """Return the media type of a PNG or SVG, and its content in base64.

    Raises:
        LessonError: the picture cannot be read.
    """
    try:
        content = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise LessonError(
            "the picture {path} cannot be read: {reason}. Install jumok again.", path=path, reason=error
        ) from None
    return IMAGES[path.suffix], content


def blocks(markdown: str) -> list[Block]:
    """Return the paragraphs, lists, tables, fences and headings of a text, in order."""
    lines = markdown.split("\n")
    found: list[Block] = []
    for token in _parser().parse(markdown):
        if token.map is None or token.nesting < 0:
            continue
        text = "\n".join(lines[slice(*token.map)]).strip("\n")
        if token.level == 0:
            found.append(Block(token.type.removesuffix("_open"), text, []))
        elif token.type == "list_item_open" and token.level == 1:
            found[-1].items.append(text)
    return found


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
