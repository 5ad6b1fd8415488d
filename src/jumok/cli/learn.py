"""`jumok learn`: the chapters, in a terminal or as notebooks, and the ladder."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.material import READING
from jumok.errors import ConfigError
from jumok.messages import did_you_mean, shell, tr, users_language

if TYPE_CHECKING:
    from jumok.lessons.chapters import Chapter, Language

LADDER = "ladder"
MINUTES_PER_RUNG = 1.0
# The parameters that apply to a chapter only, and to the ladder only.
OF_A_CHAPTER = ("notebook", "force")
OF_THE_LADDER = ("out", "minutes_per_rung", "steps_per_rung", *READING, "seed", "device")


@click.command(
    cls=Verb,
    short_help="Read the chapters, from attention to GPT, and train the ladder.",
    examples="""
    jumok learn
    jumok learn 3
    jumok learn queries-keys-values --lang en
    jumok learn 3 --notebook 3.ipynb
    jumok learn ladder
    jumok learn ladder novel.txt --minutes-per-rung 2 --out runs/ladder
    """,
)
@click.argument("lesson", required=False)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@option(
    "--lang",
    "language",
    type=click.Choice(["ko", "en"]),
    help="language [ko if JUMOK_LANG or the locale is Korean, else en]",
)
@option("--notebook", type=click.Path(path_type=Path), section="Chapter", help="write the chapter to this .ipynb file")
@option("--force", is_flag=True, section="Chapter", help="overwrite an existing file")
@option("--out", type=click.Path(path_type=Path), section="Ladder", help="folder for the runs and the pictures")
@option("--minutes-per-rung", type=float, section="Ladder", help="training time of each model in minutes [1]")
@option("--steps-per-rung", type=int, section="Ladder", help="training length of each model in optimizer steps")
@option("--encoding", section="Ladder", help="encoding of the text files [detected]")
@option("--column", section="Ladder", help="column of .csv, .tsv and .jsonl files [text]")
@common(seed=True)
@click.pass_context
def learn(
    context: click.Context,
    /,
    lesson: str | None,
    texts: tuple[str, ...],
    language: Language | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Read the eleven chapters, from attention to GPT, each with code to run, or train the ladder.

    LESSON is the number or the name of a chapter, or `ladder`. Without a LESSON the chapters are listed.

    The ladder is a series of small models, each with more components than the one before. `ladder` with a TEXT
    trains them on it. Without a TEXT it shows the page on the ladder, or, if an option of the ladder is given, trains
    them on the built-in stories.
    """
    chosen = language or users_language()
    if lesson == LADDER:
        _refuse(context, OF_A_CHAPTER, tr("it is an option of the chapters: jumok learn 3 --notebook 3.ipynb"))
        if texts or _given(context, OF_THE_LADDER):
            _train_ladder(texts, chosen, as_json, quiet, flags)
        else:
            _show_ladder_page(chosen, as_json, quiet)
        return
    _refuse(context, OF_THE_LADDER, tr("it is an option of the ladder: jumok learn ladder TEXT"))
    if lesson is None:
        _refuse(context, OF_A_CHAPTER, tr("name a chapter: jumok learn 3 --notebook 3.ipynb"))
        _list(chosen, as_json)
        return
    chapter = _chapter(lesson, chosen)
    if texts:
        raise click.UsageError(
            tr(
                "a chapter takes no text (given: {texts}). To train on it: {command}",
                texts=" ".join(texts),
                command=shell("jumok", "learn", "ladder", *texts),
            )
        )
    if flags["notebook"] is not None:
        _write(chapter, flags["notebook"], flags["force"], as_json, quiet)
    elif as_json:
        print_json({**_described(chapter), "text": chapter.text})
    else:
        _read(chapter)


def _train_ladder(
    texts: tuple[str, ...], language: Language, as_json: bool, quiet: bool, flags: dict[str, Any]
) -> None:
    """Train the ladder."""
    minutes, steps = flags["minutes_per_rung"], flags["steps_per_rung"]
    if minutes is not None and steps is not None:
        raise click.UsageError(tr("--minutes-per-rung and --steps-per-rung were both given; give one."))
    from jumok.cli.ladder import run_ladder

    run_ladder(
        texts,
        out=flags["out"],
        minutes_per_rung=minutes if minutes is not None or steps is not None else MINUTES_PER_RUNG,
        steps_per_rung=steps,
        language=language,
        reading={name: flags[name] for name in READING},
        seed=flags["seed"],
        device=flags["device"],
        as_json=as_json,
        quiet=quiet,
    )


def _show_ladder_page(language: Language, as_json: bool, quiet: bool) -> None:
    """Show the page on the ladder, and the command that trains it."""
    from jumok.lessons.chapters import ladder_page

    page = ladder_page(language)
    if as_json:
        print_json({**_described(page), "text": page.text})
        return
    _read(page)
    say(tr("To train the ladder: jumok learn ladder TEXT"), quiet=quiet)


def _list(language: Language, as_json: bool) -> None:
    from jumok.lessons.chapters import chapters

    found = chapters(language)
    if as_json:
        print_json({"language": language, "chapters": [_described(chapter) for chapter in found], "ladder": LADDER})
        return
    from jumok.lessons.terminal import render_list

    _show(render_list(found, language, width=_width(), colour=_in_colour()))


def _read(chapter: Chapter) -> None:
    from jumok.lessons.terminal import render

    _show(render(chapter, width=_width(), colour=_in_colour()))


def _write(chapter: Chapter, path: Path, force: bool, as_json: bool, quiet: bool) -> None:
    from jumok.lessons.notebook import write_notebook

    write_notebook(chapter, path, force=force)
    say(
        tr("Wrote {path}. Open it with: {command}", path=path, command=shell("jupyter", "lab", path)),
        quiet=quiet,
    )
    if as_json:
        print_json({**_described(chapter), "notebook": str(path)})


def _chapter(lesson: str, language: Language) -> Chapter:
    """The chapter that was asked for.

    Raises:
        ConfigError: there is none; the message also mentions the ladder where that may be meant.
    """
    from jumok.lessons.chapters import chapter

    try:
        return chapter(lesson, language)
    except ConfigError as error:
        hint = did_you_mean(lesson, [LADDER])
        if Path(lesson).exists():
            hint = tr(" To train on that text: {command}", command=shell("jumok", "learn", "ladder", lesson))
        raise ConfigError("{error}{hint}", error=error, hint=hint) from None


def _described(chapter: Chapter) -> dict[str, Any]:
    """A chapter as --json has it."""
    return {
        "number": chapter.number, "slug": chapter.slug, "language": chapter.language, "title": chapter.title,
        "question": chapter.question, "path": str(chapter.path),
    }  # fmt: skip


def _refuse(context: click.Context, names: tuple[str, ...], reason: str) -> None:
    """Raise UsageError if one of these parameters was given, because it would have no effect."""
    for flag in _given(context, names):
        raise click.UsageError(tr("{flag} cannot be used here: {reason}", flag=flag, reason=reason), context)


def _given(context: click.Context, names: tuple[str, ...]) -> list[str]:
    """The options, such as --out, of those of the parameters that the command line gave."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def _show(text: str) -> None:
    """Print a text, with a pager if stdout is a terminal and the text is longer."""
    if not (sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines):
        click.echo(text, nl=False, color=_in_colour())
        return
    # less needs -R for colours, and a character set for Hangul if the locale is not installed.
    os.environ["LESS"] = f"-R {os.environ.get('LESS', '')}"
    if sys.stdout.encoding.lower() == "utf-8":
        os.environ.setdefault("LESSCHARSET", "utf-8")
    click.echo_via_pager(text, color=_in_colour())


def _in_colour() -> bool:
    """Whether stdout is a terminal with colours, and the user allows them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    """Columns of the terminal (or of COLUMNS); 80 if there is none."""
    return shutil.get_terminal_size().columns
