"""Chapter 4: queries, keys and values.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from torch import Tensor, nn

from jumok.course.chapters.dot_product import softmax


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
