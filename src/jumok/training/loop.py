"""The training loop: steps, validations, samples and saves, in this order, as events.

A run by steps is a pure function of its configuration and its text: the initial parameters, each batch and each dropout
mask depend on the seed and the step alone. So a run that was killed continues from its last saved state to the same
parameters and figures, bit for bit, on the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

from jumok.device import own_random
from jumok.errors import ProcessLost
from jumok.messages import tr
from jumok.runs.events import Event, Notice, Step
from jumok.training.alarms import Alarms
from jumok.training.clock import Clock
from jumok.training.compilation import Compilation
from jumok.training.distributed import Command, Order
from jumok.training.planning.compiled_code import CompileTimes
from jumok.training.planning.plan import MOST_COMPILING
from jumok.training.saving import Saving
from jumok.training.stages import begin_stage
from jumok.training.state import TrainingRun
from jumok.training.steps import Steps
from jumok.training.stopping import EarlyStopping, StoppingAt, is_over, steps_error
from jumok.training.validation import Validation
from jumok.training.verdict import TrainingLosses, pronounce


class Loop:
    """Trains a run from where it is to its end, or until `stop` is set."""

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.state, self.config, self.task = run, run.state, run.config, run.task
        self.steps = Steps(run)
        self.clock = Clock(run)
        self.validation = Validation(run, self.clock)
        self.early_stopping, self.stopping_at = EarlyStopping(run), StoppingAt(run)
        self.saving, self.compilation = Saving(run, self.clock), Compilation(run)
        self.alarms, self.losses = Alarms(run), TrainingLosses(run)
        self.stop = False

    def events(self) -> Generator[Event, None, None]:
        """Train."""
        run, state = self.run, self.state
        alarms = {found.text for found in self.task.alarms}
        for text in (text for text in run.notices if text not in alarms):
            yield Notice(step=state.step, text=text)
        if run.result is not None:
            yield pronounce(run, run.result.figures, run.result.reason, self.losses)
            yield run.result
            return
        yield from self.alarms.before_the_first_step()
        yield from self._prepare()
        while not is_over(run) and not self.stop:
            began, before = time.perf_counter(), state.progress
            with self.compilation.in_use(), own_random(run.device):
                step = self.take_step()
            seconds = time.perf_counter() - began
            self.losses.add(step.loss)
            yield step
            yield from self.clock.watch(seconds)
            if error := steps_error(run):
                self.saving.save()
                yield pronounce(run, {}, "failed", self.losses)
                raise error
            if self.validation.due(before):
                yield from self._validate(with_sample=self.validation.sample_due(before) and not is_over(run))
            if self.saving.due and not (run.model_is_trained or self.stop):  # the state is saved below then
                yield self.saving.save()
        if not is_over(run):
            yield from self._interrupt()
            return
        # A run that has reached its goal has its best parameters, unless their file was damaged and it was resumed.
        if state.validated != state.step and (not state.reached or state.best is None):
            yield from self._validate(with_sample=False)
        if state.best is None and self.task.has_validation:
            run.write_parameters()
            text = tr(
                "No validation had a finite loss; the parameters are those of the last step, {step:,}.", step=state.step
            )
            yield Notice(step=state.step, text=text)
        yield self.saving.save()
        yield from self._finish()

    # --- a step -------------------------------------------------------------------------------------------------------

    def take_step(self) -> Step:
        """Take one optimizer step, in all processes of the run. An update that is not finite is skipped."""
        began, state, rate = time.perf_counter(), self.state, self.clock.rate()
        try:
            with self.run.world.command(Order(command=Command.STEP, number=state.step, rate=rate)):
                taken = self.steps.take(state.step, rate)
        except ProcessLost as lost:
            if lost.whole:
                self.saving.rescue()
            raise
        loss, *others = taken.losses
        state.failures = 0 if taken.updated else state.failures + 1
        state.step += 1
        self.clock.advance(began, tokens=self.task.tokens_per_batch * taken.cost)
        return Step(
            step=state.step,
            loss=loss,
            rate=rate,
            grad_norm=taken.norm,
            skipped=not taken.updated,
            progress=state.progress,
            seconds=self.run.seconds,
            remaining=self.clock.remaining(),
            tokens_per_second=self.clock.tokens_per_second,
            lm_loss=others[0] / self.task.lm_weight if others else None,
        )

    # --- between steps ------------------------------------------------------------------------------------------------

    def _validate(self, *, with_sample: bool) -> Iterator[Event]:
        began = time.perf_counter()
        with self.run.whole():  # gathers shards once for all of this
            figures = yield from self.validation.run()
            if figures:
                yield from self.stopping_at.check(figures)
            yield from self.alarms.after_validation(figures)
            yield from self.early_stopping.check(self.validation.times_as_often)  # counts failed validations, too
            if with_sample:
                yield from self.validation.sample()
        self.clock.evaluation_seconds = time.perf_counter() - began

    # --- before the first step, and after the last --------------------------------------------------------------------

    def _prepare(self) -> Iterator[Event]:
        if self.state.stage < len(self.run.stages):
            yield from begin_stage(self.run, self.validation, self.stopping_at, self.saving)
        # A run that was stopped before its first step has this sample already.
        if self.state.step == 0 and not self.run.folder.logs.size("samples.txt"):
            yield from self.validation.sample()
        yield from self._compile()
        yield from self.clock.start()
        self.saving.start()

    def _compile(self) -> Iterator[Notice]:
        if self.config.compile == "on" and not is_over(self.run) and not self.stop:
            if self._too_short_to_compile():
                text = tr("What is left of the run is too short to compile.")
                yield Notice(step=self.state.step, text=text)
                return
            with self.run.world.command(Order(command=Command.COMPILE)), own_random(self.run.device):
                failure = self.compilation.start(self.steps.try_a_pass)
            if failure:
                yield Notice(step=self.state.step, text=failure)

    def _too_short_to_compile(self) -> bool:
        """Return whether a resumed run by minutes would spend too much of the rest on compiling.

        A run that was just started was planned with the time that compiling takes.
        """
        run = self.run
        if self.config.minutes is None or run.plan is not None:
            return False
        expected = CompileTimes(run.device).expected(run.model.config, self.config)
        return expected >= MOST_COMPILING * self.clock.remaining()

    def _interrupt(self) -> Iterator[Event]:
        run, state = self.run, self.state
        # Before its first validation a run has no model.safetensors, which `jumok generate` and others load.
        if state.best is None and (self.task.has_validation or not run.stages):
            run.write_parameters()
        yield self.saving.save()
        metrics = {} if state.best is None else run.folder.read_config()["metrics"]
        figures = metrics.get("validation", metrics)  # a confirmed goal and older runs have them by their names
        yield run.finish("interrupted", {name: value for name, value in figures.items() if name != "step"})

    def _finish(self) -> Iterator[Event]:
        """Take the last figures and sample, of the kept parameters, which the model has from then on, in eval mode."""
        run, state, wanted = self.run, self.state, self.config.stop_at
        run.report(tr("reading the held-out part for the last figure"))
        figures: dict[str, float] = {}
        run.read_best()
        run.model.eval()
        if state.best is not None:
            figures = self.stopping_at.figures or self.validation.final()
            run.put_metrics({"step": state.best_step, **figures})
        reason = "done" if state.cooldown is None else "early stop"
        if wanted is not None and figures and self.task.goal.reached(figures, wanted):
            reason = "reached"  # also at the very end
        yield from self.validation.sample(kept=True)
        yield pronounce(run, figures, reason, self.losses)
        yield run.finish(reason, figures)
