"""What `jumok train --explain` prints: the settings that a run would have, and the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.cells import set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from jumok.messages import tr
from jumok.training.policy import Explanation
from jumok.training.subscribers.progress import clock


def show_explanation(found: Explanation) -> None:
    """Print the model, the machine, the time per step, the choices with their reasons, and the length of the run."""
    console = Console(highlight=False, soft_wrap=True)
    _show_rows(console, _facts(found))
    console.print(Line("\n" + tr("A step of {tokens:,} tokens, not compiled", tokens=found.tokens_per_step) + "\n"))
    console.print(_candidates(found))
    console.print()
    names = {
        "precision": tr("precision"), "attention": tr("attention"), "compile": tr("compile"), "dropout": tr("dropout"),
    }  # fmt: skip
    _show_rows(console, {names[name]: f"{word}: {why}" for name, (word, why) in found.choices.items()})
    _show_rows(console, {tr("length"): _length(found)})


def _facts(found: Explanation) -> dict[str, str]:
    """Heading and line for the model, the text, the machine and its memory."""
    return {
        tr("model"): tr(
            "{model}, {millions:.1f} M parameters, {flops:.1f} MFLOP per token, forward and backward",
            model=found.model,
            millions=found.parameters / 1e6,
            flops=found.flops_per_token / 1e6,
        ),
        tr("text"): tr("{tokens:,} tokens to train on", tokens=found.train_tokens),
        tr("machine"): tr("{device}, {threads} threads", device=found.device, threads=found.threads),
        tr("memory"): tr(
            "about {all:,.0f} MB: {parameters:,.0f} parameters, {gradients:,.0f} gradients, {moments:,.0f} moments, "
            "{kept:,.0f} activations for the backward pass",
            all=sum(found.memory.values()) / 1e6,
            **{name: size / 1e6 for name, size in found.memory.items()},
        ),
    }


def _candidates(found: Explanation) -> Table:
    """The time per step of each precision and each way to compute attention."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in (tr("precision"), tr("attention")):
        table.add_column(heading, no_wrap=True)
    for heading in (tr("seconds"), tr("tokens/s")):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in found.candidates:
        if not math.isfinite(one.seconds):
            table.add_row(one.precision, one.attention, "", "", tr("too little memory"))
            continue
        seconds = f"{one.seconds:.3f}"
        speed = f"{found.tokens_per_step / one.seconds:,.0f}"
        table.add_row(one.precision, one.attention, seconds, speed, tr("chosen") if one.chosen else "")
    return table


def _length(found: Explanation) -> str:
    if not math.isfinite(found.seconds):
        return tr("too little memory for a single step; use a smaller {--batch-size} or {--size}")
    return tr(
        "about {steps:,} steps in {clock}, {passes:.1f} passes over the text",
        steps=found.steps,
        clock=clock(found.seconds),
        passes=found.passes,
    )


def _show_rows(console: Console, rows: Mapping[str, str]) -> None:
    for name, text in rows.items():
        console.print(Line.assemble((set_cell_size(name, 11), "dim"), text))
