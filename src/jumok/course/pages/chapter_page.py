"""A chapter as one HTML page that needs no network: its code, output, pictures and interactive pieces are inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from importlib import resources
from string import Template

from pygments.formatters import HtmlFormatter

from jumok.course.pages.chapter import Chapter, Code, Part, Picture, Prose, Question, offline
from jumok.course.pages.markup import code_html, html_of, image_html
from jumok.view.bundle import script
from jumok.view.page import HTMLFile, asset

PIECES = "view/assets/chapters/site.js"  # in the package
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
            pieces=asset("chapters/drawing.css") + asset("chapters/pieces.css") if has_pieces else "",
            body="\n".join(_html(parts)),
            script=f"<script>{script(PIECES)}</script>" if has_pieces else "",
        )


def _html(parts: list[Part]) -> Iterator[str]:
    """The parts of a chapter as HTML."""
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
