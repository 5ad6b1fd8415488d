"""`jumok generate`: a model writes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from jumok.cli._verbs import Verb, common, option, print_json


@click.command(
    cls=Verb,
    examples="""
    jumok generate runs/novel --prompt "그날 밤" --tokens 300
    jumok generate runs/novel --samples 3 --temperature 1.0 --top-p 0.9 --seed 7
    jumok generate runs/novel --prompt "옛날" --stop "." --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@option("--prompt", default="", help="text to continue [none: from the beginning of a line]")
@option("--tokens", default=200, show_default=True, help="most tokens to write")
@option("--temperature", default=0.8, show_default=True, help="0: always the likeliest token")
@option("--top-k", type=int, help="choose among the k likeliest")
@option("--top-p", type=float, default=1.0, help="choose among the likeliest that make up p")
@option("--min-p", type=float, default=0.0, help="choose among those at least min-p times as likely as the likeliest")
@option("--repetition-penalty", type=float, default=1.0, help="above 1: makes tokens that were there less likely")
@option("--samples", default=1, show_default=True, help="how many continuations")
@option("--stop", multiple=True, help="end before this text; may be given several times")
@common(seed=True)
def generate(run: Path, device: str, seed: int | None, as_json: bool, quiet: bool, **sampling: Any) -> None:
    """Write with the model of a run folder. One sample is shown as it is written."""
    from jumok import checkpoint
    from jumok import device as devices
    from jumok.generate import generate as complete
    from jumok.generate import stream

    model = checkpoint.load(run, str(devices.choose_device(device)))
    began = time.perf_counter()
    if sampling["samples"] == 1 and not as_json:
        sampling.pop("samples")
        pieces = stream(model, seed=seed, **sampling)
        first = next(pieces, "")  # settings are checked before anything is shown
        click.echo(sampling["prompt"] + first, nl=False)
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()
        return
    completions = complete(model, seed=seed, **sampling)
    seconds = time.perf_counter() - began
    tokens = sum(c.tokens for c in completions)
    if as_json:
        print_json(
            {
                "text": completions[0].text,
                "prompt": sampling["prompt"],
                "samples": [{"text": c.text, "tokens": c.tokens, "finish": c.finish} for c in completions],
                "tokens": tokens,
                "seconds": round(seconds, 4),
                "tokens_per_second": round(tokens / seconds, 1),
                "seed": seed,
            }
        )
        return
    for number, completion in enumerate(completions, 1):
        click.echo(f"--- {number} ---\n{sampling['prompt']}{completion.text}\n")
