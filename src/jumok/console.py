"""How things look in a terminal. Everything but figures and lists goes to stderr."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text as Line

from jumok.corpora.catalogue import Corpus
from jumok.lessons.chapters import Language
from jumok.lessons.ladder import LadderEvent, RungFinished, RungStarted
from jumok.lessons.record import LadderRecord
from jumok.lessons.report import table as table_of
from jumok.lessons.rungs import RUNGS
from jumok.lessons.words import say
from jumok.plan import Explanation
from jumok.probe import Ablation, Ranking
from jumok.speed import Bench
from jumok.text import with_signs
from jumok.trainer import Eval, Event, Finish, Notice, Sample, Step
from jumok.view.pieces import visible
from jumok.view.probes import Row


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


class TrainingView(_View):
    """Shows the events of a run as they come: a live bar in a terminal, a line for each validation anywhere else."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._folder = folder
        self._samples: tuple[str, str] | None = None  # the first and the last
        self.summary: dict[str, Any] = {}
        self._held_out = ""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f}%"),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("getting ready", total=1.0)

    def say(self, text: str) -> None:
        """A line above the bar."""
        if not self.quiet:
            self._console.print(Line(with_signs(text)))

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Step():
                self._bar.update(self._task, completed=event.progress, description=self._describe(event))
                if event.skipped:
                    self.say(f"step {event.step}: the loss was not finite; this step was skipped")
            case Eval():
                self._held_out = f"held out {event.headline}"
                best = " · best so far" if event.best else ""
                self.say(f"step {event.step:,} · {clock(event.seconds)} · {self._held_out}{best}")
            case Sample():
                self._sample(event)
            case Notice():
                self.say(event.text)
            case Finish():
                self._finish(event)

    def _describe(self, step: Step) -> str:
        parts = [f"step {step.step:,}", f"loss {step.loss:.3f}", self._held_out]
        parts += [f"{step.tokens_per_second:,.0f} tokens/s", f"{clock(step.remaining)} left"]
        return " · ".join(part for part in parts if part)

    def _sample(self, event: Sample) -> None:
        text = _on_one_line(event.text)
        self._samples = (self._samples[0] if self._samples else text, text)
        when = "before training" if event.step == 0 else f"after step {event.step:,}"
        if not self.quiet:
            self._console.print(Line.assemble((f"  {when}: ", "dim"), (text, "italic")))

    def _finish(self, event: Finish) -> None:
        self.summary = {
            "steps": event.step, "seconds": event.seconds, "reason": event.reason,
            **{key: value for key, value in event.figures.items() if key != "loss"},
        }  # fmt: skip
        if event.reason == "interrupted" or self.quiet:
            return
        rows = [("before", self._samples[0]), ("after", self._samples[1])] if self._samples else []
        if event.figures:
            held_out, floor = event.headline, event.figures.get("floor")
            if floor:
                per_char = event.figures["nats_per_char"]
                held_out = f"{per_char:.3f} nats/char, {per_char / floor - 1:.1%} above the floor of {floor:.3f}"
            rows.append(("held out", held_out))
        rows += [("run", str(self._folder)), ("picture", str(self._folder / "loss.png"))]
        self.say(f"\n{event.reason} after {event.step:,} steps, {clock(event.seconds)}")
        for name, text in rows:
            self._console.print(Line.assemble((f"  {name:<9}", "dim"), text))


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
            f"\n{bench.size}: {bench.parameters / 1e6:.1f} M parameters, context {bench.context_length}, batch "
            f"{bench.batch_size}, {bench.precision}, seed {bench.seed}; median of {bench.rounds} rounds\n"
        )
    )
    table = Table(box=None, header_style="bold")
    for heading in ("tokens/s", "jumok", "transformers", "ratio (lowest to highest)"):
        table.add_column(heading, justify="left" if heading == "tokens/s" else "right")
    for name, speed in (("training, not compiled", bench.training), ("writing one text", bench.decoding)):
        theirs = "not installed" if speed.theirs is None else f"{speed.theirs:,.0f}"
        ratio = speed.ratio
        times = "" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        table.add_row(name, f"{speed.ours:,.0f}", theirs, times)
    console.print(table)


def show_explanation(found: Explanation) -> None:
    """What a run would do, and why, on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    memory = found.memory
    length = "there is too little memory for a single step: take a smaller --batch-size or --size"
    if math.isfinite(found.seconds):
        length = f"about {found.steps:,} steps in {clock(found.seconds)}, {found.passes:.1f} passes over the text"
    rows = {
        "model": f"{found.model}, {found.parameters / 1e6:.1f} M parameters, {found.flops_per_token / 1e6:.1f} MFLOP a "
        "token, forward and backward",
        "text": f"{found.train_tokens:,} tokens to train on",
        "machine": f"{found.device}, {found.threads} threads",
        "memory": f"about {sum(memory.values()) / 1e6:,.0f} MB: {memory['weights'] / 1e6:,.0f} weights, "
        f"{memory['gradients'] / 1e6:,.0f} gradients, {memory['moments'] / 1e6:,.0f} moments, "
        f"{memory['kept'] / 1e6:,.0f} kept for the backward pass",
    }
    _show_rows(console, rows)
    console.print(Line(f"\nA step of {found.tokens_per_step:,} tokens, not compiled\n"))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("precision", "attention", "seconds", "tokens/s", ""):
        table.add_column(heading, justify="right" if heading in ("seconds", "tokens/s") else "left", no_wrap=True)
    for one in found.candidates:
        if not math.isfinite(one.seconds):
            table.add_row(one.precision, one.attention, "", "", "too little memory")
            continue
        speed, about = f"{found.tokens_per_step / one.seconds:,.0f}", "about " if one.worked_out else ""
        chosen = "chosen" if one.chosen else ""
        table.add_row(one.precision, one.attention, f"{about}{one.seconds:.3f}", speed, chosen)
    console.print(table)
    console.print()
    _show_rows(console, {name: f"{word}: {why}" for name, (word, why) in found.choices.items()})
    _show_rows(console, {"length": length})


def _show_rows(console: Console, rows: Mapping[str, str]) -> None:
    for name, text in rows.items():
        console.print(Line.assemble((f"{name:<11}", "dim"), text))


def show_corpora(corpora: Iterable[Corpus]) -> None:
    """The catalogue, on stdout."""
    table = Table(box=None, header_style="bold")
    for heading in ("name", "size", "what", "licence"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    table.add_row("stories", "any", "short tales, built in (jumok corpus write stories)", "Apache-2.0")
    table.add_row("numbers", "any", "digits, how they are read, built in (jumok corpus write numbers)", "Apache-2.0")
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
        self._bar = Progress(
            BarColumn(bar_width=12),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
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
        return f"{self._place} · {step.loss:.3f} · {speed} · {left}"  # fits 60 columns, the bar included

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


WIDE = 72  # columns, from which the last one of the ladder's table has room


def show_ladder(record: LadderRecord, language: Language) -> None:
    """The table of a ladder, on stdout."""
    console = Console(highlight=False)
    headings, rows = table_of(record, language)
    columns = len(headings) if console.width >= WIDE else len(headings) - 1
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
    headings = [
        *(["block"] if blocks else []),
        "layer",
        "head",
        "Δ nats",
        "entropy",
        "distance",
        "first",
        "previous",
    ]
    for heading in (*headings, "itself", *(["induction"] if copies else [])):
        table.add_column(heading, justify="left" if heading == "block" else "right", no_wrap=True)
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
    console.print(
        f"\nThe loss with all heads is {ranking.nats:.4f} nats/token ({ranking.tokens:,} tokens).\n"
        "  Δ nats     by how much it grows when this head is switched off\n"
        "  entropy    of the weights, in nats: 0 looks at one token\n"
        "  distance   how many tokens away the head looks\n"
        "  first ...  share that goes to the first token, the one before, itself\n"
        + ("  induction  share that goes behind the earlier one of random tokens that come twice" * copies),
        style="dim",
    )


def show_ablation(heads: str, found: Ablation) -> None:
    """What switching heads off changes, on stdout: the loss, and what was likely to come next."""
    console = Console(highlight=False)
    change = found.nats_without - found.nats
    console.print(
        f"\nWithout {heads}: {found.nats_without:.4f} nats/token instead of {found.nats:.4f} ({change:+.4f})",
        markup=False,
    )
    if not found.candidates:
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("next token", no_wrap=True)
    for heading in ("all heads", "without"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.candidates:
        table.add_row(Line(visible(one.token)), f"{one.probability:.2%}", f"{one.without:.2%}")
    console.print(table)


def _or_blank(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)
