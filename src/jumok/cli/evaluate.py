"""`jumok evaluate`: how well a model predicts a text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from jumok.cli._verbs import Verb, common, option, plain_floats, print_json, read_texts, say


@click.command(
    cls=Verb,
    examples="""
    jumok evaluate runs/novel other.txt
    jumok evaluate runs/novel reviews.tsv --column document --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@option("--encoding", help="of the text files [found out]")
@option("--column", help="of .csv, .tsv and .jsonl files [text]")
@common()
def evaluate(
    run: Path, texts: tuple[str, ...], encoding: str | None, column: str | None, device: str, as_json: bool, quiet: bool
) -> None:
    """How well a model predicts a text: each character once, with what came before it as context.

    Figures per character and per byte compare across tokenizers; those per token do not.
    """
    from jumok import checkpoint
    from jumok import device as devices
    from jumok.console import show_figures
    from jumok.evaluate import evaluate as measure

    text = read_texts(texts, {"encoding": encoding, "column": column})
    say(text.describe(), quiet=quiet)
    model = checkpoint.load(run, str(devices.choose_device(device)))
    figures = dataclasses.asdict(measure(model, text))
    if as_json:
        print_json(plain_floats(figures))
    else:
        show_figures(figures)
