"""Alarms: signs that a run does not learn, or that its figures are too good. Each kind rings once in a run.

There are four: copies across the split and labels that contradict (`Task.alarms`, before the first step), a model that
sees the future, and no progress against a table of counts (after each validation). None draws a random number, and the
kinds that have rung are part of the saved state, so a resumed run rings the same alarms as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from jumok.messages import tr
from jumok.runs.events import Alarm
from jumok.training.clock import Clock
from jumok.training.run import Stateful, TrainingRun

FEWEST_STEPS = 200  # before a run is judged by what it has learned: a default model passes a bigram after 100
JUDGED_FROM = 0.5  # share of the run from which on it is
EQUAL = 1e-3  # below it, relative to the largest, a difference is rounding


class Alarms(Stateful):
    """Looks for what is wrong with a run, and remembers in its state what has rung."""

    alarms: list[str]  # kinds that have rung

    def __init__(self, run: TrainingRun, clock: Clock) -> None:
        self._run, self._clock, self.alarms = run, clock, []

    def before_the_first_step(self) -> Iterator[Alarm]:
        """Ring the alarms about the material."""
        if self._clock.step == 0:
            yield from self._ring(self._run.task.alarms)

    def after_validation(self, figures: Mapping[str, float]) -> Iterator[Alarm]:
        """Ring the alarms about the model as it is.

        Args:
            figures: of the validation; {} if there are none.
        """
        yield from self._ring(self._findings(figures))

    def _ring(self, findings: Iterable[Alarm]) -> Iterator[Alarm]:
        for found in findings:
            if found.kind not in self.alarms:
                self.alarms.append(found.kind)
                yield found

    def _findings(self, figures: Mapping[str, float]) -> Iterator[Alarm]:
        run, task, clock = self._run, self._run.task, self._clock
        if task.predicts_next:
            with run.evaluating():
                yield from sees_the_future(run.model, task.batch(0)[0], clock.step)
        if clock.step < FEWEST_STEPS or clock.progress < JUDGED_FROM or clock.is_over:
            return  # after the last step the verdict tells
        for baseline in task.baselines:
            found = figures.get(baseline.figure, 0.0)
            if baseline.is_share or baseline.figure != task.goal.figure or found <= baseline.value:
                continue
            text = tr(
                "the model has learned less than a table of counts: {found:.3f} nats on the held-out part, the table "
                "{baseline:.3f}. The run is too short, a learning rate is far off, or the held-out part is another "
                "kind of text.",
                found=found,
                baseline=baseline.value,
            )
            numbers = {"found": found, "baseline": baseline.value}
            yield Alarm(step=clock.step, kind="worse_than_baseline", numbers=numbers, text=text)


@torch.no_grad()
def sees_the_future(model: Any, ids: Tensor, step: int) -> Iterator[Alarm]:
    """Find out whether the states of the first half of a row depend on the tokens of the second half.

    Args:
        model: a GPT, in eval mode. ids: (B, T), of which one row is read, on the CPU. step: of the model.
    """
    row = ids[:1].to(model.token_embedding.weight.device)
    half = row.shape[1] // 2
    if half == 0:
        return
    other = torch.cat((row[:, :half], (row[:, half:] + 1) % model.config.vocab_size), dim=1)  # (1, T)
    states, others = (model.hidden(one)[:, :half].float() for one in (row, other))  # (1, T/2, C)
    change = float((states - others).abs().max() / states.abs().max().clamp(min=1e-30))
    if change > EQUAL:
        text = tr(
            "the model sees the tokens that it is to predict: its states change by {change:.0%} with later tokens. "
            "The attention needs a causal mask; the held-out figures mean nothing.",
            change=change,
        )
        yield Alarm(step=step, kind="sees_the_future", numbers={"change": change}, text=text)
