"""Chapter 15: attention from one sequence to another.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from torch import Tensor

from jumok.course.chapters.multi_head import MultiHeadAttention


class CrossAttention(MultiHeadAttention):
    """Attention from x to a context: the queries come from x, the keys and values from the context."""

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, C) and (B, S, C) -> (B, T, C). mask: broadcastable to (B, H, T, S)."""
        return self.attend(x, context, mask)
