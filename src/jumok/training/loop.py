"""The training loop: steps, validations, samples and saves, in this order, as events.

A run by steps is a pure function of its configuration and its text: the initial parameters, each batch and each dropout
mask depend on the seed and the step alone. So a run that was killed continues from its last saved state to the same
parameters and figures, bit for bit, on the same machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from torch import Tensor

from jumok.device import autocast, own_random, seed_random
from jumok.messages import tr
from jumok.runs.events import Event, Finish, Notice, Step
from jumok.training.clock import Clock
from jumok.training.compilation import Compilation
from jumok.training.objective import Objective, mean_loss
from jumok.training.optim import clip_gradients, set_rate
from jumok.training.saving import Saving
from jumok.training.stages import begin_stage
from jumok.training.state import TrainingRun
from jumok.training.stopping import EarlyStopping, StoppingAt, is_over, require_finite_steps
from jumok.training.validation import Validation


class Loop:
    """Trains a run from where it is to its end, or until `stop` is set."""

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.state, self.config, self.task = run, run.state, run.config, run.task
        self.model, self.optimizers, self.objective = run.model, run.optimizers, Objective(run.task, run.model)
        self.clock = Clock(run)
        self.validation = Validation(run, self.clock)
        self.early_stopping, self.stopping_at = EarlyStopping(run), StoppingAt(run)
        self.saving, self.compilation = Saving(run, self.clock), Compilation(run)
        self.stop = False

    def events(self) -> Iterator[Event]:
        """Train."""
        run, state = self.run, self.state
        for text in run.notices:
            yield Notice(step=state.step, text=text)
        if run.result is not None:
            yield run.result
            return
        yield from self._prepare()
        while not is_over(run) and not self.stop:
            began, before = time.perf_counter(), state.progress
            with self.compilation.in_use(), own_random(run.device):
                step = self.take_step()
            seconds = time.perf_counter() - began
            yield step
            yield from self.clock.watch(seconds)
            require_finite_steps(run, self.saving.save)
            if self.validation.due(before):
                yield from self._validate(with_sample=self.validation.sample_due(before))
            if self.saving.due and not (is_over(run) or self.stop):  # the state is saved below then
                yield self.saving.save()
        if not is_over(run):
            yield from self._interrupt()
            return
        # A run that has reached its goal has its best parameters, unless their file was damaged and it was resumed.
        if state.validated != state.step and (not state.reached or state.best is None):
            yield from self._validate(with_sample=True)
        if state.best is None and self.task.has_validation:
            run.folder.write_parameters(self.model)
            text = tr(
                "No validation had a finite loss; the parameters are those of the last step, {step:,}.", step=state.step
            )
            yield Notice(step=state.step, text=text)
        yield self.saving.save()
        if run.stages and state.best is not None and state.best_step <= run.first_step:
            text = tr(
                "Nothing better was found; the parameters are still those of step {step:,}.", step=state.best_step
            )
            yield Notice(step=state.step, text=text)
        yield self._finish()

    # --- a step -------------------------------------------------------------------------------------------------------

    def take_step(self) -> Step:
        """Take one optimizer step: forward and backward, clip, update. An update that is not finite is skipped."""
        began, state = time.perf_counter(), self.state
        rate = self.clock.rate()
        set_rate(self.optimizers, rate)
        self.model.train()
        # All batches of the step are made first, because each loss is divided by what all of them count.
        first = state.step * self.config.accumulate
        parts = [
            (number, place, part)
            for number in range(first, first + self.config.accumulate)
            for place, part in enumerate(self.task.parts(number))
        ]
        counts = [sum(each) for each in zip(*(self.task.counts(part) for _, _, part in parts), strict=True)]
        total = cost = 0.0
        for number, place, part in parts:
            loss = self._loss(part, counts, number, place)
            loss.backward()
            total += float(loss.detach())
            cost += self.task.share(part)
        norm = clip_gradients(self.model, self.config.clip)
        finite = math.isfinite(total) and math.isfinite(norm)
        if finite:
            for optimizer in self.optimizers:
                optimizer.step()
        state.failures = 0 if finite else state.failures + 1
        self.model.zero_grad()
        state.step += 1
        self.clock.advance(began, tokens=self.task.tokens_per_batch * cost)
        return Step(
            step=state.step,
            loss=total,
            rate=rate,
            grad_norm=norm,
            skipped=not finite,
            progress=state.progress,
            seconds=self.run.seconds,
            remaining=self.clock.remaining(),
            tokens_per_second=self.clock.tokens_per_second,
        )

    def _loss(self, part: tuple[Tensor, ...], counts: list[int], number: int, place: int = 0) -> Tensor:
        """The share of a part of batch `number` in the loss of its step."""
        # Dropout is the same after a resume, and another one for each part of a batch.
        seed_random(self.run.device, (self.config.seed * 1_000_003 + number + (place << 40)) % 2**63)
        with autocast(self.run.device, self.config.precision):
            sums, _ = self.objective(*part)
            return mean_loss(sums, counts)

    # --- between steps ------------------------------------------------------------------------------------------------

    def _validate(self, *, with_sample: bool) -> Iterator[Event]:
        began = time.perf_counter()
        figures = yield from self.validation.run()
        if figures:
            yield from self.stopping_at.check(figures)
        yield from self.early_stopping.check(self.validation.times_as_often)  # counts failed validations, too
        if with_sample or self.state.reached:
            yield from self.validation.sample()
        self.clock.evaluation_seconds = time.perf_counter() - began

    # --- before the first step, and after the last --------------------------------------------------------------------

    def _prepare(self) -> Iterator[Event]:
        if self.state.stage < len(self.run.stages):
            yield from begin_stage(self.run, self.validation, self.stopping_at, self.saving)
        # A run that was stopped before its first step has this sample already.
        if self.state.step == 0 and not self.run.folder.logs.size("samples.txt"):
            yield from self.validation.sample()
        if self.config.compile == "on" and not is_over(self.run) and not self.stop:
            failure = self.compilation.start(self._try_a_pass)
            self.model.zero_grad()
            if failure:
                yield Notice(step=self.state.step, text=failure)
        yield from self.clock.start()
        self.saving.start()

    def _try_a_pass(self) -> None:
        part = self.task.parts(0)[0]
        self.model.train()
        with own_random(self.run.device):
            self._loss(part, list(self.task.counts(part)), number=0).backward()

    def _interrupt(self) -> Iterator[Event]:
        run, state = self.run, self.state
        # Before its first validation a run has no model.safetensors, which `jumok generate` and others load.
        if state.best is None and (self.task.has_validation or not run.stages):
            run.folder.write_parameters(self.model)
        yield self.saving.save()
        figures = {} if state.best is None else run.folder.read_config()["metrics"]
        yield run.finish("interrupted", {name: value for name, value in figures.items() if name != "step"})

    def _finish(self) -> Finish:
        """Take the last figures, of the best parameters, which the model has from then on, in eval mode."""
        run, state, wanted = self.run, self.state, self.config.stop_at
        run.report(tr("reading the held-out part for the last figure"))
        figures: dict[str, float] = {}
        self.model.eval()
        if state.best is not None:
            run.folder.read_parameters(self.model)
            figures = self.stopping_at.figures or self.validation.final()
            run.put_metrics({"step": state.best_step, **figures})
        reason = "done" if state.cooldown is None else "early stop"
        if wanted is not None and figures and self.task.goal.reached(figures, wanted):
            reason = "reached"  # also at the very end
        return run.finish(reason, figures)
