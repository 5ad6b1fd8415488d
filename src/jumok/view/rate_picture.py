"""The picture of a learning rate range test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jumok.view.canvas import COLOURS, INK, canvas


class RatePoint(Protocol):
    """A step of the test: its rate, its loss in nats, and the mean of the losses up to it."""

    @property
    def learning_rate(self) -> float: ...

    @property
    def loss(self) -> float: ...

    @property
    def smoothed(self) -> float: ...


def draw_rates(points: Sequence[RatePoint], lowest: int, suggested: float, path: Path) -> None:
    """Draw the loss over the learning rate, which has a logarithmic axis.

    Args:
        points: in the order of the test. lowest: index of the lowest mean. suggested: a rate.
        path: where the picture goes, see `canvas`.
    """
    rates = [point.learning_rate for point in points]
    with canvas(path, 8, 4.5, dpi=120) as figure:
        axes = figure.add_subplot()
        axes.plot(rates, [point.loss for point in points], color="#b3d1e8", linewidth=0.8, label="each batch")
        axes.plot(rates, [point.smoothed for point in points], color=COLOURS[0], linewidth=1.8, label="running mean")
        axes.plot(
            [rates[lowest]], [points[lowest].smoothed], linestyle="", marker="*", markersize=14,
            color=COLOURS[1], label=f"lowest: {rates[lowest]:.1e}",
        )  # fmt: skip
        axes.axvline(suggested, color=INK, linestyle="--", linewidth=1.2, label=f"suggested: {suggested:.1e}")
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("training loss (nats)")
        axes.grid(alpha=0.25)
        figure.legend(frameon=False, loc="outside upper center", ncols=4, fontsize=9)
