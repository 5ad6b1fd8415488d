"""Chapter 0, before you start: broadcasting, matrix products, slopes, cross-entropy and embeddings, each by loops.

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
    """Add the slices of x along a dimension. The dimension disappears.

    Args:
        x: any shape with at least one dimension. dim: counted from 0, or from the end with -1, -2, ...

    Returns:
        The shape of x without `dim`; equal to `x.sum(dim)`.
    """
    total = torch.zeros_like(x.select(dim, 0))
    for index in range(x.shape[dim]):
        total = total + x.select(dim, index)
    return total


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a + b: sizes are compared from the last dimension on, and a missing size counts as 1.

    Raises:
        ValueError: two sizes differ and neither is 1.
    """
    width = max(len(a), len(b))
    sizes = []
    for left, right in zip((1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b, strict=True):
        if left != right and 1 not in (left, right):
            raise ValueError(f"{a} and {b} do not broadcast: {left} is not {right}, and neither is 1")
        sizes.append(right if left == 1 else left)
    return tuple(sizes)


def product_by_loop(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product: cell (i, j) is the dot product of row i of a and column j of b.

    Args:
        a: (n, m). b: (m, p).

    Returns:
        (n, p); equal to `a @ b`.

    Raises:
        ValueError: the inner sizes differ.
    """
    (n, m), (inner, p) = a.shape, b.shape
    if m != inner:
        raise ValueError(f"the rows of a have {m} numbers and the columns of b have {inner}; they must be the same")
    result = a.new_zeros(n, p)
    for i in range(n):
        for j in range(p):
            for k in range(m):
                result[i, j] += a[i, k] * b[k, j]
    return result


def slopes(f: Callable[[Tensor], Tensor], x: Tensor, step: float = 1e-5) -> Tensor:
    """How fast f grows with each number of x: change one number a little in both directions and measure.

    Args:
        f: takes a tensor of the shape of x, returns one number. x: float64, any shape. step: half of the change.

    Returns:
        The shape of x; about the gradient that autograd computes. It takes 2 calls of f for each number of x; autograd
        takes one call and one backward pass for all of them.
    """
    found = torch.zeros_like(x)
    for index in range(x.numel()):
        change = torch.zeros_like(x)
        change.view(-1)[index] = step
        found.view(-1)[index] = (f(x + change) - f(x - change)) / (2 * step)
    return found


def surprise(probability: float) -> float:
    """-ln p, in nats: 0 for what is certain, and larger the less likely it was."""
    return math.log(1 / probability)


def average_surprise(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy: the mean over all positions of -ln of the probability that the model gave to the correct token.

    Args:
        logits: (..., V). targets: (...), ids below V.

    Returns:
        one number, in nats; equal to the mean of `jumok.models.losses.cross_entropies`.
    """
    rows, correct = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    total = rows.new_zeros(())
    for row, target in zip(rows, correct, strict=True):
        probabilities = (row - row.max()).exp()  # (V,), not yet divided by their sum
        total = total - (probabilities[target] / probabilities.sum()).log()
    return total / len(rows)


def one_hot(ids: Tensor, vocab_size: int) -> Tensor:
    """A row for each id: 1 at the id, 0 elsewhere. (...) -> (..., V), float.

    Raises:
        ValueError: an id is not below vocab_size, or negative.
    """
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise ValueError(f"ids from {int(ids.min())} to {int(ids.max())} do not fit a vocabulary of {vocab_size}")
    return (ids[..., None] == torch.arange(vocab_size, device=ids.device)).float()


def embedding_by_one_hot(ids: Tensor, table: Tensor) -> Tensor:
    """An embedding as a matrix product. It multiplies V rows to select one; a lookup only reads that row.

    Args:
        ids: (...). table: (V, C).

    Returns:
        (..., C); equal to `table[ids]`, as `nn.Embedding` computes it.
    """
    return one_hot(ids, table.shape[0]).to(table.dtype) @ table
