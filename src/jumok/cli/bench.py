"""`jumok bench`: the speed of this machine, and of training and generation on it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.config import SIZES
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.training.trainer import Trainer

CHARS = 300_000  # of stories to train on
STEPS = 20  # that are timed, after WARM_UP others
WARM_UP = 3
TOKENS = 200  # of each generated text
TEXTS = 3  # that are timed


@click.command(
    cls=Verb,
    short_help="Measure the speed of this machine.",
    examples="""
    jumok bench
    jumok bench --size nano --json
    """,
)
@option("--size", default="micro", help=f"model size: {', '.join(SIZES)} [micro, the default of jumok train]")
@common()
def bench(size: str, device: str, as_json: bool, quiet: bool) -> None:
    """Measure the speed of matrix products, memory reads, training steps and generation, in less than a minute.

    Training uses the defaults of `jumok train`, without compilation. Each speed is a median.
    """
    from jumok.cli.console.tables import show_figures
    from jumok.device import choose_device, measure_machine

    say(tr("measuring the machine"), quiet=quiet)
    figures = measure_machine(choose_device(device))
    say(tr("measuring training and generation"), quiet=quiet)
    with _started(size, device) as trainer:
        figures |= {
            "size": size,
            "parameters": trainer.model.parameter_count(),
            "context_length": trainer.model.config.context_length,
            "batch_size": trainer.config.batch_size,
            "precision": trainer.config.precision,
            "train_tokens_per_second": trainer.task.tokens_per_batch / _seconds_per_step(trainer),
            "generate_tokens_per_second": _tokens_generated_per_second(trainer.model),
        }
    if as_json:
        print_json(figures)
    else:
        emulated = {} if figures["bfloat16_gflops"] else {"bfloat16_gflops": tr("emulated, not measured")}
        show_figures(figures | emulated)


@contextmanager
def _started(size: str, device: str) -> Iterator[Trainer]:
    """Start a run without validation and samples, in a folder that is removed afterwards."""
    from tempfile import TemporaryDirectory

    from jumok.corpora import stories
    from jumok.text import from_string
    from jumok.training.trainer import Trainer

    text = from_string("".join(stories.write(CHARS)), name="stories")
    settings: dict[str, Any] = {
        "steps": WARM_UP + STEPS,
        "val": 0.0,
        "sample_tokens": 0,
        "save_every": 1e9,
        "compile": "off",
    }
    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        trainer = Trainer.start(Path(folder) / "run", text, size=size, device=device, **settings)
        try:
            yield trainer
        finally:
            trainer.close()


def _seconds_per_step(trainer: Trainer) -> float:
    from time import perf_counter

    from jumok.runs.events import Step

    times = [perf_counter() for event in trainer.run() if isinstance(event, Step)]
    return statistics.median(
        after - before for before, after in zip(times[WARM_UP:], times[WARM_UP + 1 :], strict=False)
    )


def _tokens_generated_per_second(model: Any) -> float:
    from time import perf_counter

    from jumok.inference.generate import generate

    speeds = []
    for seed in range(1 + TEXTS):  # the first one packs the parameters and does not count
        began = perf_counter()
        [text] = generate(model, "", tokens=min(TOKENS, model.config.context_length - 1), seed=seed)
        speeds.append(text.tokens / (perf_counter() - began))
    return statistics.median(speeds[1:])
