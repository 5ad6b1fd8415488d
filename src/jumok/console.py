"""How things look in a terminal. Everything but figures and lists goes to stderr."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text as Line

from jumok.checkpoint import RunFolder
from jumok.corpora.catalogue import Corpus
from jumok.lessons.chapters import Language
from jumok.lessons.ladder import LadderEvent, RungFinished, RungStarted
from jumok.lessons.record import LadderRecord
from jumok.lessons.report import table as table_of
from jumok.lessons.rungs import RUNGS
from jumok.lessons.words import say
from jumok.messages import tr
from jumok.plan import Explanation
from jumok.probe import Ablation, Ranking
from jumok.speed import Bench
from jumok.text import with_signs
from jumok.trainer import Eval, Event, Finish, Notice, Sample, Stage, Step
from jumok.view.pieces import visible
from jumok.view.probes import Row

NOTEBOOK_BAR = 24  # characters


def _bar_width(console: Console) -> int:
    return 24 if console.width >= 100 else 12


def _moving_bar(console: Console, *, disable: bool) -> Progress:
    """A bar, its percentage, and what is said beside them."""
    columns = (
        BarColumn(bar_width=_bar_width(console)),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}", markup=False),
    )
    return Progress(*columns, console=console, transient=True, disable=disable)


def _room(console: Console) -> int:
    """Columns that are left beside a bar and its percentage."""
    return max(1, console.width - _bar_width(console) - len(" 100% "))


def _beside_bar(console: Console, *parts: str) -> str:
    """Those of the parts that fit into the line of the bar, the most important first."""
    room, line = _room(console), ""
    for part in filter(None, parts):
        longer = f"{line} · {part}" if line else part
        if cell_len(longer) <= room:
            line = longer
    return line


class _View:
    """Something with a bar, which moves while the view is open and is gone afterwards."""

    _bar: Progress

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class _NotebookBar:
    """A bar in a notebook, where rich has none without ipywidgets. It is text alone, so every front end shows it."""

    def __init__(self) -> None:
        display = importlib.import_module("IPython.display").display
        self._shown = time.monotonic()
        self._handle = display({"text/plain": tr("getting ready")}, raw=True, display_id=True)

    def update(self, share: float, text: str) -> None:
        """Show how far it is, at most four times a second."""
        if time.monotonic() - self._shown >= 0.25:
            self._shown = time.monotonic()
            done = round(NOTEBOOK_BAR * share)
            bar = "█" * done + "░" * (NOTEBOOK_BAR - done)
            self._handle.update({"text/plain": f"{bar} {share:4.0%} {with_signs(text)}"}, raw=True)

    def close(self) -> None:
        """Leave an empty line."""
        self._handle.update({"text/plain": ""}, raw=True)


class TrainingView(_View):
    """Shows the events of a run as they come: a live bar in a terminal, a line for each validation anywhere else."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._folder = folder
        self.summary: dict[str, Any] = {}
        self._held_out = ""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = _moving_bar(self._console, disable=quiet or not self._console.is_terminal)
        self._task = self._bar.add_task(tr("getting ready"), total=None)
        self._notebook = _NotebookBar() if self._console.is_jupyter and not quiet else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._notebook is not None:
            self._notebook.close()

    def doing(self, text: str) -> None:
        """What is being done before, between or after the steps, beside the bar."""
        text, room = _on_one_line(text), _room(self._console)
        if cell_len(text) > room:
            text = set_cell_size(text, room - 1).rstrip() + "…"
        self._bar.update(self._task, description=text)

    def say(self, text: str) -> None:
        """A line above the bar."""
        if not self.quiet:
            self._console.print(Line(with_signs(text)))

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Stage():
                by_steps, by_time = tr("{steps:,} steps", steps=event.steps or 0), clock(60 * (event.minutes or 0))
                length = by_steps if event.minutes is None else by_time
                self.say(
                    tr(
                        "{length} more, from the best weights, those of step {step:,}",
                        length=length,
                        step=event.best_step,
                    )
                )
            case Step():
                self._bar.update(self._task, total=1.0, completed=event.progress, description=self._describe(event))
                if self._notebook is not None:
                    self._notebook.update(event.progress, self._describe(event))
                if event.skipped:
                    self.say(tr("step {step:,}: the loss was not finite; this step was skipped", step=event.step))
            case Eval():
                self._held_out = tr("held out {headline}", headline=event.headline)
                parts = [tr("step {step:,}", step=event.step), clock(event.seconds), self._held_out]
                self.say(" · ".join([*parts, tr("best so far")] if event.best else parts))
            case Sample():
                self._sample(event)
            case Notice():
                self.say(event.text)
            case Finish():
                self._finish(event)

    def _describe(self, step: Step) -> str:
        return _beside_bar(
            self._console,
            tr("{clock} left", clock=clock(step.remaining)),
            tr("step {step:,}", step=step.step),
            tr("loss {loss:.3f}", loss=step.loss),
            self._held_out,
            tr("{speed:,.0f} tokens/s", speed=step.tokens_per_second),
        )

    def _sample(self, event: Sample) -> None:
        when = tr("after step {step:,}", step=event.step) if event.step else tr("before training")
        if not self.quiet:
            self._console.print(Line.assemble((f"  {when}: ", "dim"), (_on_one_line(event.text), "italic")))

    def _finish(self, event: Finish) -> None:
        self.summary = {
            "steps": event.step, "seconds": event.seconds, "reason": event.reason,
            **{key: value for key, value in event.figures.items() if key != "loss"},
        }  # fmt: skip
        if event.figures:
            self.summary |= {
                f"held_out_{event.unit}": event.held_out,
                f"validation_{event.unit}": event.validation_read,
            }
        if event.reason == "interrupted" or self.quiet:
            return
        samples = [line for line in RunFolder(self._folder).read_metrics() if line["event"] == "sample"]  # of all parts
        rows = [
            (tr("after") if line["step"] else tr("before"), _on_one_line(line["text"]))
            for line in (samples[:1] + samples[1:][-1:])
        ]
        if event.figures:
            held_out, floor = event.headline, event.figures.get("floor")
            if floor:
                per_char = event.figures["nats_per_char"]
                held_out = tr(
                    "{loss:.3f} nats/char, {above:.1%} above the floor of {floor:.3f}",
                    loss=per_char,
                    above=per_char / floor - 1,
                    floor=floor,
                )
            rows += [(tr("held out"), held_out), (tr("read"), _reading(event))]
        rows += [(tr("run"), str(self._folder)), (tr("picture"), str(self._folder / "loss.png"))]
        ended = {
            "done": tr("done after {step:,} steps, {clock}", step=event.step, clock=clock(event.seconds)),
            "early stop": tr("early stop after {step:,} steps, {clock}", step=event.step, clock=clock(event.seconds)),
            "reached": tr("reached after {step:,} steps, {clock}", step=event.step, clock=clock(event.seconds)),
        }
        self.say(f"\n{ended[event.reason]}")
        for name, text in rows:
            self._console.print(Line.assemble((f"  {set_cell_size(name, 9)}", "dim"), text))


def _reading(finish: Finish) -> str:
    """What the last figures read of what is held out, beside what validations read: the two may differ for that."""
    read, unit = int(finish.figures[finish.unit]), tr("tokens") if finish.unit == "tokens" else tr("rows")
    if read >= finish.held_out:
        text = tr("all {held_out:,} {unit} held out", held_out=finish.held_out, unit=unit)
    else:
        text = tr("{read:,} of {held_out:,} {unit} held out", read=read, held_out=finish.held_out, unit=unit)
    if finish.validation_read and (finish.more_context or finish.validation_read != read):
        text += tr("; validations {read:,}", read=finish.validation_read)
        text += tr(", with less context") if finish.more_context else ""
    return text


class DownloadView(_View):
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
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    Console().print(table)


def show_bench(bench: Bench) -> None:
    """What was measured, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Line(bench.machine.describe()))
    console.print(
        Line(
            "\n"
            + tr(
                "{size}: {millions:.1f} M parameters, context {context_length}, batch {batch_size}, {precision}, "
                "seed {seed}; median of {rounds} rounds",
                size=bench.size,
                millions=bench.parameters / 1e6,
                context_length=bench.context_length,
                batch_size=bench.batch_size,
                precision=bench.precision,
                seed=bench.seed,
                rounds=bench.rounds,
            )
            + "\n"
        )
    )
    table = Table(box=None, header_style="bold")
    table.add_column(tr("tokens/s"))
    for heading in ("jumok", "transformers", tr("ratio (lowest to highest)")):
        table.add_column(heading, justify="right")
    for name, speed in ((tr("training, not compiled"), bench.training), (tr("writing one text"), bench.decoding)):
        theirs = tr("not installed") if speed.theirs is None else f"{speed.theirs:,.0f}"
        ratio = speed.ratio
        times = "" if ratio is None else tr("{median:.2f} ({low:.2f} to {high:.2f})", **ratio._asdict())
        table.add_row(name, f"{speed.ours:,.0f}", theirs, times)
    console.print(table)


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
            "about {all:,.0f} MB: {weights:,.0f} weights, {gradients:,.0f} gradients, {moments:,.0f} moments, "
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
        about = tr("about {seconds}", seconds=seconds) if one.worked_out else seconds
        table.add_row(one.precision, one.attention, about, speed, tr("chosen") if one.chosen else "")
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


def _on_one_line(text: str) -> str:
    """What a model wrote, with signs for line ends and for what would steer the terminal."""
    return " ⏎ ".join(with_signs(text).split("\n"))


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class LadderView(_View):
    """Shows the events of a ladder: a live bar for each rung in a terminal, a line for each quarter anywhere else."""

    def __init__(self, language: Language, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._language = language
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._bar = _moving_bar(self._console, disable=not self._live)
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
        return _beside_bar(self._console, self._place, left, f"{step.loss:.3f}", speed)

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
            self._console.print(Line.assemble((f"  {self._say(when)}: ", "dim"), (_on_one_line(text), "italic")))


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
