"""Chapter 2, average the past: by loops, by a triangular matrix, and by a softmax.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def average_by_loop(x: Tensor) -> Tensor:
    """Return the mean of each position and all earlier ones, computed with two loops: (..., T, C) -> (..., T, C)."""
    averages = []
    for t in range(x.shape[-2]):
        total = torch.zeros_like(x[..., 0, :])  # (..., C)
        for s in range(t + 1):
            total = total + x[..., s, :]
        averages.append(total / (t + 1))
    return torch.stack(averages, dim=-2)  # (..., T, C)


def triangle(t: int) -> Tensor:
    """Return a matrix with ones on and below its diagonal, and zeros above it: (T, T)."""
    return torch.ones(t, t).tril()


def normalise_rows(table: Tensor) -> Tensor:
    """Divide each row by its sum, so that it sums to one: (..., T, S) -> (..., T, S)."""
    return table / table.sum(dim=-1, keepdim=True)


def average_by_matrix(x: Tensor) -> Tensor:
    """Return all averages at once, as `average_by_loop`: (..., T, C) -> (..., T, C)."""
    return normalise_rows(triangle(x.shape[-2]).to(x)) @ x


def weights_by_softmax(scores: Tensor) -> Tensor:
    """Return the weights of scores of which those of future tokens are -inf: (T, T) -> (T, T)."""
    future = triangle(len(scores)) == 0
    return scores.masked_fill(future, float("-inf")).softmax(dim=-1)


def average_by_softmax(x: Tensor) -> Tensor:
    """Return the averages with the weights from a softmax over equal scores: (..., T, C) -> (..., T, C)."""
    t = x.shape[-2]
    return weights_by_softmax(torch.zeros(t, t).to(x)) @ x


def average_by_running_mean(x: Tensor) -> Tensor:
    """Move the mean 1/(t+1) of the way towards each new vector: (T, C) -> (T, C), as `average_by_loop`."""
    mean, averages = torch.zeros_like(x[0]), []
    for t, vector in enumerate(x):
        mean = mean + (vector - mean) / (t + 1)
        averages.append(mean)
    return torch.stack(averages)  # (T, C)
