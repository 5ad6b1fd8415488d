"""`jumok bench`: how fast this machine is, and jumok on it."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from jumok.cli._verbs import Verb, common, option, plain_floats, print_json, say
from jumok.config import SIZES


@click.command(
    cls=Verb,
    short_help="Measure how fast this machine is.",
    examples="""
    jumok bench
    jumok bench --size nano --rounds 5 --json
    """,
)
@option("--size", default="micro", help=f"of the model: {', '.join(SIZES)} [micro, as jumok train has it]")
@option("--rounds", type=click.IntRange(min=1), default=3, help="times that each side takes its turn [3]")
@common()
def bench(size: str, rounds: int, device: str, as_json: bool, quiet: bool) -> None:
    """How fast this machine is, and how fast a model trains and writes on it, in less than a minute.

    Where stock `transformers` is installed it does the same with the same weights, in turns with jumok; the ratios are
    medians over the rounds.
    """
    from jumok.cli import benchmark as speed
    from jumok.cli.console import show_bench

    found = speed.bench(size=size, device=device, rounds=rounds, report=lambda text: say(f"{text} ...", quiet=quiet))
    if as_json:
        print_json(_plain(dataclasses.asdict(found)))
    else:
        show_bench(found)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Short numbers, also further inside; a spread becomes {"median", "low", "high"}."""
    return plain_floats(
        {
            key: _plain(value)
            if isinstance(value, dict)
            else _plain(value._asdict())
            if hasattr(value, "_asdict")
            else value
            for key, value in values.items()
        },
        digits=3,
    )
