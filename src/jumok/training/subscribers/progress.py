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
from jumok.runs.events import Alarm, Eval, Event, Finish, Notice, Sample, Step, Verdict
from jumok.runs.folder import RunFolder
from jumok.text import with_signs

NOTEBOOK_BAR = 24  # characters


def _bar_width(console: Console) -> int:
    return 24 if console.width >= 100 else 12


def moving_bar(console: Console, *, disable: bool) -> Progress:
    """A progress bar with its percentage and a description."""
    columns = (
        BarColumn(bar_width=_bar_width(console)),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}", markup=False),
    )
    return Progress(*columns, console=console, transient=True, disable=disable)


def _room(console: Console) -> int:
    """Columns of the terminal for the description of a bar."""
    return max(1, console.width - _bar_width(console) - len(" 100% "))


def beside_bar(console: Console, *parts: str) -> str:
    """The description of a bar: the parts that fit in its line, the most important first."""
    room, line = _room(console), ""
    for part in filter(None, parts):
        longer = f"{line} · {part}" if line else part
        if cell_len(longer) <= room:
            line = longer
    return line


class BarView:
    """A view on stderr with a progress bar, which is shown in a terminal while the view is open."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = moving_bar(self._console, disable=quiet or not self._console.is_terminal)
        self._task = self._bar.add_task(tr("preparing"), total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self._console.print(Line(with_signs(text), style=style))


class _NotebookBar:
    """A progress bar of plain text in a notebook, where rich needs ipywidgets for its own."""

    def __init__(self) -> None:
        display = importlib.import_module("IPython.display").display
        self._shown = time.monotonic()
        self._handle = display({"text/plain": tr("preparing")}, raw=True, display_id=True)

    def update(self, share: float, text: str) -> None:
        """Show the share that is done, at most four times per second."""
        if time.monotonic() - self._shown >= 0.25:
            self._shown = time.monotonic()
            done = round(NOTEBOOK_BAR * share)
            bar = "█" * done + "░" * (NOTEBOOK_BAR - done)
            self._handle.update({"text/plain": f"{bar} {share:4.0%} {with_signs(text)}"}, raw=True)

    def close(self) -> None:
        """Remove the bar."""
        self._handle.update({"text/plain": ""}, raw=True)


class TrainingView(BarView):
    """Shows the events of a run: a progress bar in a terminal, and a line for each validation."""

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._folder = folder
        self.summary: dict[str, Any] = {}
        self._held_out = ""
        self._verdict: Verdict | None = None
        self._notebook = _NotebookBar() if self._console.is_jupyter and not quiet else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._notebook is not None:
            self._notebook.close()

    def doing(self, text: str) -> None:
        """Show an activity before, between or after the steps, in the line of the bar."""
        text, room = on_one_line(text), _room(self._console)
        if cell_len(text) > room:
            text = set_cell_size(text, room - 1).rstrip() + "…"
        self._bar.update(self._task, description=text)

    def show(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Step():
                self._bar.update(self._task, total=1.0, completed=event.progress, description=self._describe(event))
                if self._notebook is not None:
                    self._notebook.update(event.progress, self._describe(event))
                if event.skipped:
                    self.say(tr("step {step:,}: the loss was not finite; this step was skipped", step=event.step))
            case Eval():
                self._held_out = tr("validation {headline}", headline=event.headline)
                parts = [tr("step {step:,}", step=event.step), clock(event.seconds), self._held_out]
                self.say(" · ".join([*parts, tr("best so far")] if event.best else parts))
            case Sample() if not event.kept:  # which is shown at the end
                self._sample(event)
            case Notice():
                self.say(event.text)
            case Alarm():
                self.say(tr("Warning: {text}", text=event.text))
            case Verdict():
                self._verdict = event
            case Finish():
                self._finish(event)

    def _describe(self, step: Step) -> str:
        return beside_bar(
            self._console,
            tr("{clock} left", clock=clock(step.remaining)),
            tr("step {step:,}", step=step.step),
            tr("loss {loss:.3f}", loss=step.loss),
            *(f"{name.replace('_', ' ')} {value:.3g}" for name, value in step.figures.items()),
            self._held_out,
            tr("{speed:,.0f} tokens/s", speed=step.tokens_per_second),
        )

    def _sample(self, event: Sample) -> None:
        when = tr("after step {step:,}", step=event.step) if event.step else tr("before training")
        if not self.quiet:
            self._console.print(Line.assemble((f"  {when}: ", "dim"), (on_one_line(event.text), "italic")))

    def _finish(self, event: Finish) -> None:
        figures: dict[str, Any] = {key: value for key, value in event.figures.items() if key != "loss"}
        if event.reason == "interrupted" and figures:  # those of a validation, which are no held-out figures
            figures = {"validation": figures}
        self.summary = {"steps": event.step, "seconds": event.seconds, "reason": event.reason, **figures}
        if event.figures:
            self.summary |= {
                f"held_out_{event.unit}": event.held_out,
                f"validation_{event.unit}": event.validation_read,
            }
        kept = ("alarm", "sample")
        events = [line for line in RunFolder(self._folder).logs.events() if line["event"] in kept]  # of all parts
        self.summary["alarms"] = [
            {"step": line["step"], "kind": line["kind"], **line["numbers"]}
            for line in events
            if line["event"] == "alarm"
        ]
        if self._verdict is not None:
            verdict = self._verdict
            self.summary["verdict"] = {"kind": verdict.kind, **verdict.numbers, "command": verdict.command}
        if event.reason == "interrupted" or self.quiet:
            return
        samples = [line for line in events if line["event"] == "sample"]
        rows = []
        for line in samples[:1] + samples[1:][-1:]:
            step = tr("(step {step:,})", step=line["step"]) + " " if line["step"] else ""
            rows.append((tr("after") if line["step"] else tr("before"), step + on_one_line(line["text"])))
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
            "reached": tr("target reached after {step:,} steps, {clock}", step=event.step, clock=clock(event.seconds)),
        }
        self.say(f"\n{ended[event.reason]}")
        for name, text in rows:
            self._console.print(Line.assemble((f"  {set_cell_size(name, 9)}", "dim"), text))
        if self._verdict is not None:
            self.say(f"{self._verdict.text}\n  {self._verdict.command}")


def _reading(finish: Finish) -> str:
    """How much of the held-out part the last figures and the validations read. Figures of different parts differ."""
    read, unit = int(finish.figures[finish.unit]), tr("tokens") if finish.unit == "tokens" else tr("rows")
    if read >= finish.held_out:
        text = tr("all {held_out:,} held-out {unit}", held_out=finish.held_out, unit=unit)
    else:
        text = tr("{read:,} of {held_out:,} held-out {unit}", read=read, held_out=finish.held_out, unit=unit)
    if finish.validation_read and (finish.more_context or finish.validation_read != read):
        text += tr("; validations {read:,}", read=finish.validation_read)
        text += tr(", with less context") if finish.more_context else ""
    return text


def on_one_line(text: str) -> str:
    """A generated text on one line, with signs for newlines and control characters."""
    return " ⏎ ".join(with_signs(text).split("\n"))


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
