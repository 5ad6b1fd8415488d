"""Chapter 17: the blocks of the Transformer of 2017, which normalise after the addition.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from jumok.course.chapters.block import Block, LayerNorm
from jumok.course.chapters.cross import CrossAttention


class PostNormBlock(Block):
    """A block of an encoder: norm(x + f(x)), with the parts of `Block`."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, mask)))  # (B, T, C)
        return self.mlp_norm(x + self.dropout(self.mlp(x)))  # (B, T, C)


class DecoderBlock(PostNormBlock):
    """A block of a decoder: self-attention, cross-attention to the source, and an MLP."""

    def __init__(
        self, width: int, n_head: int, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] = F.relu
    ) -> None:
        super().__init__(width, n_head, dropout, activation)
        self.cross_norm = LayerNorm(width)
        self.cross_attention = CrossAttention(width, width, n_head, dropout, qkv_bias=True)

    def forward(  # type: ignore[override]
        self, x: Tensor, context: Tensor, mask: Tensor | None = None, context_mask: Tensor | None = None
    ) -> Tensor:
        """(B, T, C) and (B, S, C) -> (B, T, C)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, mask)))  # (B, T, C)
        x = self.cross_norm(x + self.dropout(self.cross_attention(x, context, context_mask)))  # (B, T, C)
        return self.mlp_norm(x + self.dropout(self.mlp(x)))  # (B, T, C)
