"""Pictures of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jumok.messages import tr
from jumok.view.canvas import canvas, line_look

MOST_IN_ONE_COLUMN = 8  # names of lines


def draw_loss_by_position(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], path: Path) -> None:
    """Draw the loss of several models by the length of the context.

    Args:
        curves: by the name of the model: characters of context, rising, and nats per character. path: where the
            picture goes, as PNG, SVG or PDF.

    Raises:
        ConfigError: the suffix is another one, or the folder of `path` does not exist.
    """
    from matplotlib.ticker import LogLocator, NullFormatter  # slow to import

    with canvas(path, 8, 4.8, dpi=120) as figure:
        axes = figure.add_subplot()
        for number, (name, (xs, ys)) in enumerate(curves.items()):
            axes.plot(xs, ys, label=name, markersize=4.5, linewidth=1.6, **line_look(number))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.02)
        axes.set_xlabel(tr("characters of context"))
        axes.set_ylabel(tr("loss ({unit})", unit="nats/char"))
        axes.grid(alpha=0.25)
        legend = axes.legend(frameon=False, fontsize=9, ncols=1 + (len(curves) - 1) // MOST_IN_ONE_COLUMN)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name may have two $
