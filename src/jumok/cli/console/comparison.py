"""The reader's model beside jumok's in a terminal: two progress bars and a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from jumok.lessons.practice.comparison import Trained
from jumok.messages import tr
from jumok.runs.events import Event, Finish, Notice, Step
from jumok.text import with_signs
from jumok.training.subscribers.progress import BarView, beside_bar, clock, moving_bar


class ComparisonView(BarView):
    """Two trainings, one after the other, each with a progress bar."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = moving_bar(self._console, disable=quiet or not self._console.is_terminal)
        self._task = self._bar.add_task(tr("preparing"), total=None)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if not self.quiet:
            self._console.print(Line(with_signs(text)))

    def show(self, which: str, event: Event) -> None:
        """Show one event of the training `which`."""
        name = tr("yours") if which == "yours" else which
        match event:
            case Step():
                parts = (name, tr("{clock} left", clock=clock(event.remaining)), tr("loss {loss:.3f}", loss=event.loss))
                self._bar.update(
                    self._task, total=1.0, completed=event.progress, description=beside_bar(self._console, *parts)
                )
            case Notice():
                self.say(f"{name}: {event.text}")
            case Finish() if event.reason != "interrupted":
                self.say(
                    f"{name}: " + tr("done after {step:,} steps, {headline}", step=event.step, headline=event.headline)
                )


def show_comparison(yours: Trained, jumok: Trained) -> None:
    """Print the figures of both models as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", tr("parameters"), tr("steps"), tr("seconds"), tr("nats per character")):
        table.add_column(heading, justify="right" if heading else "left")
    for name, one in ((tr("yours"), yours), ("jumok", jumok)):
        table.add_row(name, f"{one.parameters:,}", f"{one.steps:,}", f"{one.seconds:.0f}", f"{one.nats_per_char:.3f}")
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(table)
