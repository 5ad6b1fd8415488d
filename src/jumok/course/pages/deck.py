"""A chapter as slides in Markdown, for Marp (https://marp.app): a draft to edit, with the whole text as speaker notes.

A section becomes a slide with the first sentence of each of its paragraphs, its lists and tables. Each block of code
with its output, each picture and each question has a slide of its own, and the answer to a question is on the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from jumok.course.pages.chapter import Chapter, Code, Picture, Prose, Question, offline
from jumok.course.pages.html import blocks, data_url

_HEADING = re.compile(r"#+ +(?:\d+\. )?(.+)")
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<! al)[.?!][*_’”\")\]]*\s+(?=[^a-z0-9\s])")


def deck(chapter: Chapter) -> str:
    """Return the slides of a chapter as Markdown, with its pictures inside and the notes in comments.

    Raises:
        LessonError: a picture is missing.
    """
    heading = f"{chapter.number}. {chapter.title}"
    head = f"---\nmarp: true\nlang: {chapter.language}\npaginate: true\ntitle: {heading}\n---\n\n"
    first = f"# {chapter.title}\n\n{chapter.question}".rstrip()
    return head + "\n\n---\n\n".join([first, *_slides(chapter)]) + "\n"


def _slides(chapter: Chapter) -> Iterator[str]:
    title = chapter.title
    for part in chapter.parts():
        match part:
            case Prose():
                shown: list[str] = []
                told: list[str] = []
                for block in blocks(offline(part.text)):
                    if block.kind == "heading":
                        if shown:
                            yield _slide(title, shown, told)
                        shown, told = [], []
                        title = found[1] if (found := _HEADING.fullmatch(block.text)) else block.text
                    elif block.kind == "paragraph":
                        shown.append(f"- {first_sentence(block.text)}")
                        told.append(block.text)
                    else:
                        shown.append(block.text)
                if shown:
                    yield _slide(title, shown, told)
            case Code():
                output = [f"```text\n{part.shown.rstrip()}\n```"] if part.shown else []
                yield _slide(title, [f"```python\n{part.source.rstrip()}\n```", *output])
            case Picture():
                yield _slide(title, [f"![{part.title} h:440]({data_url(part.path)})"])
            case Question():
                question = unescape(re.sub(r"</?code>", "`", part.question))
                answer = offline(part.answer)
                yield _slide(title, [question], [answer])
                yield _slide(title, [question, answer])


def first_sentence(paragraph: str) -> str:
    """Return the first sentence of a paragraph."""
    text = " ".join(paragraph.split())
    end = _SENTENCE_END.search(text)
    return text[: end.end()].rstrip() if end else text


def _slide(title: str, shown: list[str], told: list[str] | None = None) -> str:
    """Return a slide. told: its notes; a comment ends at two hyphens."""
    notes = ["<!--\n" + "\n\n".join(told).replace("--", "- -") + "\n-->"] if told else []
    return "\n\n".join([f"## {title}", *shown, *notes])
