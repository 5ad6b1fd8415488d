"""The reader's model beside jumok's in a terminal: two progress bars, a table, and what the figures mean."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from jumok.course.practice.comparison import QKV_BIASES, Comparison, Trained
from jumok.messages import tr
from jumok.runs.events import Event, Finish, Notice, Step
from jumok.training.subscribers.progress import BarView, beside_bar, clock


class ComparisonView(BarView):
    """Two trainings, one after the other, each with a progress bar."""

    def show(self, which: str, event: Event) -> None:
        """Show one event of the training `which`."""
        name, place = (tr("yours"), "1/2") if which == "yours" else (which, "2/2")
        match event:
            case Step():
                left = tr("{clock} left", clock=clock(event.remaining))
                parts = (f"{name} ({place})", left, tr("loss {loss:.3f}", loss=event.loss))
                line = beside_bar(self._console, *parts)
                self._bar.update(self._task, total=1.0, completed=event.progress, description=line)
            case Notice() if event.step > 0:  # before the first step it is advice on options that `use` does not have
                self.say(f"{name}: {event.text}")
            case Finish():
                self.say(f"{name}: " + tr("{steps:,} steps", steps=event.step))


def show_models(models: Mapping[str, Trained]) -> None:
    """Print the figures of both models as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", tr("parameters"), tr("steps"), tr("seconds"), tr("nats per character")):
        table.add_column(heading, justify="right" if heading else "left")
    for name, one in models.items():
        table.add_row(name, f"{one.parameters:,}", f"{one.steps:,}", f"{one.seconds:.0f}", f"{one.nats_per_char:.3f}")
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(table)


def explain(comparison: Comparison) -> str:
    """Return what the figures of a finished comparison mean."""
    yours, jumok = comparison.yours, comparison.jumok
    assert yours is not None
    assert jumok is not None
    part, steps = comparison.part.name, comparison.compared_step
    if yours.sees_future:
        said = tr(
            "Your model sees the future: its output at a position changes when a later token changes. So it can read "
            "the token that it should predict, and its loss becomes too good. When it writes, there is no later "
            "token, so what it learned does not help. Check the mask."
        )
    elif jumok.bigram is not None and min(yours.nats_per_char, jumok.nats_per_char) > jumok.bigram:
        said = tr(
            "After {steps:,} steps both losses are still above that of a bigram table ({bigram:.3f}). It is too early "
            "to compare them, and the samples are noise. Train longer, for example with --minutes 10.",
            steps=steps,
            bigram=jumok.bigram,
        )
    elif comparison.worse:
        said = tr(
            "After {steps:,} steps the loss of your model is {gap:.2f} nats above that of jumok. It is built "
            "differently, or a mistake slows it down: `jumok learn check` recognises many of them.",
            steps=steps,
            gap=comparison.gap,
        )
    elif comparison.too_good:
        said = tr(
            "After {steps:,} steps the loss of your model is {gap:.2f} nats below that of jumok, although it does not "
            "see the future. It differs in something else, such as its size.",
            steps=steps,
            gap=-comparison.gap,
        )
    else:
        said = tr(
            "Your {part} learns as that of jumok does: after {steps:,} steps the losses differ by {gap:.2f} nats.",
            part=part,
            steps=steps,
            gap=abs(comparison.gap),
        )
    if jumok.parameters - yours.parameters == QKV_BIASES:
        said += " " + tr(
            "Your model has {yours:,} parameters, and that of jumok {jumok:,}. This is expected: the difference is the "
            "biases of queries, keys and values, which your {part} does not have, as the exercise asks.",
            yours=yours.parameters,
            jumok=jumok.parameters,
            part=part,
        )
    elif yours.parameters != jumok.parameters:
        said += " " + tr(
            "Your model has {yours:,} parameters, and that of jumok {jumok:,}: your {part} has other layers, widths or "
            "biases, or shares others of them.",
            yours=yours.parameters,
            jumok=jumok.parameters,
            part=part,
        )
    return said
