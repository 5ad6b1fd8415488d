"""Chapter 4: queries, keys and values, and why the scores are divided by √D.

Shapes use the legend of `jumok.nn.attention`.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2.1 and its footnote 4.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.course.chapters.dot_product import entropy, softmax, softmax_jacobian


class SelfAttention(nn.Module):
    """One head without a mask: (B, T, d_in) -> (B, T, D)."""

    def __init__(self, d_in: int, head_dim: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_in, head_dim, bias=False)
        self.k_proj = nn.Linear(d_in, head_dim, bias=False)
        self.v_proj = nn.Linear(d_in, head_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # (B, T, D)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (B, T, T)
        return softmax(scores) @ v  # (B, T, D)


class Spread(NamedTuple):
    """How widely scores are spread, and what the softmax makes of them."""

    variance: float
    entropy: float
    largest: float
    sensitivity: float


def spread(q: Tensor, k: Tensor, scale: float) -> Spread:
    """Measure scale · q·k and the softmax over it: q (B, T, D), k (B, S, D); in float64, as numbers may be tiny."""
    q, k = q.double(), k.double()
    scores = q @ k.transpose(-2, -1) * scale  # (B, T, S)
    weights = softmax(scores)  # (B, T, S)
    change = scale * softmax_jacobian(weights) @ k.unsqueeze(-3)  # (B, T, S, D)
    return Spread(
        variance=scores.var(correction=0).item(),
        entropy=entropy(weights).mean().item(),
        largest=weights.max(dim=-1).values.mean().item(),
        sensitivity=change.flatten(-2).norm(dim=-1).median().item(),
    )


def random_queries_and_keys(width: int, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Draw numbers of mean 0 and variance 1: queries (N, 1, D), and S keys for each, (N, S, D)."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(queries, 1, width, generator=generator)
    return q, torch.randn(queries, keys, width, generator=generator)
