"""What `jumok train --find-rate` prints, on stdout."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from jumok.messages import tr
from jumok.training.range_test import RangeTest

ROWS = 12  # of the table, besides that of the lowest loss


def show_rates(found: RangeTest) -> None:
    """Print some points of the curve, the one with the lowest loss among them, and the options to use."""
    both = found.optimizer == "muon"
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("--learning-rate", *(("--matrix-learning-rate",) if both else ()), tr("loss"), ""):
        table.add_column(heading, justify="right")
    last = len(found.points) - 1
    shown = sorted({found.lowest, *(round(i * last / max(1, ROWS - 1)) for i in range(ROWS))})
    for index in shown:
        point = found.points[index]
        rates = [point.learning_rate, *([point.matrix_learning_rate] if both else [])]
        sign = tr("lowest") if index == found.lowest else ""
        table.add_row(*(f"{rate:.1e}" for rate in rates), f"{point.smoothed:.3f}", sign)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if not found.diverged:
        console.print(tr("The loss did not rise again, so a higher rate may do as well."))
    options = f"--learning-rate {found.learning_rate:.1e}"
    if both:
        options += f" --matrix-learning-rate {found.matrix_learning_rate:.1e}"
    console.print(tr("A tenth of the rate of the lowest loss: {options}", options=options))
