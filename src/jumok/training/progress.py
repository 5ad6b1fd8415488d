"""Progress of a run, from its events: a live bar in a terminal or a notebook, lines anywhere else."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text as Line

from jumok.messages import tr
from jumok.runs.events import Eval, Event, Finish, Notice, Sample, Stage, Step
from jumok.runs.folder import RunFolder
from jumok.text import with_signs

NOTEBOOK_BAR = 24  # characters


def _bar_width(console: Console) -> int:
    return 24 if console.width >= 100 else 12


def moving_bar(console: Console, *, disable: bool) -> Progress:
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


def beside_bar(console: Console, *parts: str) -> str:
    """Those of the parts that fit into the line of the bar, the most important first."""
    room, line = _room(console), ""
    for part in filter(None, parts):
        longer = f"{line} · {part}" if line else part
        if cell_len(longer) <= room:
            line = longer
    return line


class BarView:
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


class TrainingView(BarView):
    """Shows the events of a run as they come: a live bar in a terminal, a line for each validation anywhere else."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._folder = folder
        self.summary: dict[str, Any] = {}
        self._held_out = ""
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = moving_bar(self._console, disable=quiet or not self._console.is_terminal)
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
        text, room = on_one_line(text), _room(self._console)
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
        return beside_bar(
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
            self._console.print(Line.assemble((f"  {when}: ", "dim"), (on_one_line(event.text), "italic")))

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
        samples = [line for line in RunFolder(self._folder).logs.metrics() if line["event"] == "sample"]  # of all parts
        rows = [
            (tr("after") if line["step"] else tr("before"), on_one_line(line["text"]))
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


def on_one_line(text: str) -> str:
    """What a model wrote, with signs for line ends and for what would steer the terminal."""
    return " ⏎ ".join(with_signs(text).split("\n"))


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
