"""Pictures of runs: their losses, and the classes that are taken for others."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.messages import tr
from jumok.view.canvas import INK, canvas
from jumok.view.token_text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 4_000  # of the training loss; the picture has fewer pixels
FENCE = 1.5  # interquartile ranges above the upper quartile, where the whisker of a box plot ends (Tukey, 1977)
LONGEST_LABEL = 12  # characters of a class's name
MOST_NAMES = 40  # of classes beside the picture; of more, every second one or fewer
MOST_NUMBERED = 24  # classes with numbers in their cells; beyond it colours have to do
ROOMY = 8  # classes whose cells have room for two lines


def draw_loss(
    events: Iterable[Mapping[str, Any]], path: Path, *, label: str = "nats/char", beside: str | None = None
) -> None:
    """Draw the learning curve of a run.

    Args:
        events: lines of metrics.jsonl; any of which may be missing. path: where the PNG goes. label: the unit of the
            loss of the validations. The training loss per token is converted to it if the validations have both.
        beside: a share among the figures of the validations that is drawn, too, on an axis of its own at the right.

    Of a long run the means of neighbouring batches are drawn. No more is kept of an event than what is drawn of it.
    """
    steps, losses, evals, validated, shares = (array("d") for _ in range(5))
    figures: Mapping[str, Any] = {}
    best: tuple[float, float] | None = None  # step and loss, which is not always the least one
    last: float | None = None  # the last figure, of the best parameters
    for event in events:
        if event["event"] == "step" and not event["skipped"] and _is_finite(event["loss"]):
            steps.append(event["step"])
            losses.append(event["loss"])
        elif event["event"] == "eval" and _is_finite(event["figures"]["loss"]):
            evals.append(event["step"])
            validated.append(event["figures"]["loss"])
            figures = event["figures"]
            shares.append(figures.get(beside, math.nan) if beside else math.nan)
            best = (evals[-1], validated[-1]) if event["best"] else best
        elif event["event"] == "finish" and event.get("reason") != "interrupted":
            last = event.get("figures", {}).get("loss")
    unit = figures["loss"] / figures["loss_per_token"] if figures.get("loss_per_token") else 1.0
    x, training = _means(steps), [loss * unit for loss in _means(losses)]
    mean = _smoothed(training)
    with canvas(path, 8, 4.5, dpi=120) as figure:
        axes = figure.add_subplot()
        if x:
            axes.plot(x, training, color="#b3d1e8", linewidth=0.6, label=tr("training, each batch"))
            axes.plot(x, mean, color="#2171b5", linewidth=1.6, label=tr("training, running mean"))
        shown: list[float] = []
        if validated:
            best = best or (evals[-1], validated[-1])
            _draw_validations(axes, evals, validated, best)
            shown = [validated[-1], best[1]]
            if last is not None and _is_finite(last):
                shown.append(last)
                axes.plot(
                    best[:1], [last], linestyle="", marker="D", markersize=6, zorder=6, color="#54278f",
                    markeredgecolor="white", label=tr("held out: {value:.3f}", value=last),
                )  # fmt: skip
        low, high = loss_limits([mean, validated], shown, figures.get("floor"))
        axes.set_ylim(low, high)
        if (floor := figures.get("floor")) is not None:
            name = tr("floor of the text: {value:.3f}", value=floor) + ("" if floor >= low else tr(" (below)"))
            axes.axhline(floor, color=INK, linestyle="--", linewidth=1.2, label=name)
        axes.margins(x=0.02)
        axes.set_xlabel(tr("step"))
        axes.set_ylabel(tr("loss ({unit})", unit=label if evals else "nats"))
        axes.grid(alpha=0.25)
        lines, names = axes.get_legend_handles_labels()
        if beside and np.isfinite(shares).any():
            right = axes.twinx()
            look: dict[str, Any] = {"color": "#238b45", "linestyle": "--", "linewidth": 1.4, "marker": "s"}
            lines += right.plot(evals, shares, markersize=3.5, **look)
            names.append(tr("validation: {figure}", figure=tr(beside)))
            right.set_ylim(0, 1.02)
            right.set_ylabel(tr(beside))
        if lines:
            figure.legend(lines, names, frameon=False, loc="outside upper center", ncols=3, fontsize=9)


def loss_limits(
    curves: Sequence[Sequence[float]], shown: Sequence[float], floor: float | None = None
) -> tuple[float, float]:
    """Return the ends of the loss axis, such that the fall of the first steps does not flatten all that follows.

    Args:
        curves: their losses, all finite. shown: losses that are always inside. floor: a loss that no model gets below;
            the axis goes down to it if that takes at most a third of its height.

    The upper end is the largest loss that is at most `FENCE` interquartile ranges above the upper quartile of its
    curve.
    """
    inside = list(shown)
    for losses in filter(None, curves):
        lower, upper = np.quantile(losses, [0.25, 0.75])
        inside += [loss for loss in losses if loss <= upper + FENCE * (upper - lower)]
    if not inside:
        return 0.0, 1.0
    low, high = min(inside), max(inside)
    if floor is not None and low - floor <= (high - low) / 2:
        low = min(low, floor)
    pad = 0.05 * (high - low) or 0.1
    return max(0.0, low - pad), high + pad


def _draw_validations(axes: Axes, steps: Sequence[float], losses: Sequence[float], best: tuple[float, float]) -> None:
    """Draw the validations above all other curves, the best one as a star."""
    look: dict[str, Any] = {"color": "#d94801", "markeredgecolor": "white"}
    axes.plot(steps, losses, marker="o", markersize=4.5, linewidth=2.0, zorder=4, label=tr("validation"), **look)
    label = tr("best validation: {loss:.3f} at step {step:,.0f}", loss=best[1], step=best[0])
    axes.plot(best[:1], best[1:], linestyle="", marker="*", markersize=15, zorder=5, label=label, **look)


def _is_finite(loss: float | None) -> bool:
    """Return whether it is a number: metrics.jsonl has null for what JSON lacks."""
    return loss is not None and math.isfinite(loss)


def _means(values: Sequence[float]) -> list[float]:
    """Return the values, or the means of as many neighbours as make them at most MOST_POINTS."""
    count = math.ceil(len(values) / MOST_POINTS) or 1
    starts = np.arange(0, len(values), count)
    sums = np.add.reduceat(np.asarray(values), starts) if len(values) else np.empty(0)
    means: list[float] = (sums / np.diff([*starts, len(values)])).tolist()
    return means


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return means of a window around each value, which does not lag behind a fall: a twelfth of them, at least five.

    The window is narrower at the start, so that the mean starts at the first value, and one-sided at the end.
    """
    sums = np.cumsum([0.0, *values])
    index = np.arange(len(values))
    reach = np.minimum(max(2, len(values) // 24), index)
    first, end = index - reach, np.minimum(index + reach + 1, len(values))
    means: list[float] = ((sums[end] - sums[first]) / (end - first)).tolist()
    return means


def draw_confusion(confusion: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Draw which classes are taken for which: in each row the texts of one class, coloured by their share of the row.

    Args:
        confusion: for each label, how many of its texts were taken for which. labels: their names, in the same order.
        path: where the PNG goes.
    """
    shares = [[count / max(1, sum(row)) for count in row] for row in confusion]
    named = range(0, len(labels), -(-len(labels) // MOST_NAMES))
    names = [shortened(labels[i], LONGEST_LABEL) for i in named]
    slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    side = 2.6 + min(0.62 * len(labels), 8.0)
    with canvas(path, side + 0.9, side, dpi=120) as figure:
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        size = 10 if len(labels) <= ROOMY else 7
        axes.set_xticks(named, names, fontsize=size, **(slanted if max(map(len, names)) > 3 else {}))
        axes.set_yticks(named, names, fontsize=size)
        axes.set_xlabel(tr("predicted"))
        axes.set_ylabel(tr("label"))
        if len(labels) <= MOST_NUMBERED:
            _write_cells(axes, confusion, shares)
        figure.colorbar(image, ax=axes, shrink=0.8, label=tr("share of the label's texts"))


def _write_cells(axes: Axes, confusion: Sequence[Sequence[int]], shares: Sequence[Sequence[float]]) -> None:
    """Counts, and shares below them where there is room, in a colour that shows on that of the cell."""
    roomy = len(shares) <= ROOMY
    for i, row in enumerate(confusion):
        for j, count in enumerate(row):
            text = f"{count:,}\n{shares[i][j]:.1%}" if roomy else f"{count:,}"
            colour = "white" if shares[i][j] > 0.55 else "#222222"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=10 if roomy else 7)
