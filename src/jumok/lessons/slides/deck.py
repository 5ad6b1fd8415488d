"""From a chapter to slides.

A section becomes one slide, or several if it is long. A paragraph is reduced to its first sentences and becomes an
item of a list; its full text goes to the notes. Lists, tables, code, output and pictures stay. Each question has a
slide, and its answer is on the next one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Literal

from rich.cells import cell_len

from jumok.lessons.chapters import Chapter, Code, Picture, Prose, Question, offline
from jumok.lessons.markup import Block, blocks

Item = Prose | Code | Picture

ROOM = 14.0  # lines of text on a slide
COLUMNS = 78  # of a line of text; a Hangul syllable takes two
CODE_COLUMNS = 96
CODE_LINE = 0.66  # height of a line of code, in lines of text
PICTURE = 9.5  # height of a picture, in lines of text
ENOUGH = 45  # columns; a shorter first sentence takes the second one with it
SHRUNK = 1.2  # times ROOM, where a text would else stand alone before its code; the page then uses smaller letters
TABLE_ROWS = 9  # on a slide

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<! al)[.?!][*_’”\")\]]*\s+(?=[^a-z0-9\s])")
_HEADING = re.compile(r"#+ +(?:\d+\. )?(.+)")
_MARKER = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")


@dataclass(frozen=True)
class Slide:
    """A slide.

    Fields:
        kind: "title" for the first slide, "answer" for a question with its answer.
        title: Markdown of one line.
        items: from top to bottom.
        notes: what the speaker may say, in Markdown.
    """

    kind: Literal["title", "section", "question", "answer"]
    title: str
    items: tuple[Item, ...]
    notes: str = ""


@dataclass(frozen=True)
class _Shown:
    """An item with its height in lines of text, and what it adds to the notes."""

    item: Item
    lines: float
    notes: str = ""


def slides(chapter: Chapter) -> list[Slide]:
    """The slides of a chapter, in order.

    Code before the first section that prints nothing prepares the rest, so it is only in the notes.
    """
    deck = [Slide("title", chapter.title, _lead(chapter))]
    title, collected = chapter.title, list[_Shown]()
    opening = True
    for part in chapter.parts():
        match part:
            case Prose():
                for block in blocks(offline(part.text)):
                    if block.kind == "heading":
                        deck += _section(title, collected)
                        heading = _HEADING.fullmatch(block.text)
                        title, collected = heading[1] if heading else block.text, []
                        opening = block.text.startswith("# ")
                    else:
                        collected += _shown(block, part.line)
            case Question():
                deck += _section(title, collected)
                collected = []
                deck += _asked(part, title)
            case Code() if opening and not part.shown:
                notes = f"```python\n{part.source}```"
                collected.append(_Shown(Prose("", part.line), 0, notes))
            case Code() if _height(part) > ROOM and part.shown:  # the output on a slide of its own
                output = f"```text\n{part.shown.rstrip()}\n```"
                code = Code(part.source, "", part.line)
                collected += [_Shown(code, _height(code)), _Shown(Prose(output, part.line), _fence_height(output))]
            case Code() | Picture():
                collected.append(_Shown(part, _height(part)))
    return [*deck, *_section(title, collected)]


def first_sentences(paragraph: str) -> str:
    """The first sentence of a paragraph, with the second one if it is short."""
    text = " ".join(paragraph.split())
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    if not ends:
        return text
    first = text[: ends[0]].rstrip()
    if cell_len(first) >= ENOUGH:
        return first
    return text[: ends[1]].rstrip() if len(ends) > 1 else text


def _lead(chapter: Chapter) -> tuple[Item, ...]:
    return (Prose(chapter.question, 1),) if chapter.question else ()


def _asked(asked: Question, section: str) -> Iterator[Slide]:
    """The question, and the question with its answer. Its notes are the answer."""
    question = Prose(unescape(re.sub(r"</?code>", "`", asked.question)), asked.line)
    answer = offline(asked.answer)
    yield Slide("question", section, (question,), answer)
    yield Slide("answer", section, (question, Prose(answer, asked.line)))


def _section(title: str, collected: list[_Shown]) -> Iterator[Slide]:
    """The slides of a section; a text that introduces code stays with it."""
    pages: list[list[_Shown]] = [[]]
    for shown in collected:
        page = pages[-1]
        room = ROOM if any(not isinstance(other.item, Prose) for other in page) else ROOM * SHRUNK
        if page and sum(other.lines for other in page) + shown.lines > room:
            brought = []
            introduces = len(page) > 1 and isinstance(page[-1].item, Prose) and shown.lines <= ROOM
            if isinstance(shown.item, Code | Picture) and introduces:
                brought = [page.pop()]
            pages.append(brought)
        pages[-1].append(shown)
    pages = [page for page in pages if page]
    for number, page in enumerate(pages, 1):
        name = title if len(pages) == 1 else f"{title} ({number}/{len(pages)})"
        items = tuple(shown.item for shown in page if not isinstance(shown.item, Prose) or shown.item.text)
        yield Slide("section", name, items, "\n\n".join(shown.notes for shown in page if shown.notes))


def _shown(block: Block, line: int) -> Iterator[_Shown]:
    """What is shown of a block of Markdown."""
    if block.kind == "paragraph":
        text = f"- {first_sentences(block.text)}"
        yield _Shown(Prose(text, line), _text_height(text), block.text)
    elif block.items:
        texts = [_MARKER.match(item) for item in block.items]
        short = [
            (marker[0].strip() if marker else "-") + " " + first_sentences(_MARKER.sub("", item))
            for marker, item in zip(texts, block.items, strict=True)
        ]
        yield _Shown(Prose("\n".join(short), line), sum(map(_text_height, short)), block.text)
    elif block.kind == "table":
        head, rule, *rows = block.text.split("\n")
        for first in range(0, len(rows), TABLE_ROWS):
            chunk = rows[first : first + TABLE_ROWS]
            height = 1.3 * sum(map(_text_height, [head, *chunk]))
            yield _Shown(Prose("\n".join([head, rule, *chunk]), line), height)
    elif block.kind == "fence":
        yield _Shown(Prose(block.text, line), _fence_height(block.text))
    else:
        yield _Shown(Prose(block.text, line), _text_height(block.text))


def _height(item: Code | Picture) -> float:
    if isinstance(item, Picture):
        return ROOM * SHRUNK if is_tall(item.path) else PICTURE  # a tall picture needs a slide of its own
    lines = [*item.source.rstrip("\n").split("\n"), *item.shown.rstrip("\n").split("\n")]
    return 1 + CODE_LINE * sum(-(-max(1, cell_len(line)) // CODE_COLUMNS) for line in lines)


def is_tall(picture: Path) -> bool:
    """Whether a PNG or SVG is higher than wide; False if it cannot be read, which the page reports."""
    try:
        content = picture.read_bytes()
    except OSError:
        return False
    if picture.suffix == ".png":
        width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))
        return bool(height > width)
    box = re.search(rb'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', content)
    return box is not None and float(box[2]) > float(box[1])


def _fence_height(fence: str) -> float:
    return 1 + CODE_LINE * (fence.count("\n") - 1)


def _text_height(text: str) -> float:
    return sum(-(-max(1, cell_len(line)) // COLUMNS) for line in text.split("\n")) + 0.3
