"""How things look in a terminal. Everything but figures and lists goes to stderr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text as Line

from jumok.corpora.catalogue import Corpus
from jumok.trainer import Eval, Event, Finish, Notice, Sample, Step


class TrainingView:
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

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        if not self.quiet:
            self._console.print(Line(text))

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Step():
                self._bar.update(self._task, completed=event.progress, description=self._describe(event))
                if event.skipped:
                    self.say(f"step {event.step}: the loss was not finite; this step was skipped")
            case Eval():
                figures = event.figures
                self._held_out = f"held out {figures['nats_per_char']:.3f} nats/char"
                floor = f" (floor {figures['floor']:.3f})" if "floor" in figures else ""
                best = " · best so far" if event.best else ""
                self.say(f"step {event.step:,} · {clock(event.seconds)} · {self._held_out}{floor}{best}")
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
        text = " ⏎ ".join(event.text.split("\n"))
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
            per_char, floor = event.figures["nats_per_char"], event.figures.get("floor")
            beside = f", {per_char / floor - 1:.1%} above the floor of {floor:.3f}" if floor else ""
            rows.append(("held out", f"{per_char:.3f} nats/char{beside}"))
        rows += [("run", str(self._folder)), ("picture", str(self._folder / "loss.png"))]
        self.say(f"\n{event.reason} after {event.step:,} steps, {clock(event.seconds)}")
        for name, text in rows:
            self._console.print(Line.assemble((f"  {name:<9}", "dim"), text))


class DownloadView:
    """A progress bar for a download."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(),
            console=console, transient=True, disable=quiet or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

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


def show_corpora(corpora: Iterable[Corpus]) -> None:
    """The catalogue, on stdout."""
    table = Table(box=None, header_style="bold")
    for heading in ("name", "size", "what", "licence"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    table.add_row("stories", "any", "short tales, built in (jumok corpus write stories)", "Apache-2.0")
    for corpus in corpora:
        table.add_row(corpus.name, f"{corpus.bytes / 1e6:.1f} MB", corpus.title, corpus.licence)
    Console().print(table)


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
