"""How things look in a terminal. Everything but figures and lists goes to stderr."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import set_cell_size
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.table import Table
from rich.text import Text as Line

from jumok.corpora.catalogue import Corpus
from jumok.interpret.ablation import Ablation, Ranking
from jumok.lessons.chapters import Language
from jumok.lessons.ladder.record import LadderRecord
from jumok.lessons.ladder.report import table as table_of
from jumok.lessons.ladder.run import LadderEvent, RungFinished, RungStarted
from jumok.lessons.ladder.rungs import RUNGS
from jumok.lessons.ladder.words import say
from jumok.messages import tr
from jumok.runs.events import Eval, Notice, Step
from jumok.text import with_signs
from jumok.training.explanation import Explanation
from jumok.training.progress import BarView, beside_bar, clock, moving_bar, on_one_line
from jumok.view.pieces import visible
from jumok.view.probes import Row


class DownloadView(BarView):
    """A progress bar for a download."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            console=console, transient=True, disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)

    def show(self, done: int, total: int) -> None:
        """Bytes so far, of how many."""
        self._bar.update(self._task, completed=done, total=total)


def show_figures(figures: Mapping[str, Any]) -> None:
    """Names and numbers, one a line, on stdout."""
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(name, _figure(value))
    Console().print(table)


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 1000 else f"{value:.4f}"
    return str(value)


def show_explanation(found: Explanation) -> None:
    """What a run would do, and why, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    if math.isfinite(found.seconds):
        length = tr(
            "about {steps:,} steps in {clock}, {passes:.1f} passes over the text",
            steps=found.steps,
            clock=clock(found.seconds),
            passes=found.passes,
        )
    else:
        length = tr("there is too little memory for a single step: give a smaller {--batch-size} or {--size}")
    rows = {
        tr("model"): tr(
            "{model}, {millions:.1f} M parameters, {flops:.1f} MFLOP a token, forward and backward",
            model=found.model,
            millions=found.parameters / 1e6,
            flops=found.flops_per_token / 1e6,
        ),
        tr("text"): tr("{tokens:,} tokens to train on", tokens=found.train_tokens),
        tr("machine"): tr("{device}, {threads} threads", device=found.device, threads=found.threads),
        tr("memory"): tr(
            "about {all:,.0f} MB: {parameters:,.0f} parameters, {gradients:,.0f} gradients, {moments:,.0f} moments, "
            "{kept:,.0f} kept for the backward pass",
            all=sum(found.memory.values()) / 1e6,
            **{name: size / 1e6 for name, size in found.memory.items()},
        ),
    }
    _show_rows(console, rows)
    console.print(Line("\n" + tr("A step of {tokens:,} tokens, not compiled", tokens=found.tokens_per_step) + "\n"))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in (tr("precision"), tr("attention")):
        table.add_column(heading, no_wrap=True)
    for heading in (tr("seconds"), tr("tokens/s")):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in found.candidates:
        if not math.isfinite(one.seconds):
            table.add_row(one.precision, one.attention, "", "", tr("too little memory"))
            continue
        seconds = f"{one.seconds:.3f}"
        speed = f"{found.tokens_per_step / one.seconds:,.0f}"
        table.add_row(one.precision, one.attention, seconds, speed, tr("chosen") if one.chosen else "")
    console.print(table)
    console.print()
    names = {
        "precision": tr("precision"), "attention": tr("attention"), "compile": tr("compile"), "dropout": tr("dropout"),
    }  # fmt: skip
    _show_rows(console, {names[name]: f"{word}: {why}" for name, (word, why) in found.choices.items()})
    _show_rows(console, {tr("length"): length})


def _show_rows(console: Console, rows: Mapping[str, str]) -> None:
    for name, text in rows.items():
        console.print(Line.assemble((set_cell_size(name, 11), "dim"), text))


def show_corpora(corpora: Iterable[Corpus]) -> None:
    """The catalogue, on stdout."""
    table = Table(box=None, header_style="bold")
    table.add_column(tr("name"))
    table.add_column(tr("size"), justify="right")
    for heading in (tr("what"), tr("licence")):
        table.add_column(heading)
    stories = tr("short tales, built in (jumok corpus write stories)")
    numbers = tr("digits and how they are read, built in (jumok corpus write numbers)")
    for name, what in (("stories", stories), ("numbers", numbers)):
        table.add_row(name, tr("any"), what, "Apache-2.0")
    for corpus in corpora:
        table.add_row(corpus.name, f"{corpus.bytes / 1e6:.1f} MB", corpus.title, corpus.licence)
    Console().print(table)


class LadderView(BarView):
    """Shows the events of a ladder: a live bar for each rung in a terminal, a line for each quarter anywhere else."""

    def __init__(self, language: Language, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._language = language
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._bar = moving_bar(self._console, disable=not self._live)
        self._task = self._bar.add_task("", total=1.0)
        self._place = ""
        self._held_out = ""
        self._quarters = 0

    def say(self, text: str, style: str = "") -> None:
        """A line above the bar."""
        if not self.quiet:
            self._console.print(Line(with_signs(text), style=style))

    def show(self, event: LadderEvent) -> None:
        """Show one event."""
        match event:
            case RungStarted():
                self._start(event)
            case RungFinished():
                self._finish(event)
            case Step():
                self._bar.update(self._task, completed=event.progress, description=self._describe(event))
                if event.skipped:
                    self.say(f"  {self._say('skipped', step=event.step)}")
                self._quarter(event)
            case Eval():
                self._held_out = self._say("held_out", loss=event.figures["nats_per_char"])
            case Notice():
                self.say(f"  {event.text}")

    def _say(self, key: str, **values: object) -> str:
        return say(key, self._language, **values)

    def _start(self, event: RungStarted) -> None:
        self._held_out, self._quarters = "", 0
        self._place = f"{event.number}/{len(RUNGS)}"
        self._bar.reset(self._task)
        self._bar.update(self._task, description=self._place)
        title, adds = event.rung.title[self._language], event.rung.adds[self._language]
        self.say(f"\n{self._place} {title}: {adds}", style="bold")
        facts = [self._say("started", parameters=event.parameters)]
        if event.step:
            facts.append(self._say("continued", step=event.step))
        self.say(f"  {' · '.join(facts)}")
        self._sample("before", event.before)

    def _describe(self, step: Step) -> str:
        speed, left = self._say("speed", speed=step.tokens_per_second), self._say("left", clock=clock(step.remaining))
        return beside_bar(self._console, self._place, left, f"{step.loss:.3f}", speed)

    def _quarter(self, step: Step) -> None:
        if not self._live and int(4 * step.progress) > self._quarters:
            self._quarters = int(4 * step.progress)
            parts = [f"{step.progress:.0%}", self._say("step", step=step.step), clock(step.seconds), self._held_out]
            self.say(f"  {' · '.join(part for part in parts if part)}")

    def _finish(self, event: RungFinished) -> None:
        if event.earlier:
            title = event.rung.title[self._language]
            figure = self._say("held_out", loss=event.result.nats_per_char)
            self.say(f"{event.number}/{len(RUNGS)} {title}: {self._say('earlier')} · {figure}")
            return
        self._sample("after", event.result.after)
        figure = self._say("held_out", loss=event.result.nats_per_char)
        self.say(f"  {figure} · {self._say('speed', speed=event.result.tokens_per_second)}")
        self.say(f"  {event.meaning}", style="dim")

    def _sample(self, when: str, text: str) -> None:
        if text and not self.quiet:
            self._console.print(Line.assemble((f"  {self._say(when)}: ", "dim"), (on_one_line(text), "italic")))


WHOLE_LADDER = 72  # columns, from which the last one of the ladder's table has room


def show_ladder(record: LadderRecord, language: Language) -> None:
    """The table of a ladder, on stdout."""
    console = Console(highlight=False)
    headings, rows = table_of(record, language)
    columns = len(headings) if console.width >= WHOLE_LADDER else len(headings) - 1
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings[:columns]):
        table.add_column(heading, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row[:columns])
    console.print(table)


MOST_HEADS = 40  # in the table of probes; of more, the first and the last ones are shown


def show_probes(ranking: Ranking, rows: Sequence[Row]) -> None:
    """Which heads matter for a text, on stdout: the heads by what the loss is without them."""
    console = Console(highlight=False)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    blocks = len({row.head.block for row in rows}) > 1
    copies = any(row.induction is not None for row in rows)
    if blocks:
        table.add_column(tr("block"), no_wrap=True)
    headings = [
        tr("layer"), tr("head"), "Δ nats", tr("entropy"), tr("distance"), tr("first"), tr("previous"), tr("itself"),
    ]  # fmt: skip
    for heading in (*headings, *([tr("induction")] if copies else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    shown: list[Row | None] = list(rows)
    if len(rows) > MOST_HEADS:
        shown[MOST_HEADS * 3 // 4 : len(rows) - MOST_HEADS // 4] = [None]
    for row in shown:
        if row is None:
            table.add_row("…")
            continue
        numbers = [f"{row.entropy:.2f}", _or_blank(row.distance, ".1f")]
        numbers += [_or_blank(share, ".0%") for share in (row.first, row.previous, row.self)]
        numbers += [_or_blank(row.induction, ".0%")] if copies else []
        place = [row.head.block] if blocks else []
        table.add_row(*place, str(row.head.layer), str(row.head.head), f"{row.delta_nats:+.4f}", *numbers)
    console.print(table)
    loss = tr(
        "The loss with all heads is {nats:.4f} nats/token ({tokens:,} tokens).",
        nats=ranking.nats,
        tokens=ranking.tokens,
    )
    console.print(f"\n{loss}", style="dim")
    meanings = {
        "Δ nats": tr("by how much it grows when this head is switched off"),
        tr("entropy"): tr("of the weights, in nats: 0 looks at one token"),
        tr("distance"): tr("how many tokens away the head looks"),
        tr("first ..."): tr("share that goes to the first token, the one before, itself"),
    }
    if copies:
        meanings[tr("induction")] = tr("share that goes behind the earlier one of random tokens that come twice")
    for name, meaning in meanings.items():
        console.print(f"  {set_cell_size(name, 11)}{meaning}", style="dim")


def show_ablation(heads: str, found: Ablation) -> None:
    """What switching heads off changes, on stdout: the loss, and what was likely to come next."""
    console = Console(highlight=False)
    console.print(
        "\n"
        + tr(
            "Without {heads}: {without:.4f} nats/token instead of {nats:.4f} ({change:+.4f})",
            heads=heads,
            without=found.nats_without,
            nats=found.nats,
            change=found.nats_without - found.nats,
        ),
        markup=False,
    )
    if not found.candidates:
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(tr("next token"), no_wrap=True)
    for heading in (tr("all heads"), tr("without")):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.candidates:
        table.add_row(Line(visible(one.token)), f"{one.probability:.2%}", f"{one.without:.2%}")
    console.print(table)


def _or_blank(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
