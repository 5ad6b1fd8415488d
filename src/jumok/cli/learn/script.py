"""`jumok learn script`: a complete GPT in one file of plain PyTorch."""

from __future__ import annotations

from importlib import resources

import click

from jumok.cli.commands import Verb, common
from jumok.cli.console.output import print_json


@click.command(
    cls=Verb,
    short_help="Print a complete GPT in one file of plain PyTorch.",
    examples="""
    jumok learn script > gpt.py
    python gpt.py novel.txt --minutes 5
    """,
)
@common(device=False)
def script(as_json: bool, quiet: bool) -> None:
    """Print a complete character GPT in plain PyTorch: data, attention, blocks, training and writing in 200 lines.

    The file needs nothing but PyTorch. With the same parameters it computes what the classic GPT of jumok computes.
    """
    source = resources.files("jumok.course").joinpath("gpt_script.py").read_text(encoding="utf-8")
    if as_json:
        print_json({"script": source})
    else:
        click.echo(source, nl=False)
