"""`jumok learn slides CHAPTER`: a chapter as slides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.learn.chapter import LANGUAGE, described
from jumok.messages import tr, users_language

if TYPE_CHECKING:
    from jumok.lessons.chapters import Language


@click.command(
    cls=Verb,
    short_help="Write a chapter as slides.",
    examples="""
    jumok learn slides 3
    jumok learn slides causal-mask --lang en --out mask.html
    jumok learn slides 3 --marp --out 3.md
    """,
)
@click.argument("lesson", metavar="CHAPTER")
@option("--out", type=click.Path(path_type=Path), help="file to write [NUMBER-NAME.html]")
@option("--marp", is_flag=True, help="Markdown for Marp instead of HTML")
@option("--force", is_flag=True, help="overwrite an existing file")
@LANGUAGE
@common(device=False)
def slides(
    lesson: str, out: Path | None, marp: bool, force: bool, language: Language | None, as_json: bool, quiet: bool
) -> None:
    """Write a chapter as slides in one HTML file that works without a network. CHAPTER is its number or name.

    Paragraphs are shortened; their full text is in the notes, which the key n shows. The answer to a question is on the
    slide after it. Arrow keys or swipes change the slide, and printing makes a PDF.
    """
    from jumok.lessons.chapters import chapter
    from jumok.lessons.new_files import write_new
    from jumok.lessons.slides import pages

    found = chapter(lesson, language or users_language())
    path = out or Path(f"{found.path.stem}.{'md' if marp else 'html'}")
    write_new(path, (pages.marp if marp else pages.page)(found), force=force)
    say(tr("Wrote {path}.", path=path), quiet=quiet)
    if as_json:
        print_json({**described(found), "slides": str(path)})
