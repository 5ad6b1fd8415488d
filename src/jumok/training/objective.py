"""The loss of a task as a module, so that wrappers and hooks of `torch.nn.Module` see a whole pass of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jumok.models import Model
from jumok.training.tasks import Task

Sums = tuple[Tensor, ...]
Counts = tuple[int, ...]


class Objective(nn.Module):
    """A model with its head and its loss.

    A loss is a sum and a count, because the mean over the batches of a step is not the mean of their means. A task may
    have several losses, each with a count of its own.
    """

    def __init__(self, task: Task[Any], model: Model) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, *batch: Tensor) -> tuple[Sums, Counts]:
        """The sums of the losses over a batch, scalars in nats, and the numbers of tokens or texts in them.

        Args:
            batch: on the CPU, where counting does not wait for the device of the model, to which it is copied.
        """
        counts = self._task.counts(batch)
        device = self.model.token_embedding.weight.device
        return self._task.loss_sums(self.model, tuple(each.to(device, non_blocking=True) for each in batch)), counts


def mean_losses(sums: Sums, counts: Sequence[int]) -> Tensor:
    """Divide each sum by its count, (losses,). They are added up to the loss that is minimised.

    Args:
        counts: of all batches of a step. Then the losses, and the gradients, of its batches add up to those of one
            batch of all their rows.
    """
    return torch.stack([total / max(1, count) for total, count in zip(sums, counts, strict=True)])


def mean_loss(sums: Sums, counts: Sequence[int]) -> Tensor:
    """Return the loss that is minimised, a scalar: the sum of `mean_losses`."""
    return mean_losses(sums, counts).sum()
