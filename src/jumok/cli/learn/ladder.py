"""`jumok learn ladder`: train a series of models on a text, each with another component than the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from jumok.cli.commands import PATH, Verb, common, option, reading
from jumok.cli.console.output import print_json, say
from jumok.cli.interrupts import INTERRUPTED, stopping
from jumok.cli.learn.chapter import LANGUAGE, described, read
from jumok.cli.material import READING, read_texts, stories_text
from jumok.cli.process import sleep_where_busy
from jumok.files import on_disk
from jumok.messages import tr, users_language

if TYPE_CHECKING:
    from jumok.course.ladder.run import LadderFinished
    from jumok.course.words import Language


MINUTES_PER_RUNG = 1.0


@click.command(
    cls=Verb,
    short_help="Train a series of models on a text, from a bigram to GPT.",
    examples="""
    jumok learn ladder
    jumok learn ladder novel.txt --minutes-per-rung 2 --out runs/ladder
    """,
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@LANGUAGE
@option("--out", type=PATH, help="folder for the runs and the pictures")
@option("--minutes-per-rung", type=float, help="training time of each model in minutes [1]")
@option("--steps-per-rung", type=int, help="training length of each model in optimizer steps")
@reading()
@common(seed=True)
@click.pass_context
def ladder(
    context: click.Context,
    /,
    texts: tuple[str, ...],
    language: Language | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train the ladder: a series of small models, from a bigram model to the default GPT.

    With a TEXT, the models are trained on it. Without one, the chapter on the ladder is shown, or, if another option is
    given, the models are trained on the built-in stories.
    """
    chosen = language or users_language()
    options = ("out", "minutes_per_rung", "steps_per_rung", *READING, "seed", "device")
    if not texts and all(context.get_parameter_source(name) is not ParameterSource.COMMANDLINE for name in options):
        _show_page(chosen, as_json, quiet)
        return
    minutes, steps = flags["minutes_per_rung"], flags["steps_per_rung"]
    if minutes is None and steps is None:
        minutes = MINUTES_PER_RUNG
    how = {name: flags[name] for name in READING}
    busy = sleep_where_busy()
    from jumok.cli.console.ladder import LadderView, show_ladder
    from jumok.course.ladder.results import command_of
    from jumok.course.ladder.run import Ladder, LadderFinished, default_folder
    from jumok.course.ladder.rungs import LadderConfig

    config = LadderConfig(minutes_per_rung=minutes, steps_per_rung=steps, seed=flags["seed"] or 0)
    text = read_texts(texts, how) if texts else stories_text()
    out = flags["out"] or on_disk(default_folder(text, config))
    device = flags["device"]
    models = Ladder(text, out, config, language=chosen, device=device, asked=texts, **how)
    for note in filter(None, (busy, text.describe())):
        say(note, quiet=quiet)
    with LadderView(chosen, quiet=quiet) as view, stopping(models, view.say):
        for event in models.run():
            view.show(event)
    assert isinstance(event, LadderFinished)
    interrupted = event.reason == "interrupted"
    if interrupted:
        say(tr("Stopped. The training state and the finished models are saved. Continue with:"))
        given = {"out": str(out), "lang": chosen, **how, "device": None if device == "auto" else device}
        words = [word for name, value in given.items() if value is not None for word in (f"--{name}", value)]
        say(f"  {command_of(texts, config, *words)}")
    elif not as_json:
        say("", quiet=quiet)
        show_ladder(event.record, chosen)
    for path in event.outputs:
        say(f"  {path}", quiet=quiet or interrupted)
    if as_json:
        print_json(_summary(event))
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _show_page(language: Language, as_json: bool, quiet: bool) -> None:
    """Show the chapter on the ladder, and the command that trains it."""
    from jumok.course.pages.chapter import chapter

    page = chapter("ladder", language)
    if as_json:
        print_json({**described(page), "text": page.text})
        return
    read(page)
    say(tr("To train the ladder: jumok learn ladder TEXT"), quiet=quiet)


def _summary(event: LadderFinished) -> dict[str, Any]:
    """Return the object of --json: the figures of each finished rung, and the files."""
    figures = ("slug", "parameters", "nats_per_char", "tokens_per_second", "steps", "tokens", "seconds")
    rungs = [{name: getattr(result, name) for name in figures} for result in event.record.results]
    return {
        "ladder": str(event.out),
        "reason": event.reason,
        "floor": event.record.floor,
        "rungs": rungs,
        "files": [str(path) for path in event.outputs],
    }
