"""`jumok learn CHAPTER | slides | script`: the chapters, in a terminal, as notebooks or slides; a GPT in one file."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.messages import did_you_mean, shell, tr, users_language

if TYPE_CHECKING:
    from jumok.course.pages.chapter import Chapter
    from jumok.course.words import Language

LANGUAGE = option(
    "--lang",
    "language",
    type=click.Choice(["ko", "en"]),
    help="language [ko if JUMOK_LANG or the locale is Korean, else en]",
)


@click.command(
    cls=Verb,
    short_help="List the chapters, read one, or save it as a notebook.",
    examples="""
    jumok learn
    jumok learn 3
    jumok learn queries-keys-values --lang en
    jumok learn 3 --open
    jumok learn 3 --notebook 3.ipynb
    """,
)
@click.argument("lesson", required=False, metavar="[CHAPTER]")
@LANGUAGE
@option("--open", "opens", is_flag=True, help="open the chapter as a page in a browser; it needs no network")
@option("--notebook", type=PATH, help="write the chapter to this .ipynb file")
@option("--force", is_flag=True, help="overwrite an existing file")
@common(device=False)
def chapter(
    lesson: str | None,
    language: Language | None,
    opens: bool,
    notebook: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read a chapter, from attention to GPT, with code to run. CHAPTER is its number or name.

    The word `chapter` can be left out: `jumok learn 3`. Without a CHAPTER, the chapters are listed.
    """
    from jumok.course.pages.chapter import chapter as chapter_of

    chosen = language or users_language()
    if lesson is None:
        if notebook is not None or force or opens:
            raise click.UsageError(tr("name a chapter: jumok learn 3 --notebook 3.ipynb"))
        _list(chosen, as_json)
        return
    group = click.get_current_context().parent
    assert group is not None
    assert isinstance(group.command, click.Group)
    found = chapter_of(lesson, chosen, hint=did_you_mean(lesson, group.command.commands))
    if opens:
        _open(found, as_json, quiet)
    elif notebook is not None:
        _write(found, notebook, force, as_json, quiet)
    elif as_json:
        print_json({**described(found), "text": found.text})
    else:
        read(found)


@click.command(
    cls=Verb,
    short_help="Write a chapter as slides.",
    examples="""
    jumok learn slides 3
    jumok learn slides causal-mask --lang en --out mask.md
    """,
)
@click.argument("lesson", metavar="CHAPTER")
@option("--out", type=PATH, help="file to write [NUMBER-NAME.md]")
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


@click.command(
    cls=Verb,
    short_help="Print what the chapters build, as one program.",
    examples="""
    jumok learn script > gpt.py
    python gpt.py novel.txt --minutes 5
    jumok learn script 6
    jumok learn script 11 --needed
    """,
)
@click.argument("lesson", required=False, metavar="[CHAPTER]")
@option("--needed", is_flag=True, help="only the definitions that the program of the CHAPTER uses")
@common(device=False)
def script(lesson: str | None, needed: bool, as_json: bool, quiet: bool) -> None:
    """Print a complete character GPT with PyTorch and NumPy: tokenizer, attention, blocks, training and generation.

    It consists of the definitions that the chapters show, and needs no jumok. With the same parameters it computes what
    the classic GPT of jumok computes. With a CHAPTER, print all that was built up to this chapter, as a program that
    runs.
    """
    from jumok.course.pages.chapter import chapter, chapters
    from jumok.course.pages.sources import program, whole_program

    chosen = users_language()
    if lesson is None:
        source = whole_program(chosen)
    else:
        source = program(chapters(chosen), chapter(lesson, chosen), needed=needed)
    if as_json:
        print_json({"script": source})
    else:
        click.echo(source, nl=False)


def _list(language: Language, as_json: bool) -> None:
    from jumok.course.pages.chapter import chapters

    found = chapters(language)
    if as_json:
        print_json({"language": language, "chapters": [described(chapter) for chapter in found]})
        return
    from jumok.course.pages.terminal import render_list

    show(render_list(found, language, width=_width(), colour=in_colour()))


def read(chapter: Chapter) -> None:
    """Show a chapter, with a pager if it is longer than the terminal."""
    from jumok.course.pages.terminal import render

    show(render(chapter, width=_width(), colour=in_colour()))


def _write(chapter: Chapter, path: Path, force: bool, as_json: bool, quiet: bool) -> None:
    from jumok.course.pages.notebook import write_notebook

    wheel = write_notebook(chapter, path, force=force)
    say(
        tr("Wrote {path}. Open it with: {command}", path=path, command=shell("jupyter", "lab", path)),
        quiet=quiet,
    )
    if wheel is not None:
        say(tr("Where jumok is not installed, as on Colab, take {wheel} with it.", wheel=wheel), quiet=quiet)
    if as_json:
        print_json({**described(chapter), "notebook": str(path), "wheel": None if wheel is None else str(wheel)})


def _open(chapter: Chapter, as_json: bool, quiet: bool) -> None:
    """Open the page of a chapter in a browser."""
    from jumok.course.pages.html import ChapterPage

    path = ChapterPage(chapter).show()
    say(tr("Opened {path}.", path=path), quiet=quiet)
    if as_json:
        print_json({**described(chapter), "page": str(path)})


def described(chapter: Chapter) -> dict[str, Any]:
    """Return a chapter as --json has it."""
    return {
        "number": chapter.number, "slug": chapter.slug, "language": chapter.language, "title": chapter.title,
        "question": chapter.question, "minutes": chapter.minutes, "code_lines": chapter.code_lines,
        "path": str(chapter.path),
    }  # fmt: skip


def show(text: str) -> None:
    """Print a text, with a pager if stdout is a terminal and the text is longer."""
    if not (sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines):
        click.echo(text, nl=False, color=in_colour())
        return
    # less needs -R for colours, and a character set for Hangul if the locale is not installed.
    os.environ["LESS"] = f"-R {os.environ.get('LESS', '')}"
    if sys.stdout.encoding.lower() == "utf-8":
        os.environ.setdefault("LESSCHARSET", "utf-8")
    click.echo_via_pager(text, color=in_colour())


def in_colour() -> bool:
    """Return whether stdout is a terminal with colours, and the user allows them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    """Columns of the terminal (or of COLUMNS); 80 if there is none."""
    return shutil.get_terminal_size().columns
