"""One optimizer step: the passes over its batches, the sum of the gradients, and the update."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

from torch import Tensor

from jumok.device import autocast, seed_random
from jumok.training.objective import Objective, mean_losses
from jumok.training.optim import clip_gradients, set_rate
from jumok.training.state import TrainingRun


class Taken(NamedTuple):
    """What a step has done.

    losses: of the task, in the order of `Task.loss_sums`; their sum was minimised. cost: of its passes, in average
    batches. updated: the losses and the norm were finite.
    """

    losses: list[float]
    norm: float
    cost: float
    updated: bool


class Steps:
    """Takes the optimizer steps of a run, together with the other processes, which take the same ones."""

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._world, self._model = run, run.world, run.trained
        self.objective = Objective(run.task, run.model) if run.shards is None else run.shards.objective

    def take(self, number: int, rate: float) -> Taken:
        """Take step `number`: forward and backward, clip, update. An update that is not finite is skipped.

        Args:
            rate: learning rate, as a share of its peak.
        """
        with nullcontext() if self._run.shards is None else self._world.connected():  # a pass sends messages of its own
            return self._take(number, rate)

    def _take(self, number: int, rate: float) -> Taken:
        run, task, accumulate = self._run, self._run.task, self._run.config.accumulate
        set_rate(run.optimizers, rate)
        self._model.train()
        # All batches of the step are made first, because each loss is divided by what all of them count.
        parts = [
            (batch, place, part)
            for batch in range(number * accumulate, (number + 1) * accumulate)
            for place, part in enumerate(task.parts(batch))
        ]
        counts = [sum(each) for each in zip(*(task.counts(part) for _, _, part in parts), strict=True)]
        totals, cost = [0.0] * len(counts), 0.0
        for batch, place, part in parts:
            cost += task.cost(part)
            mine = self._world.share(part)
            if len(mine[0]):
                losses = self._losses(mine, counts, batch, place)
                losses.sum().backward()
                totals = [total + loss for total, loss in zip(totals, losses.tolist(), strict=True)]
            elif run.shards is not None:  # a pass gathers the parameters from all processes, so all take part
                (0.0 * self._losses(tuple(each[:1] for each in part), counts, batch, place).sum()).backward()
        totals = self._world.sum(totals) if run.shards else self._world.sum_gradients(self._model, totals)
        norm = clip_gradients(self._model, run.config.clip)
        finite = all(map(math.isfinite, [*totals, norm]))
        if finite:
            for optimizer in run.optimizers:
                optimizer.step()
        self._model.zero_grad()
        return Taken(totals, norm, cost, finite)

    def try_a_pass(self) -> None:
        """A forward and a backward pass, without an update."""
        part = self._run.task.parts(0)[0]
        self._model.train()
        mine = self._world.share(part)
        self._losses(mine if len(mine[0]) else part, list(self._run.task.counts(part)), batch=0).sum().backward()
        self._model.zero_grad()

    def _losses(self, part: tuple[Tensor, ...], counts: list[int], batch: int, place: int = 0) -> Tensor:
        """The share of a part of a batch, given by its number, in each loss of its step, (losses,)."""
        run, rank = self._run, self._world.rank
        # Dropout is the same after a resume, and another one for each part of a batch and for each process.
        seed_random(run.device, (run.config.seed * 1_000_003 + batch + (place << 40) + (rank << 52)) % 2**63)
        with autocast(run.device, run.config.precision):
            sums, _ = self.objective(*part)
            return mean_losses(sums, counts)
