"""Alarms: signs that a run does not learn, or that its figures are too good. Each kind rings once in a stage.

Those about the material are the task's (`Task.alarms`) and ring before the first step. The others are looked for after
each validation, in the losses and gradient norms of the steps so far (`jumok.training.curves`), in the figures, and in
passes over a few rows (`jumok.training.probes`). None draws a random number, and a resumed run reads the earlier steps
from metrics.jsonl, so that it rings the same alarms as an uninterrupted one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jumok.config import EncoderDecoderConfig
from jumok.runs.events import Alarm, Step
from jumok.training import curves, probes
from jumok.training.finding import Finding
from jumok.training.state import TrainingRun

FEWEST_STEPS = 200  # in a stage before it is judged by what it has learned: a default model passes a bigram after 100
JUDGED_FROM = 0.5  # share of the stage from which on it is


class Alarms:
    """Looks for what is wrong with a run, and remembers in its state what has rung."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._losses, self._norms = array("d"), array("d")  # of the steps of the model; NaN where one was not finite
        if run.state.step > run.first_step_of_model:
            for event in run.folder.logs.metrics():
                if event["event"] == "step" and event["step"] > run.first_step_of_model:
                    self._add(event["loss"], event["grad_norm"])

    @property
    def losses(self) -> Sequence[float]:
        """The training losses of the steps of the model; NaN where one was not finite."""
        return self._losses

    def watch(self, step: Step) -> None:
        """Keep the loss and the norm of a step."""
        self._add(step.loss, step.grad_norm)

    def _add(self, loss: float | None, norm: float | None) -> None:
        for values, value in ((self._losses, loss), (self._norms, norm)):
            values.append(value if value is not None and math.isfinite(value) else math.nan)  # as metrics.jsonl has it

    def before_the_first_step(self) -> Iterator[Alarm]:
        """Those about the material."""
        if self._run.state.step == 0:
            yield from map(self._alarm, filter(self._is_new, self._run.task.alarms))

    def after_validation(self, figures: Mapping[str, float]) -> Iterator[Alarm]:
        """Those about the figures, the curves and the model as it is.

        Args:
            figures: of the validation; {} if there are none.
        """
        yield from map(self._alarm, filter(self._is_new, self._findings(figures)))

    def _is_new(self, found: Finding) -> bool:
        return found.kind not in self._run.state.alarms

    def _alarm(self, found: Finding) -> Alarm:
        self._run.state.alarms.append(found.kind)
        return Alarm(step=self._run.state.step, kind=found.kind, numbers=found.numbers, text=found.text)

    def _findings(self, figures: Mapping[str, float]) -> Iterator[Finding]:
        run, task, state = self._run, self._run.task, self._run.state
        if figures:
            yield from task.too_good(figures)
        if task.predicts_next:
            with run.evaluating():
                yield from probes.sees_the_future(run.model, task.batch(0)[0])
        losses, norms = np.asarray(self._losses), np.asarray(self._norms)
        rising = [*curves.above_chance(losses, self._chance()), *curves.loss_rises(losses, self._chance())]
        yield from rising
        yield from curves.gradients_explode(norms)
        if state.step - run.first_step_of_model < FEWEST_STEPS:
            return
        slow = [] if rising else list(curves.hardly_moves(losses, self._to_learn(figures)))
        yield from slow
        if state.progress < JUDGED_FROM:
            return
        if not slow and not run.model_is_trained:  # the first says more, and after the last step the verdict tells
            yield from task.too_bad(figures)
        with run.evaluating():
            yield from probes.dead_parts(run.model, task)

    def _chance(self) -> float:
        """The training loss of a model that knows nothing, in nats: all tokens, or all labels, are equally likely."""
        model = self._run.model.config
        if self._run.config.task == "classify" and not isinstance(model, EncoderDecoderConfig):
            return math.log(len(model.labels))
        return math.log(model.vocab_size)

    def _to_learn(self, figures: Mapping[str, float]) -> float:
        """How far the training loss of a first model is above that of the task's baseline; 0: not known."""
        baseline = self._run.task.baseline
        if baseline is None or not figures.get(baseline.figure) or self._run.stages:
            return 0.0
        per_unit = figures["loss_per_token"] / figures[baseline.figure] if "loss_per_token" in figures else 1.0
        return self._chance() - baseline.value * per_unit
