"""Chapter 8, positions: sinusoidal ones that are added, and rotary ones that turn queries and keys.

Shapes use the legend of `jumok.nn.attention`.

Sources: learned tables https://arxiv.org/abs/1705.03122, the sinusoidal one https://arxiv.org/abs/1706.03762, rotary
https://arxiv.org/abs/2104.09864, causal models without positions https://arxiv.org/abs/2203.16634.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.course.chapters.head import attention_weights
from jumok.course.chapters.multi_head import MultiHeadAttention


def frequencies(width: int, base: float = 10_000.0) -> Tensor:
    """Return the radians per position of each pair of columns: (C/2,), from 1 down to nearly 1 / base; float64."""
    return 1 / base ** (torch.arange(0, width, 2).double() / width)


def sinusoidal(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """Return the table of sinusoidal positions: (T, C), sines in even columns and cosines in odd ones."""
    angles = torch.outer(torch.arange(length).double(), frequencies(width, base))  # (T, C/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()  # (T, C)


def rotary(length: int, head_dim: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of rotary positions: (T, D) each. Columns i and i + D/2 have the same angle."""
    angles = torch.outer(torch.arange(length).double(), frequencies(head_dim, base))  # (T, D/2)
    angles = torch.cat((angles, angles), dim=-1)  # (T, D)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) by the angle of its position: (..., T, D) -> (..., T, D)."""
    a, b = x.chunk(2, dim=-1)  # (..., T, D/2)
    return x * cos + torch.cat((-b, a), dim=-1) * sin  # (..., T, D)


class RotaryAttention(MultiHeadAttention):
    """Self-attention whose queries and keys are rotated by their positions: (B, T, d_in) -> (B, T, d_out)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from x to itself. mask: (T, T), or broadcastable to (B, H, T, T)."""
        q, k, v = (self.split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))  # (B, H, T, D)
        cos, sin = rotary(x.shape[-2], self.head_dim)  # (T, D)
        weights = attention_weights(rotate(q, cos, sin), rotate(k, cos, sin), mask)  # (B, H, T, T)
        heads = self.dropout(weights) @ v  # (B, H, T, D)
        return self.o_proj(heads.transpose(1, 2).flatten(2))  # (B, T, d_out)
