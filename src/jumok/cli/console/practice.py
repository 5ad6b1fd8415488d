"""The exercises in a terminal: the course with its progress, a verdict, code."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text as Line

from jumok.course.practice.catalogue import Exercise, exercises
from jumok.course.practice.folder import Practice
from jumok.course.practice.map import place_of
from jumok.course.practice.sandbox import Verdict
from jumok.course.words import Language
from jumok.messages import tr
from jumok.text import with_signs


def show_course(course: Practice, language: Language) -> None:
    """Print the exercises: the number, whether it is done, the title, the chapter, the part that it builds."""
    table = Table(box=None, pad_edge=False)
    for heading, justify in (
        (tr("No."), "right"), ("", "left"), (tr("Exercise"), "left"), (tr("Chapter"), "right"), (tr("Builds"), "left")
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for one in exercises():
        entry = course.progress[one.slug]
        mark = Line("✓", "green") if entry.right else Line("…" if entry.attempts else "", "yellow")
        table.add_row(str(one.number), mark, one.title.said(language), str(one.chapter), place_of(one).said(language))
    console = _console()
    console.print(table)
    done = sum(entry.right for entry in course.progress.values())
    console.print(tr("{done} of {count} done", done=done, count=len(exercises())))


def show_verdict(one: Exercise, path: Path, verdict: Verdict, language: Language, *, short: bool = False) -> None:
    """Print what is right and what is not. short: a line for an exercise that is right."""
    console = _console()
    console.print(Line.assemble((f"{one.number:2d} {one.title.said(language)}", "bold"), (f"  {path}", "dim")))
    if not (short and verdict.status == "right"):
        for words in verdict.right:
            console.print(_item(Line("✓", "green"), words.said(language)))
    for fault in verdict.faults:
        place = tr("line {line}: ", line=fault.line) if fault.line else ""
        console.print(_item(Line("✗", "bold red"), place + fault.words.said(language)))
    if verdict.printed:
        console.print(Line("  " + tr("Your code printed:"), "dim"))
        console.print(_item(Line(" "), verdict.printed, "dim"))
    if verdict.status == "right":
        console.print(Line("  " + tr("All right."), "green"))


def show_code(source: str) -> None:
    """Print Python code, in colour in a terminal."""
    if sys.stdout.isatty():
        _console().print(Syntax(source, "python", word_wrap=True))
    else:
        click.echo(source, nl=False)


def with_signs_kept(text: str) -> str:
    """Return the text with signs for control characters, and its line breaks."""
    return "\n".join(with_signs(line) for line in text.split("\n"))


def _item(mark: Line, text: str, style: str = "") -> RenderableType:
    """Return a text beside its mark. A terminal breaks its lines between words; in a file or a pipe they stay whole."""
    text = with_signs_kept(text)
    if not sys.stdout.isatty():
        return Line.assemble("  ", mark, " ", (text.replace("\n", "\n    "), style))
    grid = Table.grid(padding=(0, 1, 0, 0), pad_edge=True)
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_row(Line.assemble("  ", mark), Line(text, style))
    return grid


def _console() -> Console:
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())
