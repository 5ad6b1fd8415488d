"""`jumok learn ladder`: train ten models on a text, each with more components than the one before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.console.output import plain_floats, print_json, say
from jumok.cli.interrupts import INTERRUPTED, stopping
from jumok.cli.material import read_texts, stories_text
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.lessons.chapters import Language
    from jumok.lessons.ladder.run import LadderFinished


def run_ladder(
    texts: tuple[str, ...],
    *,
    out: Path | None,
    minutes_per_rung: float | None,
    steps_per_rung: int | None,
    language: Language,
    reading: Mapping[str, Any],
    seed: int | None,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train the rungs of the ladder that are not finished yet.

    Args:
        texts: files, folders, or - for stdin; none: the built-in stories.
        reading: encoding and column, or None for each.
        out: folder; None: runs/ladder, or runs/ladder-N, the first that is free or holds the same ladder.
        minutes_per_rung, steps_per_rung: one of the two, the other None.
    """
    from jumok.cli.console.ladder import LadderView, show_ladder
    from jumok.lessons.ladder.results import command_of
    from jumok.lessons.ladder.run import Ladder, LadderFinished, default_folder
    from jumok.lessons.ladder.rungs import LadderConfig

    config = LadderConfig(minutes_per_rung=minutes_per_rung, steps_per_rung=steps_per_rung, seed=seed or 0)
    text = read_texts(texts, reading) if texts else stories_text()
    out = out or default_folder(text, config)
    ladder = Ladder(text, out, config, language=language, device=device, asked=texts)
    say(text.describe(), quiet=quiet)
    with LadderView(language, quiet=quiet) as view, stopping(ladder, view.say):
        for event in ladder.run():
            view.show(event)
    assert isinstance(event, LadderFinished)
    interrupted = event.reason == "interrupted"
    if interrupted:
        say(tr("Stopped. The training state and the finished models are saved. Continue with:"))
        given = {"out": str(out), "lang": language, **reading, "device": None if device == "auto" else device}
        options = [word for name, value in given.items() if value is not None for word in (f"--{name}", value)]
        say(f"  {command_of(texts, config, *options)}")
    elif not as_json:
        say("", quiet=quiet)
        show_ladder(event.record, language)
    for path in event.outputs:
        say(f"  {path}", quiet=quiet or interrupted)
    if as_json:
        print_json(_summary(event))
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _summary(event: LadderFinished) -> dict[str, Any]:
    """The object of --json: the figures of each finished rung, and the files."""
    figures = ("slug", "parameters", "nats_per_char", "tokens_per_second", "steps", "tokens", "seconds")
    rungs = [plain_floats({name: getattr(result, name) for name in figures}) for result in event.record.results]
    return {
        "ladder": str(event.out),
        "reason": event.reason,
        "floor": event.record.floor,
        "rungs": rungs,
        "files": [str(path) for path in event.outputs],
    }
