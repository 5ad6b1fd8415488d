"""Chapter 5: the causal mask, and one attention head.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def causal_mask(t: int) -> Tensor:
    """Return the causal mask: (T, T), True where a position may attend, which is at itself and at what is before it."""
    return torch.ones(t, t, dtype=torch.bool).tril()


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(q kᵀ / √D), without what the mask forbids: (..., T, D) and (..., S, D) -> (..., T, S)."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)


class Head(nn.Module):
    """One causal head: (B, T, d_in) -> (B, T, D)."""

    def __init__(self, d_in: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_in, head_dim, bias=False)
        self.k_proj = nn.Linear(d_in, head_dim, bias=False)
        self.v_proj = nn.Linear(d_in, head_dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to itself and to the positions before it."""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # (B, T, D)
        weights = attention_weights(q, k, causal_mask(x.shape[-2]))  # (B, T, T)
        return self.dropout(weights) @ v  # (B, T, D)
