"""The training loop: steps, validations, samples and saves, in this order, as events.

A run by steps is a pure function of its configuration and its text: the initial parameters, each batch and each dropout
mask depend on the seed and the step alone. So a run that was killed continues from its last saved state to the same
parameters and figures, bit for bit, on the same machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import nullcontext

from torch import Tensor

from jumok.device import autocast, own_random, seed_random
from jumok.errors import JumokError, ProcessLost
from jumok.messages import tr
from jumok.runs.events import Event, Finish, Notice, Step, Verdict
from jumok.training.alarms import Alarms
from jumok.training.checkpoint import Saving
from jumok.training.clock import Clock
from jumok.training.compilation import uncompile
from jumok.training.optim import clip_gradients, set_rate
from jumok.training.parallel import without_sums
from jumok.training.run import TrainingRun
from jumok.training.stopping import Stopping
from jumok.training.takeover import Takeover
from jumok.training.validation import Validation
from jumok.training.verdict import pronounce


class Loop:
    """Trains a run from where it is to its end, or until `stop` is set."""

    def __init__(self, run: TrainingRun) -> None:
        self.run, self.config, self.task = run, run.config, run.task
        self.group, self.objective = run.group, run.objective
        self.clock = clock = Clock(run)
        self.validation = Validation(run, clock)
        self.stopping, self.alarms = Stopping(run, clock, self.validation), Alarms(run, clock)
        self.takeover = Takeover(run, clock, self.try_a_pass)
        parts = (clock, self.validation, self.stopping, self.alarms)
        for part in parts:
            part.load_state_dict(run.history.numbers)
        self.checkpoint = Saving(run, clock, parts)
        self.stop = False
        self._updating = False  # parameters or moments are neither those before a step nor those after it

    def events(self) -> Generator[Event, None, None]:
        """Train. In several processes all of them do so; what rank 0 alone can decide is broadcast.

        Raises:
            ProcessLost: another process has failed. Rank 0 has saved the state, if it has all of it.
        """
        try:
            yield from self._events()
        except ProcessLost:
            if self.run.shards is None and self.group.rank == 0 and not self._updating:
                self.checkpoint.save()
            raise
        finally:
            self.takeover.close()
            uncompile(self.run.trained, self.task)

    def _events(self) -> Generator[Event, None, None]:
        run, clock, validation, group = self.run, self.clock, self.validation, self.group
        alarms = {found.text for found in self.task.alarms}
        for text in (text for text in run.history.notices if text not in alarms):
            yield Notice(step=clock.step, text=text)
        if run.history.result is not None:
            if group.rank == 0:
                yield self._verdict(run.history.result.figures, run.history.result.reason)
                yield run.history.result
            return
        yield from self.alarms.before_the_first_step()
        yield from self._prepare()
        while (rate := group.broadcast(None if self._ends else clock.rate())) is not None:
            began, before = time.perf_counter(), clock.progress
            with own_random(run.device):
                step = self.take_step(rate)
            seconds = time.perf_counter() - began
            yield step
            if not self.takeover.is_ahead:
                yield from clock.watch(seconds)
            if error := self.stopping.error_after(step):
                self.checkpoint.save()
                yield self._verdict({}, "failed")
                raise error
            validates, samples = group.broadcast(
                (validation.due(before), validation.sample_due(before) and not self.stopping.is_over)
            )
            if validates:
                yield from self._validate(with_sample=samples)
            # After the last step the state is saved below.
            if group.broadcast(self.checkpoint.due and not (clock.is_over or self.stop)):
                yield self.checkpoint.save()
            if not self._ends:
                yield from self.takeover.before_step()
        self.takeover.close()
        if not group.broadcast(self.stopping.is_over):
            yield from self._interrupt()
            return
        # A run that has reached its goal has its best parameters, unless their file was damaged and it was resumed.
        if group.broadcast(
            validation.validated != clock.step and (not self.stopping.reached or validation.best is None)
        ):
            yield from self._validate(with_sample=False)
        if group.broadcast(validation.best is None and self.task.has_validation):
            run.write_parameters()
            text = tr(
                "No validation had a finite loss; the parameters are those of the last step, {step:,}.",
                step=clock.step,
            )
            yield Notice(step=clock.step, text=text)
        yield self.checkpoint.save()
        if group.rank == 0:
            yield from self._finish()

    @property
    def _ends(self) -> bool:
        return self.stopping.is_over or self.stop

    # --- a step -------------------------------------------------------------------------------------------------------

    def take_step(self, rate: float) -> Step:
        """Take one optimizer step: forward and backward, clip, update. An update that is not finite is skipped.

        Args:
            rate: learning rate, as a share of its peak.
        """
        began, run, clock = time.perf_counter(), self.run, self.clock
        set_rate(run.optimizers, rate)
        if self.task.learns_from_answers:
            try:
                with run.evaluating():
                    self.task.begin_step(run.model, clock.step)
            except JumokError:  # nothing of the step was done yet
                if self.validation.best is None:
                    run.write_parameters()
                self.checkpoint.save()
                raise
        losses, cost = self._gradients()
        norm = clip_gradients(run.trained, self.config.clip)
        finite = all(map(math.isfinite, [*losses, norm]))
        if finite and norm > 0:  # optimizers would move on by their moments where nothing is to be learned
            self._updating = True
            for optimizer in run.optimizers:
                optimizer.step()
            self._updating = False
        run.trained.zero_grad()
        run.trained.eval()  # for whoever uses it between two steps
        clock.advance(began, tokens=self.task.tokens_per_batch * cost)
        return Step(
            step=self.clock.step,
            loss=losses[0],
            rate=rate,
            grad_norm=norm,
            skipped=not finite,
            progress=self.clock.progress,
            seconds=clock.seconds,
            remaining=self.clock.remaining(),
            tokens_per_second=self.clock.tokens_per_second,
            figures=self.task.figures_of_step(losses),
        )

    def _gradients(self) -> tuple[list[float], float]:
        """Compute the gradients of a step, forward and backward over its batches.

        Returns:
            The losses of the task, whose sum is minimised, and the cost of the passes, in average batches.
        """
        run, task, accumulate = self.run, self.task, self.config.accumulate
        first = self.clock.step * accumulate
        run.trained.train()
        # All batches of the step are made first, because each loss is divided by what all of them count.
        parts = [
            (batch, place, part)
            for batch in range(first, first + accumulate)
            for place, part in enumerate(task.parts(batch))
        ]
        counts = [sum(each) for each in zip(*(task.counts(part) for _, _, part in parts), strict=True)]
        totals, cost = [0.0] * len(counts), 0.0
        with self.group.connected():
            for number, (batch, place, part) in enumerate(parts, 1):
                cost += task.cost(part)
                rows = self.group.rows(part)
                with without_sums(self.objective) if number < len(parts) else nullcontext():
                    if len(rows[0]):
                        losses = self._losses(rows, counts, batch, place)
                        losses.sum().backward()
                        totals = [total + loss for total, loss in zip(totals, losses.tolist(), strict=True)]
                    else:  # all processes take part in a pass that sends messages
                        (0.0 * self._losses(tuple(each[:1] for each in part), counts, batch, place).sum()).backward()
            return self.group.sum(totals), cost

    def _losses(self, part: tuple[Tensor, ...], counts: list[int], batch: int, place: int = 0) -> Tensor:
        """Compute the share of a part of a batch, given by its number, in each loss of its step, (losses,)."""
        run = self.run
        # Dropout is the same after a resume, and another one for each part of a batch and for each process.
        seed = (self.config.seed * 1_000_003 + batch + (place << 40) + (self.group.rank << 52)) % 2**63
        seed_random(run.device, seed)
        with autocast(run.device, self.config.precision):
            losses: Tensor = self.objective(counts, *part)
        return losses

    # --- between steps ------------------------------------------------------------------------------------------------

    def _validate(self, *, with_sample: bool) -> Iterator[Event]:
        began = time.perf_counter()
        with self.run.averaged(), self.run.whole():  # gathers shards once for all of this
            if self.group.rank:
                return
            figures = yield from self.validation.run()
            if figures:
                yield from self.stopping.check_goal(figures)
            yield from self.alarms.after_validation(figures)
            yield from self.stopping.check_patience()  # counts failed validations, too
            if with_sample:
                yield from self.validation.sample()
        self.clock.evaluation_seconds = time.perf_counter() - began

    # --- before the first step, and after the last --------------------------------------------------------------------

    def _prepare(self) -> Iterator[Event]:
        group = self.group
        # A run that was stopped before its first step has this sample already.
        if group.broadcast(self.clock.step == 0 and not self.run.folder.logs.size("samples.txt")):
            with self.run.whole():
                if group.rank == 0:
                    yield from self.validation.sample()
        if not group.broadcast(self._ends):
            yield from self.takeover.before_first_step()
        yield from self.clock.start()
        self.checkpoint.start()

    def try_a_pass(self) -> None:
        """Compute a forward and a backward pass, without an update."""
        run, part = self.run, self.task.parts(0)[0]
        run.trained.train()
        rows = self.group.rows(part)
        with self.group.connected(), without_sums(self.objective):
            self._losses(rows if len(rows[0]) else part, list(self.task.counts(part)), batch=0).sum().backward()
        run.trained.zero_grad()
        run.trained.eval()

    def _interrupt(self) -> Iterator[Event]:
        run = self.run
        # Before its first validation a run has no model.safetensors, which `jumok generate` and others load.
        if self.group.broadcast(self.validation.best is None):
            run.write_parameters()
        yield self.checkpoint.save()
        if self.group.rank:
            return
        metrics = {} if self.validation.best is None else run.folder.read_config()["metrics"]
        figures = metrics.get("validation", metrics)  # a confirmed goal and older runs have them by their names
        yield self._end("interrupted", {name: value for name, value in figures.items() if name != "step"})

    def _finish(self) -> Iterator[Event]:
        """Take the last figures and sample, of the kept parameters, which the model has from then on, in eval mode."""
        run, wanted = self.run, self.config.stop_at
        run.report(tr("reading the held-out part for the last figure"))
        figures: dict[str, float] = {}
        run.read_best()
        run.model.eval()
        if self.validation.best is not None:
            figures = self.stopping.figures or self.validation.final()
            run.put_metrics({"step": self.validation.best_step, **figures})
        reason = "done" if self.clock.cooldown is None else "early stop"
        if wanted is not None and figures and self.task.goal.reached(figures, wanted):
            reason = "reached"  # also at the very end
        yield from self.validation.sample(kept=True)
        yield self._verdict(figures, reason)
        yield self._end(reason, figures)

    def _verdict(self, figures: Mapping[str, float], reason: str) -> Verdict:
        steps = {"best_step": self.validation.best_step, "lowest_step": self.validation.lowest_step}
        return pronounce(self.run, figures, reason, step=self.clock.step, **steps)

    def _end(self, reason: str, figures: dict[str, float]) -> Finish:
        clock, read = self.clock, self.validation.validation_read
        return self.run.finish(reason, figures, step=clock.step, seconds=clock.seconds, read=read)
