"""Markdown as HTML without external resources, for pages that are printed or shown.

`markdown_it` and `pygments` come with rich, which also uses them for Markdown and code.
"""

from __future__ import annotations

import base64
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from jumok.errors import LessonError

IMAGES = {".png": "image/png", ".svg": "image/svg+xml"}


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
    """A picture inside the page."""
    return f'<img src="{data_url(path)}" alt="{escape(title)}">'


def data_url(path: Path) -> str:
    """A PNG or SVG as a data URL."""
    return "data:{};base64,{}".format(*encoded(path))


def encoded(path: Path) -> tuple[str, str]:
    """The media type of a PNG or SVG, and its content in base64.

    Raises:
        LessonError: the picture cannot be read.
    """
    try:
        content = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError as error:
        raise LessonError(
            "the picture {path} cannot be read: {reason}. Install jumok again.", path=path, reason=error.strerror
        ) from None
    return IMAGES[path.suffix], content


def blocks(markdown: str) -> list[Block]:
    """The paragraphs, lists, tables, fences and headings of a text, in order."""
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
