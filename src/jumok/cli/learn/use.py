"""`jumok learn use`: train a model with the reader's own code in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option, reading
from jumok.cli.console.output import print_json, say, write
from jumok.cli.interrupts import INTERRUPTED, stopping
from jumok.cli.learn.practice import located
from jumok.cli.material import read_texts, stories_text
from jumok.cli.process import sleep_where_busy
from jumok.files import on_disk
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.course.practice.comparison import Trained

MINUTES = 1.0


@click.command(
    cls=Verb,
    short_help="Train a model with your own attention, block or GPT in it.",
    examples="""
    jumok learn use practice/12_head.py
    jumok learn use my_gpt.py novel.txt --minutes 3
    """,
)
@click.argument("file")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@option("--minutes", type=float, help="time for both models in minutes, with preparation [1]")
@option("--steps", type=int, help="training length of both models in optimizer steps")
@option("--picture", type=PATH, help="where the curves go [FILE with the suffix .png]")
@reading()
@common(seed=True)
def use(
    file: str,
    texts: tuple[str, ...],
    minutes: float | None,
    steps: int | None,
    picture: Path | None,
    seed: int | None,
    device: str,
    as_json: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Train a small GPT with your own code in it, and the same GPT of jumok.

    FILE is an exercise or any file with one of the classes GPT, Block, MultiHeadAttention, ParallelHeads, Head and MLP,
    or with a function `attention` of q, k and v. The largest of them replaces that part of the model. Without a TEXT,
    the built-in stories are used.

    Both models take the same steps and are validated after the same ones. Your model has half of the --minutes; if that
    of jumok is slower, it takes fewer steps in the rest, and both are compared after its last one. Both curves are
    drawn in one picture, and both models write a sample. A model that sees the future is recognised.
    """
    if minutes is not None and steps is not None:
        raise click.UsageError(
            tr("{first} and {second} were both given; give one.", first="--minutes", second="--steps")
        )
    began = time.monotonic()
    busy = sleep_where_busy()
    from jumok.cli.console.comparison import ComparisonView, explain, show_models
    from jumok.course.pictures import draw_lines
    from jumok.course.practice.comparison import Comparison
    from jumok.course.practice.readers_parts import read_part

    path = named if (named := on_disk(file)).is_file() else located(file)[1]
    part = read_part(path)
    text = read_texts(texts, how) if texts else stories_text()
    replaced = tr("{file}: your {part} replaces that of jumok", file=path, part=part.name)
    for note in filter(None, (busy, replaced, text.describe())):
        say(note, quiet=quiet)
    if minutes is None and steps is None:
        minutes = MINUTES
    comparison = Comparison(part, text, minutes=minutes, steps=steps, seed=seed or 0, device=device, began=began)
    notice = tr("Ending after this step. Nothing is kept. (Ctrl-C again ends at once)")
    with ComparisonView(quiet=quiet) as view, stopping(comparison, view.say, notice):
        for which, event in comparison.run():
            view.show(which, event)
    yours, jumok = comparison.yours, comparison.jumok
    if yours is None or jumok is None:
        raise click.exceptions.Exit(INTERRUPTED)
    picture = picture or path.with_suffix(".png")
    curves = {tr("yours"): yours.curve, "jumok": jumok.curve}
    if yours.bigram is not None:
        curves[tr("bigram table")] = ([yours.curve[0][0], yours.curve[0][-1]], [yours.bigram] * 2)
    draw_lines(curves, picture, x_label=tr("steps"), y_label=tr("nats per character"), title=path.name, markers=False)
    if as_json:
        found = {"file": str(path), "part": part.name, "compared_step": comparison.compared_step}
        models = {"yours": _described(yours), "jumok": _described(jumok)}
        print_json({**found, **models, "picture": str(picture)})
        return
    models_by_name = {tr("yours"): yours, "jumok": jumok}
    show_models(models_by_name)
    for name, trained in models_by_name.items():
        write(f"\n[{name}]\n{trained.sample.strip()}")
    write("\n" + explain(comparison))
    say("\n" + tr("picture: {path}", path=picture), quiet=quiet)


def _described(trained: Trained) -> dict[str, Any]:
    names = ("parameters", "steps", "seconds", "nats_per_char", "bigram", "sample", "sees_future")
    return {name: getattr(trained, name) for name in names}
