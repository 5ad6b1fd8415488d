"""Chapter 0, before you start: sums, broadcasting, products, slopes, cross-entropy and embeddings, each by loops.

PyTorch computes all of these itself. The functions spell out what it computes, one number at a time.

Shapes use the legend of `jumok.nn.attention`.

Source: broadcasting: https://docs.pytorch.org/docs/stable/notes/broadcasting.html; information as -log p:
https://doi.org/10.1002/j.1538-7305.1948.tb01338.x.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def sum_by_loop(x: Tensor, dim: int) -> Tensor:
    """Return the sum over a dimension, which disappears: as `x.sum(dim)`."""
    total = torch.zeros_like(x.select(dim, 0))
    for index in range(x.shape[dim]):
        total = total + x.select(dim, index)
    return total


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a + b. A missing size counts as 1."""
    width = max(len(a), len(b))
    sizes = []
    for left, right in zip((1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b, strict=True):
        if left != right and 1 not in (left, right):
            raise ValueError(f"{a} + {b}: {left} != {right}")
        sizes.append(right if left == 1 else left)
    return tuple(sizes)


def product_by_loop(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product: (n, m) and (m, p) -> (n, p)."""
    (n, m), p = a.shape, b.shape[1]
    result = torch.zeros(n, p, dtype=a.dtype)
    for i in range(n):
        for j in range(p):
            for k in range(m):
                result[i, j] += a[i, k] * b[k, j]
    return result


def slopes(f: Callable[[Tensor], Tensor], x: Tensor, step: float = 1e-5) -> Tensor:
    """Return how fast f grows with each number of x, a float64 tensor: about the gradient of autograd."""
    found = torch.zeros_like(x)
    for index in range(x.numel()):
        change = torch.zeros_like(x)
        change.view(-1)[index] = step
        found.view(-1)[index] = (f(x + change) - f(x - change)) / (2 * step)
    return found


def surprise(probability: float) -> float:
    """Return -ln p, in nats."""
    return math.log(1 / probability)


def average_surprise(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy, in nats: (T, V) and (T,) -> ()."""
    total = torch.zeros(())
    for row, target in zip(logits, targets, strict=True):
        total = total - row.softmax(dim=-1)[target].log()
    return total / len(targets)


def one_hot(ids: Tensor, vocab_size: int) -> Tensor:
    """Return a row for each id, 1 at the id and 0 elsewhere: (T,) -> (T, V)."""
    return (ids[..., None] == torch.arange(vocab_size)).float()


def embedding_by_one_hot(ids: Tensor, table: Tensor) -> Tensor:
    """Return the rows of the ids, by a matrix product: (T,) and (V, C) -> (T, C)."""
    return one_hot(ids, len(table)).to(table.dtype) @ table
