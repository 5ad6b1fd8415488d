"""Pictures with matplotlib, for files: no window is ever opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jumok.files import atomic_path

SMOOTHING = 0.9  # of the training loss: how much of the running mean each step keeps


def draw_loss(events: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Draw the learning curve of a run.

    Args:
        events: lines of metrics.jsonl. path: where the PNG goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import, and not needed to use a model
    from matplotlib.figure import Figure

    events = list(events)
    steps = [e for e in events if e["event"] == "step" and not e["skipped"]]
    evals = [e for e in events if e["event"] == "eval"]
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if steps:
        x = [e["step"] for e in steps]
        axes.plot(
            x, [e["loss"] for e in steps], color="#9ecae1", linewidth=0.7, label="training, each batch (nats/token)"
        )
        axes.plot(
            x, _smoothed([e["loss"] for e in steps]), color="#2171b5", linewidth=1.6, label="training, running mean"
        )
    if evals:
        figures = [e["figures"] for e in evals]
        axes.plot(
            [e["step"] for e in evals],
            [f["loss"] for f in figures],
            color="#d94801",
            marker="o",
            markersize=3.5,
            linewidth=1.8,
            label="held-out text (nats/char)",
        )
        best = min(evals, key=lambda e: e["figures"]["loss"])
        value = best["figures"]["loss"]
        axes.annotate(
            f"{value:.3f}",
            (best["step"], value),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color="#d94801",
        )
        floor = figures[-1].get("floor")
        if floor is not None:
            axes.axhline(
                floor, color="#238b45", linestyle="--", linewidth=1.4, label=f"floor of the text ({floor:.3f})"
            )
    values = [e["loss"] for e in steps] + [e["figures"]["loss"] for e in evals]
    finite = [v for v in values if math.isfinite(v)]
    if finite:
        axes.set_ylim(bottom=max(0.0, min(finite) - 0.15 * (max(finite) - min(finite)) - 0.05))
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.grid(alpha=0.25)
    if steps or evals:
        axes.legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _smoothed(values: list[float]) -> list[float]:
    """Running mean that starts at the first value's level and forgets it in proportion (Adam's bias correction)."""
    mean, weight, smooth = 0.0, 0.0, []
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        smooth.append(mean / weight)
    return smooth
