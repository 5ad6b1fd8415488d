"""`jumok doctor`: what is whole in a run folder, or in this installation, and what to do about the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from jumok.cli.commands import Verb, common
from jumok.cli.console.output import print_json, say
from jumok.messages import tr

DAMAGED = 1  # the exit code if something is damaged or missing
SIGNS = {"ok": "✓", "note": "·", "damaged": "✗", "problem": "✗"}


@click.command(
    cls=Verb,
    short_help="Examine a run folder, or this installation.",
    examples="""
    jumok doctor
    jumok doctor runs/novel
    jumok doctor runs/novel --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path), required=False)
@common(device=False)
def doctor(run: Path | None, as_json: bool, quiet: bool) -> None:
    """Examine a run folder, or without RUN this installation.

    Of a run, the files of the model and the training states are read as when it is loaded and resumed. Nothing is
    changed. The exit code is 0 if all is whole, and 1 otherwise.
    """
    if not (_installation(as_json) if run is None else _run(run, as_json, quiet)):
        raise click.exceptions.Exit(DAMAGED)


def _run(path: Path, as_json: bool, quiet: bool) -> bool:
    from jumok.runs.examine import examine

    found = examine(path)
    if as_json:
        print_json({"run": str(path), "whole": found.whole, **asdict(found)})
        return found.whole
    _show([(one.condition, one.file, one.text, one.remedy) for one in found.findings])
    say(tr("The model can be used.") if found.usable else tr("The model cannot be used as it is."), quiet=quiet)
    if found.resumable is not None:
        say(tr("The newest whole training state is of step {step:,}.", step=found.resumable), quiet=quiet)
    return found.whole


def _installation(as_json: bool) -> bool:
    from jumok.cli.installation import examine_installation

    findings = examine_installation()
    well = all(one.condition != "problem" for one in findings)
    if as_json:
        print_json({"well": well, "findings": [one._asdict() for one in findings]})
    else:
        _show([(one.condition, tr(one.name), one.text, one.remedy) for one in findings])
    return well


def _show(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print a row for each finding: a sign, its name, what was found, and in a line of its own what to do."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from jumok.text import with_signs

    signs = SIGNS if _can_show("".join(SIGNS.values())) else {"ok": "ok", "note": "-"}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("sign", "name", "text"):
        table.add_column(name, overflow="fold")
    for condition, name, text, remedy in rows:
        sign = signs.get(condition, "!!")
        lines = f"{text}\n→ {remedy}" if remedy else text
        table.add_row(sign, Text(with_signs(name)), Text("\n".join(map(with_signs, lines.split("\n")))))
    Console(file=sys.stdout).print(table)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
