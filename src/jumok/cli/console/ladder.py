"""The ladder in a terminal: its progress on stderr, its table on stdout."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from jumok.course.ladder.report import table as table_of
from jumok.course.ladder.results import LadderRecord
from jumok.course.ladder.run import LadderEvent, RungFinished, RungStarted
from jumok.course.ladder.rungs import RUNGS, say
from jumok.course.words import Language
from jumok.runs.events import Eval, Notice, Step
from jumok.training.subscribers.progress import BarView, beside_bar, clock, on_one_line


class LadderView(BarView):
    """Shows the events of a ladder: a bar for each rung in a terminal, otherwise a line for each quarter of it."""

    def __init__(self, language: Language, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._language = language
        self._place = ""
        self._held_out = ""
        self._quarters = 0

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
                self._held_out = self._say("validation", loss=event.figures["nats_per_char"])
            case Notice():
                self.say(f"  {event.text}")

    def _say(self, key: str, **values: object) -> str:
        return say(key, self._language, **values)

    def _start(self, event: RungStarted) -> None:
        self._held_out, self._quarters = "", 0
        self._place = f"{event.number}/{len(RUNGS)}"
        self._bar.reset(self._task, total=1.0)
        self._bar.update(self._task, description=self._place)
        title, adds = event.rung.title.said(self._language), event.rung.adds.said(self._language)
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
        if not self._console.is_terminal and int(4 * step.progress) > self._quarters:
            self._quarters = int(4 * step.progress)
            parts = [f"{step.progress:.0%}", self._say("step", step=step.step), clock(step.seconds), self._held_out]
            self.say(f"  {' · '.join(part for part in parts if part)}")

    def _finish(self, event: RungFinished) -> None:
        if event.earlier:
            title = event.rung.title.said(self._language)
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


WIDTHS = (86, 74, 66)  # columns of a terminal that has room for all columns of the table, all but one, all but two


def show_ladder(record: LadderRecord, language: Language) -> None:
    """Print the table of a ladder."""
    console = Console(highlight=False)
    headings, rows = table_of(record, language)
    columns = len(headings) - sum(console.width < width for width in WIDTHS)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings[:columns]):
        table.add_column(heading, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row[:columns])
    console.print(table)
