"""Chapter 3: dot-product attention without parameters. The weights depend on the similarity of vectors.

Shapes use the legend of `jumok.nn.attention`. `scores` are before the softmax, `weights` after it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of the products of the numbers at the same index: (C,) each -> ()."""
    total = torch.zeros(())
    for c in range(len(a)):
        total = total + a[c] * b[c]
    return total


def scores_by_loop(q: Tensor, k: Tensor) -> Tensor:
    """Return the score of each query with each key, one pair at a time: (T, D), (S, D) -> (T, S)."""
    return torch.stack([torch.stack([dot(query, key) for key in k]) for query in q])  # (T, S)


def softmax_by_formula(scores: Tensor) -> Tensor:
    """Return exp(s) divided by the sum of all exp(s), without protection against overflow: (..., S) -> (..., S)."""
    powers = scores.exp()  # (..., S)
    return powers / powers.sum(dim=-1, keepdim=True)


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension: (..., S) -> (..., S). Without the largest score nothing overflows."""
    return softmax_by_formula(scores - scores.max(dim=-1, keepdim=True).values)


def entropy(weights: Tensor) -> Tensor:
    """Return how evenly weights are spread: (..., S) -> (...), in nats, from 0 to log S."""
    return -(weights * weights.clamp(min=1e-45).log()).sum(dim=-1)


def softmax_jacobian(weights: Tensor) -> Tensor:
    """Return the derivative of each weight with respect to each score: (..., S) -> (..., S, S)."""
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def attend_by_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend one query at a time: q (..., T, D), k (..., S, D), v (..., S, C) -> (..., T, C)."""
    contexts = []
    for t in range(q.shape[-2]):
        scores = (q[..., t : t + 1, :] * k).sum(dim=-1)  # (..., S)
        weights = softmax(scores)  # (..., S)
        contexts.append((weights[..., None] * v).sum(dim=-2))  # (..., C)
    return torch.stack(contexts, dim=-2)  # (..., T, C)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with two matrix products and a softmax between them; arguments and result as `attend_by_loop`."""
    return softmax(q @ k.transpose(-2, -1)) @ v
