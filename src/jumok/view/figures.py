"""Pictures with matplotlib, for files: no window is ever opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.view.canvas import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHING = 0.9  # of the training loss: how much of the running mean each step keeps


def draw_loss(events: Iterable[Mapping[str, Any]], path: Path, *, label: str = "nats/char") -> None:
    """Draw the learning curve of a run.

    Args:
        events: lines of metrics.jsonl; any of which may be missing. path: where the PNG goes. label: what the held-out
            loss is measured in.
    """
    events = list(events)
    steps = [e for e in events if e["event"] == "step" and not e["skipped"]]
    evals = [e for e in events if e["event"] == "eval"]
    with canvas(path, 8, 4.5, dpi=120) as figure:
        axes = figure.add_subplot()
        for stage in (e for e in events if e["event"] == "stage"):
            axes.axvline(stage["step"], color="#999999", linestyle=":", linewidth=1.2)
        _draw_curves(axes, steps, evals, label)


def _draw_curves(
    axes: Axes, steps: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]], label: str
) -> None:
    """The losses of training, those of what is held out and its floor."""
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
            label=f"held out ({label})",
        )
        best = next((e for e in reversed(evals) if e["best"]), evals[-1])  # not always that of the least loss
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
        axes.legend(frameon=False, loc="upper center")  # "best" is slow with many steps


@dataclass(frozen=True)
class _Theme:
    ink: str
    paper: str
    grid: str
    colours: tuple[float, float]  # part of the colour map, from the first curve to the last, that shows on the paper


_LIGHT = _Theme(ink="#222222", paper="#ffffff", grid="#d8d8d8", colours=(0.72, 0.0))
_DARK = _Theme(ink="#e6e6e6", paper="#16181d", grid="#3a3d45", colours=(0.32, 1.0))
_MARKERS = "osD^v"


def draw_ladder(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: Path,
    *,
    x_label: str,
    y_label: str,
    floor: tuple[str, float] | None = None,
    narrow: bool = False,
    dark: bool = False,
) -> None:
    """Draw ordered curves, each with its name at its end, in colours from pale to strong that need no colour vision.

    Args:
        curves: {label: (xs, ys)}, the first one first; points that are not finite are left out, and curves of no other.
        path: where the PNG goes.
        x_label, y_label: what is measured, with its unit. floor: a name, and a line that no curve gets below.
        narrow: upright, for a telephone. dark: for a dark page.
    """
    from matplotlib import colormaps  # slow to import
    from matplotlib.ticker import EngFormatter, MaxNLocator

    theme = _DARK if dark else _LIGHT
    size, dpi, points = ((4.2, 6.2), 190, 8.6) if narrow else ((9.6, 5.8), 120, 10.0)
    first, last = theme.colours
    points_of = {name: _finite(xs, ys) for name, (xs, ys) in curves.items()}
    drawn = {name: found for name, found in points_of.items() if found}
    with canvas(path, *size, dpi=dpi) as figure:
        figure.set_facecolor(theme.paper)
        axes = figure.add_subplot()
        for number, found in enumerate(drawn.values()):
            colour = colormaps["viridis"](first + (last - first) * number / max(1, len(drawn) - 1))
            marker = _MARKERS[number % len(_MARKERS)]
            axes.plot(*zip(*found, strict=True), color=colour, marker=marker, markersize=points / 2.6, linewidth=1.7)
        if floor is not None:
            axes.axhline(floor[1], color=theme.ink, linestyle=(0, (4, 3)), linewidth=1.1)
            axes.annotate(
                floor[0], (0, floor[1]), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                color=theme.ink, fontsize=points - 1,
            )  # fmt: skip
        axes.set_ylim(*_range_of_interest([[y for _, y in found] for found in drawn.values()], floor))
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label, color=theme.ink, fontsize=points)
        axes.set_ylabel(y_label, color=theme.ink, fontsize=points)
        axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
        thousands = EngFormatter()  # 500 k
        axes.xaxis.set_major_formatter(lambda x, _: thousands(x) if x >= 1000 else f"{x:g}")
        _quiet(axes, theme, points)
        _name_ends(axes, list(drawn), theme, points)


def _quiet(axes: Axes, theme: _Theme, points: float) -> None:
    """A frame that leaves the stage to the curves."""
    axes.set_facecolor(theme.paper)
    axes.tick_params(colors=theme.ink, labelsize=points - 1, length=0)
    axes.grid(color=theme.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.grid)


def _finite(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]


def _range_of_interest(curves: Sequence[Sequence[float]], floor: tuple[str, float] | None) -> tuple[float, float]:
    """From below the lowest point to somewhat above the highest end; how curves begin is of less interest."""
    ends = [ys[-1] for ys in curves]
    every = [y for ys in curves for y in ys] + ([floor[1]] if floor else [])
    low, high = min(every, default=0.0), max(every, default=1.0)
    if ends and max(ends) > min(ends):
        high = min(high, max(ends) + 0.6 * (max(ends) - min(ends)))
    pad = 0.06 * (high - low) or 0.1
    return low - pad, high + pad


def _name_ends(axes: Axes, names: Sequence[str], theme: _Theme, points: float) -> None:
    """Write each name beside the end of its curve, moved apart where names would overlap, with a line to its curve."""
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    height = axes.get_figure(root=True).get_figheight() * 0.82 * 72  # type: ignore[union-attr]  # in points, about
    ends = []
    for name, line in zip(names, axes.get_lines(), strict=False):  # the floor may be one line more
        x, y = (float(np.asarray(values)[-1]) for values in line.get_data())
        ends.append(((min(max(y, low), high) - low) / (high - low), x / right, name, line.get_color()))
    ends.sort()
    places = _apart([end[0] for end in ends], gap=1.45 * points / height)
    for (y, x, name, colour), place in zip(ends, places, strict=True):
        axes.annotate(
            name, (x, y), (1.05, place), xycoords="axes fraction", textcoords="axes fraction",
            color=theme.ink, fontsize=points, va="center", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 3, "relpos": (0, 0.5),
            },
        )  # fmt: skip


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as need be to be at least `gap` apart, and none below 0.

    Neighbours that are too close become a group around their mean; groups that then touch become one.
    """
    groups: list[tuple[float, int]] = []  # mean of the wanted places, and how many they are
    for place in places:
        groups.append((place, 1))
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _bottom(groups[-1], gap):
            (mean, count), (other, others) = groups[-2], groups[-1]
            groups[-2:] = [((mean * count + other * others) / (count + others), count + others)]
    apart = [_bottom(group, gap) + gap * number for group in groups for number in range(group[1])]
    return [place - min(0.0, apart[0]) for place in apart] if apart else []


def _bottom(group: tuple[float, int], gap: float) -> float:
    return group[0] - gap * (group[1] - 1) / 2


def _top(group: tuple[float, int], gap: float) -> float:
    return group[0] + gap * (group[1] - 1) / 2


def _smoothed(values: list[float]) -> list[float]:
    """Running mean that starts at the first value's level and forgets it in proportion (Adam's bias correction)."""
    mean, weight, smooth = 0.0, 0.0, []
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        smooth.append(mean / weight)
    return smooth


LONGEST_LABEL = 12  # characters of a class's name
MOST_NAMES = 40  # of classes beside the picture; of more, every second one or fewer
MOST_NUMBERED = 24  # classes with numbers in their cells; beyond it colours have to do
ROOMY = 8  # classes whose cells have room for two lines


def draw_confusion(confusion: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Draw which classes are taken for which: in each row the texts of one class, coloured by their share of the row.

    Args:
        confusion: for each label, how many of its texts were taken for which. labels: their names, in the same order.
        path: where the PNG goes.
    """
    shares = [[count / max(1, sum(row)) for count in row] for row in confusion]
    named = range(0, len(labels), -(-len(labels) // MOST_NAMES))
    names = [labels[i] if len(labels[i]) <= LONGEST_LABEL else labels[i][: LONGEST_LABEL - 1] + "…" for i in named]
    slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    side = 2.6 + min(0.62 * len(labels), 8.0)
    with canvas(path, side + 0.9, side, dpi=120) as figure:
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        size = 10 if len(labels) <= ROOMY else 7
        axes.set_xticks(named, names, fontsize=size, **(slanted if max(map(len, names)) > 3 else {}))
        axes.set_yticks(named, names, fontsize=size)
        axes.set_xlabel("predicted")
        axes.set_ylabel("label")
        if len(labels) <= MOST_NUMBERED:
            _write_cells(axes, confusion, shares)
        figure.colorbar(image, ax=axes, shrink=0.8, label="share of the label's texts")


def _write_cells(axes: Axes, confusion: Sequence[Sequence[int]], shares: Sequence[Sequence[float]]) -> None:
    """Counts, and shares below them where there is room, in a colour that shows on that of the cell."""
    roomy = len(shares) <= ROOMY
    for i, row in enumerate(confusion):
        for j, count in enumerate(row):
            text = f"{count:,}\n{shares[i][j]:.1%}" if roomy else f"{count:,}"
            colour = "white" if shares[i][j] > 0.55 else "#222222"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=10 if roomy else 7)
