"""Chapter 6: heads side by side, and the same with one projection that is split.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.course.chapters.head import Head, attention_weights


class StackedHeads(nn.Module):
    """Several heads, one after the other, and a projection of their outputs: (B, T, d_in) -> (B, T, d_out)."""

    def __init__(self, d_in: int, d_out: int, n_head: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(d_in, d_out // n_head, dropout) for _ in range(n_head))
        self.o_proj = nn.Linear(d_out, d_out)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the outputs of the heads, and project."""
        return self.o_proj(torch.cat([head(x) for head in self.heads], dim=-1))  # (B, T, d_out)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one projection for all heads: (B, T, d_in) -> (B, T, d_out)."""

    def __init__(self, d_in: int, d_out: int, n_head: int, dropout: float = 0.0, qkv_bias: bool = False) -> None:
        super().__init__()
        self.n_head, self.head_dim = n_head, d_out // n_head
        self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.o_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        """(B, T, H*D) -> (B, H, T, D)."""
        batch, t, _ = x.shape
        return x.view(batch, t, self.n_head, self.head_dim).transpose(1, 2)  # (B, H, T, D)

    def attend(self, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        """Attend from each position of x, (B, T, d_in), to the positions of `source`, (B, S, d_in)."""
        q = self.split(self.q_proj(x))  # (B, H, T, D)
        k = self.split(self.k_proj(source))  # (B, H, S, D)
        v = self.split(self.v_proj(source))  # (B, H, S, D)
        heads = self.dropout(attention_weights(q, k, mask)) @ v  # (B, H, T, D)
        return self.o_proj(heads.transpose(1, 2).flatten(2))  # (B, T, d_out)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from x to itself. mask: (T, T), or broadcastable to (B, H, T, T)."""
        return self.attend(x, x, mask)
