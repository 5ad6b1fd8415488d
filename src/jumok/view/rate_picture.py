"""The picture of a learning rate range test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jumok.view.canvas import COLOURS, INK, canvas


def draw_rates(
    rates: Sequence[float], losses: Sequence[float], means: Sequence[float], suggested: float, path: Path
) -> None:
    """Draw the loss over the learning rate, which has a logarithmic axis.

    Args:
        rates: of the steps, in the order of the test. losses: of the steps, in nats. means: running means of them.
            suggested: a rate.
        path: where the picture goes, see `canvas`.
    """
    lowest = min(range(len(means)), key=lambda index: means[index])
    with canvas(path, 8, 4.5, dpi=120) as figure:
        axes = figure.add_subplot()
        axes.plot(rates, losses, color="#b3d1e8", linewidth=0.8, label="each batch")
        axes.plot(rates, means, color=COLOURS[0], linewidth=1.8, label="running mean")
        axes.plot(
            [rates[lowest]], [means[lowest]], linestyle="", marker="*", markersize=14,
            color=COLOURS[1], label=f"lowest: {rates[lowest]:.1e}",
        )  # fmt: skip
        axes.axvline(suggested, color=INK, linestyle="--", linewidth=1.2, label=f"suggested: {suggested:.1e}")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda rate, _: f"{rate:.0e}")  # the minus of mathematics is not in every font
        axes.xaxis.set_minor_formatter(lambda rate, _: "")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("training loss (nats)")
        axes.grid(alpha=0.25)
        figure.legend(frameon=False, loc="outside upper center", ncols=4, fontsize=9)
