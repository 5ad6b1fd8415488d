"""Pictures that teach: matrices as heatmaps, curves, and sequences as boxes. Each function draws one PNG; its words may
be Hangul.

The colours can be told apart with any kind of colour vision: one hue from pale to dark for amounts, orange to purple
around zero, and those of `canvas` for lines. Masked cells of attention are grey.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.view.canvas import INK, MASKED, canvas, line_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DPI = 130
WIDEST = 7.0  # inches; 910 pixels fit a README
CELL = 0.62  # inches, of a matrix that has room
NUMBERED = 16  # columns up to which a cell has room for its number
PER_ROW = 4  # matrices side by side
BOXES = ("#cfe1f2", "#f3e3c3")  # of neighbouring boxes


def draw_matrix(
    values: ArrayLike,
    path: Path | str,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    numbers: bool = True,
    diverging: bool = False,
    label: str = "",
) -> None:
    """Draw a matrix as a heatmap, the first row at the top.

    Args:
        values: (T, S), a tensor, an array or lists; booleans count as 0 and 1. Infinite and undefined cells are grey
            and say so.
        path: where the PNG goes.
        rows: T labels, e.g. the tokens of the queries; without them the numbers from 0. columns: S labels.
        mask: (T, S), or what broadcasts to it; True may attend. Cells where it is False are grey and have no number.
        x_label, y_label: what the columns and the rows are, e.g. key and query.
        title: above. label: beside the colour bar; there is one if it is given, or without numbers.
        numbers: write each value into its cell, if there are at most 16 columns.
        diverging: put zero in the middle of the colours, for values of both signs.

    Raises `ConfigError` for values that are no matrix, for a mask of another shape, and for labels that are too many
    or too few.
    """
    matrix = _masked(_matrix(values, "values"), mask, "mask")
    height, width = matrix.shape
    cell = min(CELL, 5.5 / max(matrix.shape))
    with canvas(path, cell * width + 1.9, cell * height + 1.3, dpi=DPI, tight=True) as figure:
        axes = figure.add_subplot()
        image = _heatmap(axes, matrix, _colour_range([matrix], diverging), diverging, cell, numbers)
        _label_cells(axes, matrix.shape, rows, columns, cell)
        _label_axes(axes, x_label, y_label)
        if title:
            axes.set_title(title, fontsize=12, color=INK, pad=10)
        if label or not numbers:
            _colour_bar(image, axes, label)


def draw_matrices(
    values: Sequence[ArrayLike],
    path: Path | str,
    *,
    titles: Sequence[str],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    masks: Sequence[ArrayLike | None] | None = None,
    x_label: str = "",
    y_label: str = "",
    numbers: bool = False,
    diverging: bool = False,
) -> None:
    """Draw several matrices of one shape side by side, with the same colours for the same values.

    Args:
        values: matrices (T, S), e.g. one for each head. titles: one for each.
        masks: one for each, as for `draw_matrix`; None for a matrix in which nothing is hidden.
        path, rows, columns, x_label, y_label, numbers, diverging: as for `draw_matrix`.

    Raises `ConfigError` as `draw_matrix`, and for matrices of different shapes or without their titles or masks.
    """
    matrices = [_matrix(value, f"values[{index}]") for index, value in enumerate(values)]
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1:
        given = ", ".join(str(shape) for shape in sorted(shapes)) or tr("none")
        raise ConfigError("values must be matrices of one shape; given: {given}.", given=given)
    masks = [None] * len(matrices) if masks is None else masks
    for name, given_for_each in (("titles", titles), ("masks", masks)):
        if len(given_for_each) != len(matrices):
            raise ConfigError(
                "{name} has {count} entries for {matrices} matrices; give one for each.",
                name=name,
                count=len(given_for_each),
                matrices=len(matrices),
            )
    matrices = [
        _masked(matrix, mask, f"masks[{i}]") for i, (matrix, mask) in enumerate(zip(matrices, masks, strict=True))
    ]
    across = min(PER_ROW, len(matrices))
    down = math.ceil(len(matrices) / across)
    height, width = matrices[0].shape
    cell = min(CELL, (WIDEST - 1.6 - 0.25 * across) / (across * width), 3.5 / height)
    size = (across * (cell * width + 0.25) + 1.6, down * (cell * height + 0.95) + 0.3)
    colour_range = _colour_range(matrices, diverging)
    with canvas(path, *size, dpi=DPI, tight=True) as figure:
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.08)
        grid = figure.subplots(down, across, squeeze=False)
        for index, axes in enumerate(grid.flat):
            if index >= len(matrices):
                axes.remove()
                continue
            image = _heatmap(axes, matrices[index], colour_range, diverging, cell, numbers)
            _label_cells(axes, matrices[index].shape, rows, columns, cell, with_rows=index % across == 0)
            _label_axes(
                axes, x_label if index + across >= len(matrices) else "", y_label if index % across == 0 else ""
            )
            axes.set_title(titles[index], fontsize=11, color=INK, pad=6)
        if not numbers:
            _colour_bar(image, list(figure.axes), "")


def draw_product(
    values: Sequence[ArrayLike],
    path: Path | str,
    *,
    titles: Sequence[str],
    signs: Sequence[str],
    rows: Sequence[Sequence[str] | None] | None = None,
    columns: Sequence[Sequence[str] | None] | None = None,
) -> None:
    """Draw matrices of different shapes on one line, with signs between them, as for A × B = C.

    Args:
        values: matrices (n, m), each with its numbers in its cells. titles: one for each, above it.
        signs: between the matrices, e.g. "×" and "=". rows, columns: labels of each matrix; None for numbers from 0.
        path: where the PNG goes.

    Raises `ConfigError` for values that are no matrices, and for titles, signs or labels that are too many or too few.
    """
    matrices = [_matrix(value, f"values[{index}]") for index, value in enumerate(values)]
    rows, columns = rows or [None] * len(matrices), columns or [None] * len(matrices)
    for name, given, expected in (
        ("titles", titles, len(matrices)), ("signs", signs, len(matrices) - 1),
        ("rows", rows, len(matrices)), ("columns", columns, len(matrices)),
    ):  # fmt: skip
        if len(given) != expected:
            raise ConfigError(
                "{name} has {count} entries for {matrices} matrices; give {expected}.",
                name=name, count=len(given), matrices=len(matrices), expected=expected,
            )  # fmt: skip
    space = 0.95  # inches before each matrix, for its labels and the sign
    across = sum(matrix.shape[1] for matrix in matrices)
    cell = min(CELL, (WIDEST - space * len(matrices)) / across)
    tallest = max(matrix.shape[0] for matrix in matrices)
    size = (space * len(matrices) + cell * across + 0.1, cell * tallest + 1.1)
    left = space
    with canvas(path, *size, dpi=DPI, tight=True) as figure:
        figure.set_layout_engine("none")  # each matrix has its fixed place
        for index, matrix in enumerate(matrices):
            height, width = matrix.shape
            bottom = 0.2 + cell * (tallest - height) / 2
            axes = _axes_at(figure, size, left, bottom, cell * width, cell * height)
            _heatmap(axes, matrix, _colour_range([matrix], False), False, cell, True)
            _label_cells(axes, matrix.shape, rows[index], columns[index], cell)
            axes.set_title(titles[index], fontsize=10.5, color=INK, pad=8)
            if index:
                middle = (left - 0.62 * space) / size[0], (0.2 + cell * tallest / 2) / size[1]
                figure.text(*middle, signs[index - 1], ha="center", va="center", fontsize=17, color=INK)
            left += cell * width + space


def draw_sums(values: ArrayLike, path: Path | str, *, names: tuple[str, str], title: str = "") -> None:
    """Draw a matrix with its sums over each dimension: those over dim 0 below it, those over dim 1 at its right.

    Args:
        values: (n, m). path: where the PNG goes. names: of the sums over dim 0 and over dim 1, beside their arrows.
        title: above.

    Raises `ConfigError` for values that are no matrix.
    """
    matrix = _matrix(values, "values")
    height, width = matrix.shape
    cell, gap, left, bottom = CELL, 1.15, 0.7, 0.3
    size = (left + cell * (width + 1) + gap + 1.6, bottom + cell * (height + 1) + gap + 0.7)
    colours = _colour_range([matrix, matrix.sum(0, keepdims=True), matrix.sum(1, keepdims=True)], False)
    above, beside = bottom + cell + gap, left + cell * width + gap
    with canvas(path, *size, dpi=DPI, tight=True) as figure:
        figure.set_layout_engine("none")
        for part, x, y in (
            (matrix, left, above), (matrix.sum(1, keepdims=True), beside, above),
            (matrix.sum(0, keepdims=True), left, bottom),
        ):  # fmt: skip
            axes = _axes_at(figure, size, x, y, cell * part.shape[1], cell * part.shape[0])
            _heatmap(axes, part, colours, False, cell, True)
            axes.set(xticks=[], yticks=[])
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
        middle = left + cell * width / 2, above + cell * height / 2
        down, right = bottom + cell + gap / 2, beside - gap / 2
        figure.text(middle[0] / size[0], down / size[1], "↓", fontsize=17, **look)
        figure.text((middle[0] + 0.2) / size[0], down / size[1], names[0], fontsize=10.5, **{**look, "ha": "left"})
        figure.text(right / size[0], middle[1] / size[1], "→", fontsize=17, **look)
        figure.text(right / size[0], (middle[1] + 0.27) / size[1], names[1], fontsize=10.5, **look)
        if title:
            top = (above + cell * height + 0.3) / size[1]
            figure.text(middle[0] / size[0], top, title, fontsize=12, **look)


def draw_lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    path: Path | str,
    *,
    x_label: str = "",
    y_label: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    markers: bool = True,
) -> None:
    """Draw curves, one for each label.

    Args:
        series: {label: (xs, ys)}, both of one length. path: where the PNG goes.
        x_label, y_label, title: what is measured, with its unit. log_x, log_y: logarithmic axes.
        markers: a sign at each point; leave them out where points are many.

    Raises `ConfigError` for nothing to draw, and for xs and ys of different lengths.
    """
    if not series:
        raise ConfigError("series is empty; give at least one {label: (xs, ys)}.")
    points = {name: (_vector(xs, name), _vector(ys, name)) for name, (xs, ys) in series.items()}
    for name, (xs, ys) in points.items():
        if len(xs) != len(ys):
            raise ConfigError(
                "series {name!r} has {count} xs and {ys} ys; give as many of each.",
                name=name,
                count=len(xs),
                ys=len(ys),
            )
    with canvas(path, 6.4, 3.8, dpi=DPI) as figure:
        axes = figure.add_subplot()
        for index, (name, (xs, ys)) in enumerate(points.items()):
            look = line_look(index) if markers else {**line_look(index), "marker": None}
            axes.plot(xs, ys, markersize=5, linewidth=1.8, label=name, **look)
        axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
        for axis in [axes.xaxis] * log_x + [axes.yaxis] * log_y:
            _label_powers(axis)
        measured = sorted({float(x) for xs, _ in points.values() for x in xs})
        if log_x and len(measured) <= 9:
            axes.set_xticks(measured, [_short(x) for x in measured])
            axes.set_xticks([], minor=True)
        _dress(axes, x_label, y_label, title)
        if any(points):
            axes.legend(frameon=False, fontsize=9.5)


def draw_boxes(
    rows: Mapping[str, Sequence[tuple[str, float]]], path: Path | str, *, title: str = "", unit: float = 0.5
) -> None:
    """Draw sequences as rows of boxes, one below the other, e.g. one text in the tokens of several tokenizers.

    Args:
        rows: {label: boxes}; a box is its text and its width. Boxes at the same distance from the left stand below
            each other, so that widths can show which part of the text a token covers.
        path: where the PNG goes. title: above. unit: inches for a width of 1; less where the picture would be too wide.

    Raises `ConfigError` for nothing to draw, and for a box without a width.
    """
    if not rows or not all(rows.values()):
        raise ConfigError("rows is empty, or one of its rows is; give at least one box for each label.")
    thin = next((text for boxes in rows.values() for text, width in boxes if not width > 0), None)
    if thin is not None:
        raise ConfigError("the box {text!r} has no width; give a width above 0.", text=thin)
    widest = max(sum(width for _, width in boxes) for boxes in rows.values())
    unit = min(unit, (WIDEST - 1.2) / widest)
    height = 0.55  # inches of a row
    with canvas(path, unit * widest + 1.4, height * len(rows) + 0.7, dpi=DPI, tight=True) as figure:
        axes = figure.add_subplot()
        for row, boxes in enumerate(rows.values()):
            left = 0.0
            for index, (text, width) in enumerate(boxes):
                axes.barh(row, width, 0.72, left, color=BOXES[index % 2], edgecolor="white", linewidth=1.5)
                columns = sum(1.0 if unicodedata.east_asian_width(char) in "WF" else 0.6 for char in text)
                size = min(10.0, 0.92 * unit * width * 72 / max(columns, 0.6))
                axes.text(left + width / 2, row, text, ha="center", va="center", fontsize=size, color=INK)
                left += width
        axes.set(xlim=(0, widest), ylim=(len(rows) - 0.5, -0.5))
        axes.set_yticks(range(len(rows)), list(rows), fontsize=9.5, color=INK)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if title:
            axes.set_title(title, fontsize=12, color=INK, pad=10)


def _axes_at(
    figure: Figure, size: tuple[float, float], left: float, bottom: float, width: float, height: float
) -> Axes:
    """Axes at a fixed place, all in inches. size: of the figure."""
    return figure.add_axes((left / size[0], bottom / size[1], width / size[0], height / size[1]))


def _heatmap(
    axes: Axes,
    matrix: np.ndarray[Any, Any],
    colour_range: tuple[float, float],
    diverging: bool,
    cell: float,
    numbers: bool,
) -> AxesImage:
    """Return the coloured cells of one matrix, with white lines between them and, if wanted, their numbers."""
    low, high = colour_range
    shown = np.ma.masked_invalid(matrix)
    axes.set_facecolor(MASKED)
    image = axes.imshow(shown, cmap="PuOr_r" if diverging else "Blues", vmin=low, vmax=high, aspect="equal")
    height, width = matrix.shape
    if max(matrix.shape) <= 2 * NUMBERED:
        axes.set_xticks(np.arange(0.5, width - 1), minor=True)
        axes.set_yticks(np.arange(0.5, height - 1), minor=True)
        axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    if numbers and width <= NUMBERED:
        whole = bool(np.all(shown == np.round(shown)))
        for (row, column), value in np.ma.ndenumerate(matrix):  # without those that are masked
            text = _short(value, whole)
            size = min(10.0, cell * 72 / (0.62 * max(len(text), 4)))
            dark = math.isfinite(value) and sum(image.to_rgba(value)[:3]) < 1.5
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color="white" if dark else INK)
    return image


def _label_cells(
    axes: Axes,
    shape: tuple[int, ...],
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    cell: float,
    with_rows: bool = True,
) -> None:
    """Tokens or numbers at the left and on top; of numbers without room for each, every second, fifth, tenth, ..."""
    axes.xaxis.tick_top()
    for axis, name, labels, count in (("y", "rows", rows, shape[0]), ("x", "columns", columns, shape[1])):
        if labels is not None and len(labels) != count:
            raise ConfigError(
                "{name} has {count} labels for {expected} {name}; give one for each.",
                name=name,
                count=len(labels),
                expected=count,
            )
        step = 1 if labels is not None else _step(count, cell)
        size = min(10.0, step * cell * 72 * 0.75)
        ticks = list(range(0, count, step))
        texts = [str(tick) for tick in ticks] if labels is None else [str(text) for text in labels]
        if axis == "x":
            axes.set_xticks(ticks, texts, fontsize=size, color=INK, **_slant(texts, step * cell, size))
        elif with_rows:
            axes.set_yticks(ticks, texts, fontsize=size, color=INK)
        else:
            axes.set_yticks([])


def _label_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """What the columns are, below, since their labels are above; and what the rows are, beside their labels."""
    axes.xaxis.set_label_position("bottom")
    axes.set_xlabel(x_label, fontsize=9.5, color=INK)
    axes.set_ylabel(y_label, fontsize=9.5, color=INK)


def _colour_bar(image: AxesImage, axes: Axes | list[Axes], label: str) -> None:
    figure = image.get_figure(root=True)
    assert figure is not None  # it was just drawn on one
    bar = figure.colorbar(image, ax=axes, shrink=0.85, aspect=22, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=INK, length=2)
    bar.set_label(label, fontsize=9.5, color=INK)


def _step(count: int, cell: float) -> int:
    """Return every how many rows there is room for a number."""
    return next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if step * cell > 0.24), count)


def _label_powers(axis: Axis) -> None:
    """The ticks of a logarithmic axis: 0.01, 100, and powers further out; between them only if the axis is short.

    The labels of matplotlib's own have a minus sign that common Korean fonts lack; the one within $...$ comes with it.
    """

    def power(value: float, _: float) -> str:
        exponent = round(math.log10(value))
        return f"{value:,g}" if abs(exponent) <= 3 else f"$10^{{{exponent}}}$"

    def between(value: float, _: float) -> str:
        low, high = sorted(axis.get_view_interval())
        return f"{value:,.3g}" if high < 20 * low else ""

    axis.set_major_formatter(power)
    axis.set_minor_formatter(between)


def _dress(axes: Axes, x_label: str, y_label: str, title: str) -> None:
    """Title, labels and a quiet frame."""
    axes.set_title(title, fontsize=12, color=INK, pad=10)
    axes.set_xlabel(x_label, fontsize=10, color=INK)
    axes.set_ylabel(y_label, fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#8a8a8a")
    axes.tick_params(colors=INK, labelsize=9, length=3)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)


def _colour_range(matrices: Sequence[np.ndarray[Any, Any]], diverging: bool) -> tuple[float, float]:
    """Return what the palest and the darkest colour stand for: from zero for amounts, around zero for both signs."""
    finite = np.concatenate([np.ma.masked_invalid(matrix).compressed() for matrix in matrices])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if diverging:
        reach = max(abs(low), abs(high)) or 1.0
        return -reach, reach
    low = min(low, 0.0)
    return low, high if high > low else low + 1.0


def _matrix(values: ArrayLike, name: str) -> np.ndarray[Any, Any]:
    matrix = _numbers(values, name)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ConfigError(
            "{name} has the shape {shape}; give a matrix (T, S), e.g. one head of one text.",
            name=name,
            shape=matrix.shape,
        )
    return matrix


def _masked(
    matrix: np.ndarray[Any, Any], mask: ArrayLike | None, name: str
) -> np.ma.MaskedArray[Any, Any] | np.ndarray[Any, Any]:
    """Return the matrix (T, S), with the cells masked in which `mask` is False."""
    if mask is None:
        return matrix
    seen = _numbers(mask, name) != 0
    try:
        return np.ma.masked_array(matrix, ~np.broadcast_to(seen, matrix.shape))
    except ValueError:
        raise ConfigError(
            "{name} has the shape {given}, which does not broadcast to that of the matrix, {shape}.",
            name=name, given=seen.shape, shape=matrix.shape,
        ) from None  # fmt: skip


def _vector(values: ArrayLike, name: str) -> np.ndarray[Any, Any]:
    vector = _numbers(values, name)
    if vector.ndim != 1:
        raise ConfigError("{name!r} has the shape {shape}; give a list of numbers.", name=name, shape=vector.shape)
    return vector


def _numbers(values: Any, name: str) -> np.ndarray[Any, Any]:
    """Any tensor (on any device, of any type, with a gradient), array or list as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("{name!r} is not made of numbers, or its rows are of different lengths.", name=name) from None


def _short(value: float, whole: bool | None = None) -> str:
    """Return a number as short as it can be read: 3, 0.25, 12.5, 4,800, -∞."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    digits = (
        0 if whole or abs(value) >= 1000 or (whole is None and value == round(value)) else 1 if abs(value) >= 10 else 2
    )
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # + 0.0: no -0.00


def _slant(texts: Sequence[str], room: float, size: float) -> dict[str, Any]:
    """Return how to write labels side by side above an axis: slanted where they would touch each other.

    room: inches for each. size: of the letters, in points.
    """
    widest = max(sum(1.0 if unicodedata.east_asian_width(char) in "WF" else 0.6 for char in text) for text in texts)
    if (widest + 0.5) * size <= room * 72:
        return {}
    return {
        "rotation": 35 if room * 72 > 2 * size else 60,
        "rotation_mode": "anchor",
        "ha": "left",
    }
