"""Chapter 5: the causal mask, and one attention head.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def causal_attention_by_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend from query t to the keys 0 to t only: (T, D) each -> (T, D)."""
    outputs = []
    for t in range(len(q)):
        scores = k[: t + 1] @ q[t] / q.shape[-1] ** 0.5  # (t + 1,)
        outputs.append(scores.softmax(dim=-1) @ v[: t + 1])  # (D,)
    return torch.stack(outputs)  # (T, D)


def causal_mask(t: int) -> Tensor:
    """Return the causal mask: (T, T), True where a position may attend, which is at itself and at what is before it."""
    return torch.ones(t, t, dtype=torch.bool).tril()


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Mask the scores, then apply the softmax: (..., T, S) -> (..., T, S)."""
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)


def masked_after_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Apply the softmax, then mask the weights and divide by their sum: (..., T, S) -> (..., T, S)."""
    weights = scores.softmax(dim=-1) * mask  # (..., T, S)
    return weights / weights.sum(dim=-1, keepdim=True)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(q kᵀ / √D), without what the mask forbids: (..., T, D) and (..., S, D) -> (..., T, S)."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (..., T, S)
    return scores.softmax(dim=-1) if mask is None else masked_softmax(scores, mask)


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


@torch.no_grad()
def influence(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return which outputs depend on which inputs: x (S, C) or (1, S, C) -> (T, S), bool."""
    before = layer(x)
    reached = []
    for s in range(x.shape[-2]):
        changed = x.clone()
        changed[..., s, :] += torch.linspace(1, 2, x.shape[-1], dtype=x.dtype)
        difference = (layer(changed) - before).abs().amax(dim=-1)  # (T,)
        reached.append(difference.flatten() > 1e-6)
    return torch.stack(reached, dim=-1)  # (T, S)
