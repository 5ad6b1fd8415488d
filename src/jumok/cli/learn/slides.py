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
    from jumok.course.words import Language


@click.command(
    cls=Verb,
    short_help="Write a chapter as slides.",
    examples="""
    jumok learn slides 3
    jumok learn slides causal-mask --lang en --out mask.md
    """,
)
@click.argument("lesson", metavar="CHAPTER")
@option("--out", type=click.Path(path_type=Path), help="file to write [NUMBER-NAME.md]")
@option("--force", is_flag=True, help="overwrite an existing file")
@LANGUAGE
@common(device=False)
def slides(lesson: str, out: Path | None, force: bool, language: Language | None, as_json: bool, quiet: bool) -> None:
    """Write a chapter as slides in Markdown for Marp (https://marp.app). CHAPTER is its number or name.

    Paragraphs are shortened; their full text is in the speaker notes. The answer to a question is on the slide after
    it.
    """
    from jumok.course.pages.chapter import chapter, write_new
    from jumok.course.pages.deck import deck

    found = chapter(lesson, language or users_language())
    path = out or Path(f"{found.path.stem}.md")
    write_new(path, deck(found), force=force)
    say(tr("Wrote {path}.", path=path), quiet=quiet)
    if as_json:
        print_json({**described(found), "slides": str(path)})
