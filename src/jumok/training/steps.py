"""One optimizer step: the passes over its batches, the sum of the gradients, and the update."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import NamedTuple

from torch import Tensor

from jumok.device import autocast, seed_random
from jumok.training.objective import Objective, mean_loss
from jumok.training.optim import clip_gradients, set_rate
from jumok.training.state import TrainingRun


class Taken(NamedTuple):
    """What a step has done. cost: of its passes, in average batches. updated: the loss and the norm were finite."""

    loss: float
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
        total = cost = 0.0
        for batch, place, part in parts:
            cost += task.share(part)
            mine = self._world.share(part)
            if len(mine[0]):
                loss = self._loss(mine, counts, batch, place)
                loss.backward()
                total += float(loss.detach())
            elif run.shards is not None:  # a pass gathers the parameters from all processes, so all take part
                (0.0 * self._loss(tuple(each[:1] for each in part), counts, batch, place)).backward()
        total = self._world.sum(total) if run.shards else self._world.sum_gradients(self._model, total)
        norm = clip_gradients(self._model, run.config.clip)
        finite = math.isfinite(total) and math.isfinite(norm)
        if finite:
            for optimizer in run.optimizers:
                optimizer.step()
        self._model.zero_grad()
        return Taken(total, norm, cost, finite)

    def try_a_pass(self) -> None:
        """A forward and a backward pass, without an update."""
        part = self._run.task.parts(0)[0]
        self._model.train()
        mine = self._world.share(part)
        self._loss(mine if len(mine[0]) else part, list(self._run.task.counts(part)), batch=0).backward()
        self._model.zero_grad()

    def _loss(self, part: tuple[Tensor, ...], counts: list[int], batch: int, place: int = 0) -> Tensor:
        """The share of a part of a batch, given by its number, in the loss of its step."""
        run, rank = self._run, self._world.rank
        # Dropout is the same after a resume, and another one for each part of a batch and for each process.
        seed_random(run.device, (run.config.seed * 1_000_003 + batch + (place << 40) + (rank << 52)) % 2**63)
        with autocast(run.device, run.config.precision):
            sums, _ = self.objective(*part)
            return mean_loss(sums, counts)
