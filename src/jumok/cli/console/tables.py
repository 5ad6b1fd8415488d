"""Figures and the catalogue of corpora as tables, on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jumok.corpora.catalogue import Corpus
from jumok.messages import message, tr
from jumok.text import with_signs


def show_figures(figures: Mapping[str, Any]) -> None:
    """Print names and numbers, one per line."""
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(name, _figure(value))
    Console().print(table)


def show_models(rows: Sequence[Mapping[str, Any]], figures: Sequence[str]) -> None:
    """Print a line for each model: its name and the figures that any of them has."""
    shown = [name for name in figures if any(row.get(name) is not None for row in rows)]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(tr("model"), overflow="fold")
    for name in shown:
        heading = tr("parameters") if name == "parameters" else name
        table.add_column(heading.replace("_per_second", "/s").replace("_per_", "/"), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(row["name"]), *("–" if row.get(name) is None else _figure(row[name]) for name in shown))
    Console().print(table)


def show_skills(models: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a line for each skill: how many answers are judged, and what share of them is right, in percent, by model.

    Args:
        models: by name, the figures of each skill as `jumok.evaluation.chat.Share` has them.
    """
    _show_shares(models, tr("skill"), tr("right, %"), [])


def show_free(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each kind of free messages, as `show_skills`, and lines for all of them.

    Args:
        models: by name, "all" and "kinds" with the figures of `jumok.evaluation.chat.Share`.
    """
    shares = [free["all"] for free in models.values()]
    lines = [[tr("all"), f"{shares[0]['answers']:,}", *map(_share_cell, shares)]]
    for outcome in (message("wrong"), message("empty"), message("looping")):
        counts = [one[outcome] for one in shares]
        cells = [
            f"{count / one['answers']:.1%} ({count:,})".replace("%", "")
            for count, one in zip(counts, shares, strict=True)
        ]
        lines.append([tr(outcome), "", *cells])
    kinds = {name: free["kinds"] for name, free in models.items()}
    _show_shares(kinds, tr("free messages"), tr("fitting or honest, %"), lines)


def _show_shares(
    models: Mapping[str, Mapping[str, Mapping[str, float]]], what: str, share: str, last: Sequence[Sequence[str]]
) -> None:
    """Print a line for each skill or kind, and last lines. what, share: headings; the second of a single model."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(what)
    table.add_column(tr("answers"), justify="right")
    for name in models:
        table.add_column(Text(name or share), justify="right")
    for skill in dict.fromkeys(skill for shares in models.values() for skill in shares):
        found = [shares.get(skill) for shares in models.values()]
        cells = ["–" if one is None else _share_cell(one) for one in found]
        table.add_row(Text(skill), f"{max(one['answers'] for one in found if one):,}", *cells)
    for line in last:
        table.add_row(*line)
    Console().print(table)


def _share_cell(share: Mapping[str, float]) -> str:
    return f"{share['right']:.1%} ± {share['error']:.1%}".replace("%", "")


def show_candidates(masks: Sequence[Sequence[tuple[int, str, float]]]) -> None:
    """Print a row for each candidate of each mask. A token of white space is shown as a Python string."""
    table = Table(box=None, header_style="bold")
    for heading in (tr("blank"), tr("probability")):
        table.add_column(heading, justify="right")
    table.add_column(tr("token"))
    for number, candidates in enumerate(masks, 1):
        for place, (_, token, share) in enumerate(candidates):
            table.add_row("" if place else str(number), f"{share:.1%}", Text(with_signs(token.strip() or repr(token))))
    Console().print(table)


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 1000 else f"{value:.4f}"
    return str(value)


def show_corpora(built_in: Mapping[str, str], corpora: Iterable[Corpus]) -> None:
    """Print the built-in corpora, each with what it is, and the catalogue."""
    table = Table(box=None, header_style="bold")
    table.add_column(tr("name"))
    table.add_column(tr("size"), justify="right")
    for heading in (tr("what"), tr("licence")):
        table.add_column(heading)
    for name, what in built_in.items():
        table.add_row(name, tr("any"), f"{tr(what)} (jumok corpus write {name})", "Apache-2.0")
    for corpus in corpora:
        table.add_row(corpus.name, f"{corpus.bytes / 1e6:.1f} MB", tr(corpus.title), tr(corpus.licence))
    Console().print(table)
