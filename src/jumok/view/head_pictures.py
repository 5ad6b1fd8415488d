"""Attention weights as a picture: the heads of one layer, or all of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.view.canvas import INK, MASKED, canvas
from jumok.view.token_text import shortened
from jumok.view.trace import Trace, attention_of
from jumok.view.traced_attention import Attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DPI = 130
PER_ROW = 4  # heads of a layer side by side
WIDEST = 11.0  # inches, of a layer
THUMBNAIL = 0.92  # inches, of a head among all
LARGEST = 14.0  # inches, of all heads together
LONGEST_LABEL = 8  # characters of a token
ROOM = 0.15  # inches that a label needs
FRAME = "#c9c9c9"


def draw_heads(
    trace: Trace,
    path: Path | str,
    *,
    block: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draw attention weights: a row for each query, a column for each key.

    Colours grow with the square root of a weight, so that small ones can be seen. Masked cells are grey.

    Args:
        trace: of which the weights are drawn. path: where the picture goes, as PNG, SVG or PDF by its suffix.
        block: "self", "encoder", "decoder" or "cross"; None: the first that there is, but "cross" of an
            encoder–decoder. layer: its heads, with the tokens beside them; None: all layers, small. head: of the
            layer, this one alone.

    Raises:
        ConfigError: the trace has no such block, layer or head; a head is named and no layer; or `path` has
            another suffix, or no folder.
    """
    attention = attention_of(trace, block, layer, head)
    if head is not None and layer is None:
        raise ConfigError("head={head} was given without a layer; name the layer too.", head=head)
    if layer is None:
        _draw_all(trace, attention, path)
    else:
        _draw_layer(trace, attention, path, layer, attention.heads if head is None else (head,))


def _draw_layer(trace: Trace, attention: Attention, path: Path | str, layer: int, heads: Sequence[int]) -> None:
    """Draw the heads of a layer side by side, with labels."""
    weights = attention.weights(layer)  # (H, T, S)
    t, s = attention.t, attention.s
    beside, above = 0.75, 0.95  # inches of labels and titles
    # Two side by side where that gives each token its label.
    across = PER_ROW if (WIDEST / PER_ROW - beside) / s >= ROOM or (WIDEST / 2 - beside) / s < ROOM else 2
    across = min(across, len(heads))
    down = math.ceil(len(heads) / across)
    cell = min(0.34 if len(heads) > 1 else 0.5, (WIDEST / across - beside) / s, 7.5 / t)
    cell = max(cell, 1.6 / max(t, s))
    size = (across * (cell * s + beside) + 0.9, down * (cell * t + above) + 0.5)
    rows, columns = _labels(trace, attention.queries), _labels(trace, attention.keys)
    with canvas(path, *size, dpi=DPI) as figure:
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(heads):
                axes.remove()
                continue
            number = attention.heads.index(heads[place])
            image = _paint(axes, weights[number], attention.causal)
            axes.set_title(tr("head {head}", head=heads[place]), fontsize=10, color=INK, pad=5)
            _label(axes, rows, columns, cell)
        _describe(figure, image, _title(trace, attention, tr("layer {layer}", layer=layer)))


def _draw_all(trace: Trace, attention: Attention, path: Path | str) -> None:
    """Draw all layers and heads, small and without tokens."""
    across, down = len(attention.heads), len(attention.layers)
    side = min(THUMBNAIL, LARGEST / max(across, down))
    width, height = max(across * side, 2.2) + 1.5, down * side + 0.9
    with canvas(path, width, height, dpi=DPI) as figure:
        grid = figure.subplots(down, across, squeeze=False)
        for row, layer in enumerate(attention.layers):
            weights = attention.weights(layer)  # (H, T, S)
            for column, head in enumerate(attention.heads):
                axes = grid[row, column]
                image = _paint(axes, weights[column], attention.causal, aspect="auto")
                axes.set_xticks([])
                axes.set_yticks([])
                if row == 0:
                    axes.set_title(
                        tr("head {head}", head=head) if column == 0 else str(head), fontsize=9, color=INK, pad=4
                    )
                if column == 0:
                    axes.set_ylabel(tr("layer {layer}", layer=layer) if row == 0 else str(layer), fontsize=9, color=INK)
        _describe(figure, image, _title(trace, attention))


def _paint(axes: Axes, weights: np.ndarray[Any, Any], causal: bool, aspect: str = "equal") -> AxesImage:
    """One matrix (T, S), the future grey."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm

    t, s = weights.shape
    hidden = np.triu(np.ones((t, s), np.bool_), s - t + 1) if causal else np.zeros((t, s), np.bool_)
    colours = colormaps["Blues"].with_extremes(bad=MASKED)
    image = axes.imshow(
        np.ma.masked_array(weights, hidden), cmap=colours, norm=PowerNorm(0.5, 0.0, 1.0), aspect=aspect,  # type: ignore[arg-type]
        interpolation="nearest" if max(t, s) <= 200 else "antialiased",
    )  # fmt: skip
    axes.spines[:].set_color(FRAME)
    axes.tick_params(length=0, colors=INK)
    return image


def _labels(trace: Trace, sequence: int) -> list[str]:
    return [shortened(token["text"], LONGEST_LABEL) for token in trace.sequences[sequence]["tokens"]]


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str], cell: float) -> None:
    """Write tokens beside and below, every second one or fewer where there is no room for all."""
    step = max(1, math.ceil(ROOM / cell))
    size = min(9.0, 60 * cell * step)
    axes.set_yticks(range(0, len(rows), step), rows[::step], fontsize=size)
    axes.set_xticks(range(0, len(columns), step), columns[::step], fontsize=size)
    for label in axes.get_xticklabels():
        label.set_rotation(90 if len(label.get_text()) > 1 else 0)


def _describe(figure: Figure, image: AxesImage, title: str) -> None:
    """Write the title and the names of the axes, and draw the colour bar."""
    figure.suptitle(title, fontsize=11, color=INK)
    figure.supxlabel(tr("key"), fontsize=10, color=INK)
    figure.supylabel(tr("query"), fontsize=10, color=INK)
    bar = figure.colorbar(image, ax=figure.axes, fraction=0.03, pad=0.02, ticks=[0, 0.05, 0.25, 0.5, 1])
    bar.ax.tick_params(labelsize=8, colors=INK, length=2)
    bar.set_label(tr("attention weight"), fontsize=9, color=INK)


def _title(trace: Trace, attention: Attention, *more: str) -> str:
    return " · ".join((trace.model["name"], *([] if attention.block == "self" else [attention.block]), *more))
