"""What `jumok train --explain` prints: the settings that a run would have, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text as Line

from jumok.messages import tr
from jumok.training.policy import Explanation
from jumok.training.subscribers.progress import clock


def show_explanation(found: Explanation) -> None:
    """Print the model, the machine, the time per step, the choices with their reasons, and the length of the run."""
    console = Console(highlight=False, soft_wrap=True)
    names = {
        "precision": tr("precision"), "attention": tr("attention"), "compile": tr("compile"), "dropout": tr("dropout"),
    }  # fmt: skip
    _show_rows(console, _facts(found))
    console.print()
    _show_rows(console, {names[name]: f"{word}: {why}" for name, (word, why) in found.choices.items()})
    length = tr(
        "about {steps:,} steps in {clock}, {passes:.1f} passes over the text",
        steps=found.steps,
        clock=clock(found.seconds),
        passes=found.passes,
    )
    _show_rows(console, {tr("length"): length})


def _facts(found: Explanation) -> dict[str, str]:
    """Heading and line for the model, the text, the machine, its memory, and a step."""
    return {
        tr("model"): tr(
            "{model}, {parameters:,} parameters, {flops:.1f} MFLOP per token, forward and backward",
            model=found.model,
            parameters=found.parameters,
            flops=found.flops_per_token / 1e6,
        ),
        tr("text"): tr("{tokens:,} tokens to train on", tokens=found.train_tokens),
        tr("machine"): tr("{device}, {threads} threads", device=found.device, threads=found.threads),
        tr("memory"): tr(
            "at least {all:,.0f} MB: {parameters:,.0f} parameters, {gradients:,.0f} gradients, {moments:,.0f} moments, "
            "{kept:,.0f} activations for the backward pass",
            all=sum(found.memory.values()) / 1e6,
            **{name: size / 1e6 for name, size in found.memory.items()},
        ),
        tr("step"): tr(
            "{tokens:,} tokens in {seconds:.3f} s, {speed:,.0f} tokens/s",
            tokens=found.tokens_per_step,
            seconds=found.seconds_per_step,
            speed=found.tokens_per_step / found.seconds_per_step,
        ),
    }


def _show_rows(console: Console, rows: Mapping[str, str]) -> None:
    for name, text in rows.items():
        console.print(Line.assemble((set_cell_size(name, 11), "dim"), text))
