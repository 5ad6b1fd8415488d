"""Which heads matter for a text, on stdout: the table of `jumok view --probe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import set_cell_size
from rich.console import Console
from rich.table import Table

from jumok.interpret.ablation import Ranking
from jumok.messages import tr

MOST_HEADS = 40  # rows of the table; of more heads, the first and the last ones are shown


def show_probes(ranking: Ranking, rows: Sequence[dict[str, Any]]) -> None:
    """Print a row per head, in the order of `rows`: the change of the loss without it, and where it attends."""
    console = Console(highlight=False)
    copies = any(row["induction"] is not None for row in rows)
    console.print(_probe_table(rows, copies))
    loss = tr(
        "The loss with all heads is {nats:.4f} nats/token ({tokens:,} tokens).",
        nats=ranking.nats,
        tokens=ranking.tokens,
    )
    console.print(f"\n{loss}", style="dim")
    meanings = {
        "Δ nats": tr("increase of the loss when the head is ablated"),
        tr("entropy"): tr("entropy of the weights in nats; 0: all weight on one token"),
        tr("distance"): tr("mean distance of the attended tokens"),
        tr("first ..."): tr("weight of the first token, of the previous token, of the token itself"),
    }
    if copies:
        meanings[tr("induction")] = tr("on repeated random tokens: weight of the token after the earlier occurrence")
    for name, meaning in meanings.items():
        console.print(f"  {set_cell_size(name, 11)}{meaning}", style="dim")


def _probe_table(rows: Sequence[dict[str, Any]], copies: bool) -> Table:
    """copies: whether the heads have induction scores."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    blocks = len({row["block"] for row in rows}) > 1
    if blocks:
        table.add_column(tr("block"), no_wrap=True)
    headings = [
        tr("layer"), tr("head"), "Δ nats", tr("entropy"), tr("distance"), tr("first"), tr("previous"), tr("itself"),
    ]  # fmt: skip
    for heading in (*headings, *([tr("induction")] if copies else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    shown: list[dict[str, Any] | None] = list(rows)
    if len(rows) > MOST_HEADS:
        shown[MOST_HEADS * 3 // 4 : len(rows) - MOST_HEADS // 4] = [None]
    for row in shown:
        if row is None:
            table.add_row("…")
            continue
        numbers = [f"{row['entropy']:.2f}", _or_blank(row["distance"], ".1f")]
        numbers += [_or_blank(row[share], ".0%") for share in ("first", "previous", "self")]
        numbers += [_or_blank(row["induction"], ".0%")] if copies else []
        place = [row["block"]] if blocks else []
        table.add_row(*place, str(row["layer"]), str(row["head"]), f"{row['delta_nats']:+.4f}", *numbers)
    return table


def _or_blank(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
