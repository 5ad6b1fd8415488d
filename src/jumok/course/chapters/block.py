"""Chapter 7: LayerNorm, the MLP, and the block that joins them with attention.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.multi_head import MultiHeadAttention


class LayerNorm(nn.Module):
    """Normalise each vector to mean 0 and variance 1, then scale and shift its columns: (..., C) -> (..., C)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        centred = x - x.mean(dim=-1, keepdim=True)  # (..., C)
        variance = (centred**2).mean(dim=-1, keepdim=True)  # (..., 1)
        return centred / (variance + self.eps).sqrt() * self.weight + self.bias


def gelu(x: Tensor) -> Tensor:
    """GELU by the approximation with tanh, as in GPT-2."""
    return F.gelu(x, approximate="tanh")


class MLP(nn.Module):
    """Two linear layers with an activation between them, for each position separately: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = gelu) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Widen, apply the activation, narrow."""
        return self.down_proj(self.activation(self.up_proj(x)))  # (B, T, 4C) -> (B, T, C)


class Block(nn.Module):
    """Attention between positions, then an MLP for each position, as x + f(norm(x)): (B, T, C) -> (B, T, C)."""

    def __init__(
        self, width: int, n_head: int, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] = gelu
    ) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(width)
        self.attention = MultiHeadAttention(width, width, n_head, dropout, qkv_bias=True)
        self.mlp_norm = LayerNorm(width)
        self.mlp = MLP(width, activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: (T, T), or broadcastable to (B, H, T, T)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask))  # (B, T, C)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))  # (B, T, C)
