"""`jumok convert`: export a model to `transformers`, or import one."""

from __future__ import annotations

from pathlib import Path

import click

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.messages import tr


@click.command(
    cls=Verb,
    short_help="Export a model to transformers, or import one.",
    examples="""
    jumok convert runs/novel novel-hf --to hf
    jumok convert novel-hf runs/back --to jumok
    """,
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@option("--to", "form", type=click.Choice(["hf", "jumok"]), required=True, help="format of TARGET")
@common(device=False)
def convert(source: Path, target: Path, form: str, as_json: bool, quiet: bool) -> None:
    """Convert a run folder to a transformers model folder, or back."""
    from jumok.interop.huggingface import convert as hf
    from jumok.runs.load import load, save

    if form == "hf":
        hf.to_hf(load(source), target)
    else:
        save(hf.from_hf(source), target)
    say(tr("Wrote {path}.", path=target), quiet=quiet)
    if as_json:
        print_json({"source": str(source), "target": str(target), "to": form})
