"""The picture of the ladder: the curves of its runs, with their names at the ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jumok.view.canvas import INK, canvas, line_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes


GRID = "#d8d8d8"
POINTS = 10.0  # of the letters


def draw_ladder(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: Path,
    *,
    x_label: str,
    y_label: str,
    floor: tuple[str, float] | None = None,
) -> None:
    """Draw curves, each with its name at its end and with a colour, a marker and dashes of its own.

    Args:
        curves: {label: (xs, ys)}, the first one first; points that are not finite are left out, and curves of no other.
        path: where the PNG goes.
        x_label, y_label: what is measured, with its unit. floor: a name, and a line that no curve gets below.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator  # slow to import

    points_of = {name: _finite(xs, ys) for name, (xs, ys) in curves.items()}
    drawn = {name: found for name, found in points_of.items() if found}
    with canvas(path, 9.6, 5.8, dpi=92) as figure:
        axes = figure.add_subplot()
        for number, found in enumerate(drawn.values()):
            look = line_look(number, INK)
            axes.plot(*zip(*found, strict=True), markersize=POINTS / 2.2, linewidth=1.7, **look)
        if floor is not None:
            axes.axhline(floor[1], color=INK, linestyle=(0, (4, 3)), linewidth=1.1)
            axes.annotate(
                floor[0], (0, floor[1]), (3, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                color=INK, fontsize=POINTS - 1,
            )  # fmt: skip
        axes.set_ylim(*_range_of_interest([[y for _, y in found] for found in drawn.values()], floor))
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label, color=INK, fontsize=POINTS)
        axes.set_ylabel(y_label, color=INK, fontsize=POINTS)
        axes.xaxis.set_major_locator(MaxNLocator(8))
        thousands = EngFormatter()  # 500 k
        axes.xaxis.set_major_formatter(lambda x, _: thousands(x) if x >= 1000 else f"{x:g}")
        _quiet(axes)
        _name_ends(axes, list(drawn))


def _quiet(axes: Axes) -> None:
    """Frame the axes in a way that leaves the stage to the curves."""
    axes.tick_params(colors=INK, labelsize=POINTS - 1, length=0)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)


def _finite(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]


def _range_of_interest(curves: Sequence[Sequence[float]], floor: tuple[str, float] | None) -> tuple[float, float]:
    """Return the range from below the lowest point to somewhat above the highest end, not to where curves begin."""
    ends = [ys[-1] for ys in curves]
    every = [y for ys in curves for y in ys] + ([floor[1]] if floor else [])
    low, high = min(every, default=0.0), max(every, default=1.0)
    if ends and max(ends) > min(ends):
        high = min(high, max(ends) + 0.6 * (max(ends) - min(ends)))
    pad = 0.06 * (high - low) or 0.1
    return low - pad, high + pad


def _name_ends(axes: Axes, names: Sequence[str]) -> None:
    """Write names with their markers beside the ends of the curves, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    right = axes.get_xlim()[1]
    height = axes.get_figure(root=True).get_figheight() * 0.82 * 72  # type: ignore[union-attr]  # in points, about
    ends = []
    for name, line in zip(names, list(axes.get_lines()), strict=False):  # the floor may be one line more
        x, y = (float(np.asarray(values)[-1]) for values in line.get_data())
        ends.append(((min(max(y, low), high) - low) / (high - low), x / right, name, line))
    ends.sort(key=lambda end: end[:3])
    places = _apart([end[0] for end in ends], gap=1.45 * POINTS / height)
    for (y, x, name, line), place in zip(ends, places, strict=True):
        axes.plot(
            [x, 1.06], [y, place], transform=axes.transAxes, clip_on=False, linewidth=0.8, markevery=[1],
            color=line.get_color(), linestyle=line.get_linestyle(), marker=line.get_marker(),
            markersize=line.get_markersize(),
        )  # fmt: skip
        axes.annotate(
            name, (1.06, place), (0.8 * POINTS, 0), xycoords="axes fraction", textcoords="offset points",
            color=INK, fontsize=POINTS, va="center", annotation_clip=False,
        )  # fmt: skip


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Return ascending places moved as little as need be to be at least `gap` apart, and none below 0.

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
