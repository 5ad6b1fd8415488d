"""The reader's model beside jumok's in a terminal: two progress bars and a table."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from jumok.course.practice.comparison import Comparison, Trained
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
        place = "1/2" if which == "yours" else "2/2"
        match event:
            case Step():
                parts = (
                    f"{name} ({place})",
                    tr("{clock} left", clock=clock(event.remaining)),
                    tr("loss {loss:.3f}", loss=event.loss),
                )
                self._bar.update(
                    self._task, total=1.0, completed=event.progress, description=beside_bar(self._console, *parts)
                )
            case Notice() if event.step > 0:  # before the first step it is advice on options that `use` does not have
                self.say(f"{name}: {event.text}")
            case Finish():
                self.say(f"{name}: " + tr("{steps:,} steps", steps=event.step))


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


def explain_comparison(comparison: Comparison) -> str:
    """Return what the figures of a finished comparison mean."""
    yours, jumok = comparison.yours, comparison.jumok
    assert yours is not None
    assert jumok is not None
    return " ".join([_explain_losses(comparison, yours, jumok), *_explain_differences(comparison, yours, jumok)])


def _explain_differences(comparison: Comparison, yours: Trained, jumok: Trained) -> Iterator[str]:
    """Yield what is not equal beside the part: the number of steps, and of parameters."""
    if jumok.steps < yours.steps:
        yield tr(
            "In the time that was left jumok took {steps:,} steps, and yours {all:,}. Both losses are those after step "
            "{step:,}.",
            steps=jumok.steps,
            all=yours.steps,
            step=comparison.compared_step,
        )
    if yours.parameters != jumok.parameters:
        difference = yours.parameters - jumok.parameters
        yield (
            tr(
                "Your model has {count:,} parameters more than that of jumok: its {part} has other layers, widths or "
                "biases, or shares fewer of them.",
                count=difference,
                part=comparison.part.name,
            )
            if difference > 0
            else tr(
                "Your model has {count:,} parameters fewer than that of jumok: its {part} has other layers, widths or "
                "biases, or shares more of them.",
                count=-difference,
                part=comparison.part.name,
            )
        )


def _explain_losses(comparison: Comparison, yours: Trained, jumok: Trained) -> str:
    gap = abs(comparison.gap)
    if yours.sees_future:
        text = tr(
            "Your model sees the future: its output at a position changes when a later token changes. So it can read "
            "the token that it should predict."
        )
        if comparison.too_good:
            text += " " + tr("Its loss is too good: {gap:.2f} nats below that of jumok.", gap=gap)
        else:
            text += " " + tr("With more steps its loss can become too good.")
        return (
            text
            + " "
            + tr("When it writes, there is no later token, so what it learned does not help. Check the mask.")
        )
    if jumok.bigram is not None and min(yours.nats_per_char, jumok.nats_per_char) > jumok.bigram:
        return tr(
            "After {steps:,} steps both losses are still above that of a bigram table ({bigram:.3f}). It is too early "
            "to compare them, and the samples are noise. Train longer, for example with --minutes 10.",
            steps=comparison.compared_step,
            bigram=jumok.bigram,
        )
    if comparison.too_good:
        return tr(
            "The loss of your model is {gap:.2f} nats below that of jumok. No later token changes its output, so the "
            "mask is right. It differs in something else, such as its size.",
            gap=gap,
        )
    if comparison.worse:
        return tr(
            "The loss of your model is {gap:.2f} nats above that of jumok after as many steps. It is built "
            "differently, or a mistake slows it down: `jumok learn check` recognises many of them.",
            gap=gap,
        )
    return tr(
        "Your {part} learns as that of jumok does: after {steps:,} steps the losses differ by {gap:.2f} nats.",
        part=comparison.part.name,
        steps=comparison.compared_step,
        gap=gap,
    )
