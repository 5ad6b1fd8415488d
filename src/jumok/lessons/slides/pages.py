"""Slides as one HTML page without external resources, or as Markdown for Marp (https://marp.app)."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template

from jumok.lessons.chapters import Chapter, Code, Picture, Prose
from jumok.lessons.markup import code_html, data_url, html_of, image_html, inline_html
from jumok.lessons.practice.course import Words
from jumok.lessons.slides.deck import Item, Slide, is_tall, slides

_WORDS: Mapping[str, Words] = {
    "keys": Words(
        "←/→ 이동 · n 노트 · d 밝기 · f 전체 화면 · 인쇄하면 PDF",
        "←/→ move · n notes · d dark or light · f full screen · print for a PDF",
    ),
    "notes": Words("노트", "Notes"),
    "answer": Words("답", "Answer"),
    "chapter": Words("{number}장", "Chapter {number}"),
}


def page(chapter: Chapter) -> str:
    """The slides of a chapter as HTML, with pictures, styles and script inside.

    Raises:
        LessonError: a picture is missing.
    """
    deck = slides(chapter)
    words = {key: escape(text.said(chapter.language)) for key, text in _WORDS.items()}
    number = escape(_WORDS["chapter"].said(chapter.language, number=chapter.number))
    sections = [_section(slide, at, len(deck), number, words) for at, slide in enumerate(deck, 1)]
    return Template(_asset("slides.html")).substitute(
        language=chapter.language,
        title=escape(f"{chapter.number}. {chapter.title}"),
        style=_asset("slides.css"),
        script=_asset("slides.js"),
        slides="\n".join(sections),
        keys=words["keys"],
    )


def marp(chapter: Chapter) -> str:
    """The same slides as Markdown for Marp, with the notes in comments."""
    head = (
        f"---\nmarp: true\nlang: {chapter.language}\npaginate: true\ntitle: {chapter.number}. {chapter.title}\n---\n\n"
    )
    return head + "\n---\n\n".join(_marp_slide(slide) for slide in slides(chapter))


def _section(slide: Slide, at: int, count: int, number: str, words: Mapping[str, str]) -> str:
    heading = "h1" if slide.kind == "title" else "h2"
    items = [_html(item) for item in slide.items]
    if slide.kind == "answer":
        items.insert(1, f'<p class="label">{words["answer"]}</p>')
    above = f'<p class="number">{number}</p>\n' if slide.kind == "title" else ""
    tall = any(isinstance(item, Picture) and is_tall(item.path) for item in slide.items)
    kind = f"{slide.kind} tall" if tall else slide.kind
    return (
        f'<section class="slide {kind}" id="{at}">\n{above}<{heading}>{inline_html(slide.title)}</{heading}>\n'
        f'<div class="body">\n{"".join(items)}\n</div>\n<p class="page">{number} · {at}/{count}</p>\n'
        f'<aside class="notes" aria-label="{words["notes"]}">\n{html_of(slide.notes)}</aside>\n</section>'
    )


def _html(item: Item) -> str:
    match item:
        case Prose():
            return html_of(item.text)
        case Code():
            output = f'<pre class="output"><samp>{escape(item.shown.rstrip())}</samp></pre>' if item.shown else ""
            return code_html(item.source) + output
        case Picture():
            return image_html(item.path, item.title)


def _marp_slide(slide: Slide) -> str:
    parts = [f"{'#' if slide.kind == 'title' else '##'} {slide.title}", *map(_markdown, slide.items)]
    if slide.notes:
        parts.append("<!--\n" + slide.notes.replace("--", "- -") + "\n-->")  # a comment ends at two hyphens
    return "\n\n".join(parts) + "\n"


def _markdown(item: Item) -> str:
    match item:
        case Prose():
            return item.text
        case Code():
            output = f"\n\n```text\n{item.shown.rstrip()}\n```" if item.shown else ""
            return f"```python\n{item.source.rstrip()}\n```{output}"
        case Picture():
            return f"![{item.title}]({data_url(item.path)})"


def _asset(name: str) -> str:
    return resources.files("jumok.lessons.slides").joinpath(name).read_text(encoding="utf-8")
