"""Chapter 18: BERT, blocks without a causal mask, and the prediction of masked tokens.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.block import LayerNorm
from jumok.course.chapters.post_norm import PostNormBlock


class MaskedLMHead(nn.Module):
    """From hidden states to logits: a linear layer, GELU, a norm, and the matrix of the embedding."""

    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """(B, T, C), (V, C) -> (B, T, V)."""
        return self.norm(F.gelu(self.dense(hidden))) @ embedding.T + self.bias


class BERT(nn.Module):
    """An encoder of texts: (B, T) -> (B, T, C)."""

    def __init__(
        self, vocab_size: int, context_length: int, n_layer: int, n_head: int, n_embd: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(context_length, n_embd)
        self.type_embedding = nn.Embedding(2, n_embd)
        self.embedding_norm = LayerNorm(n_embd)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(PostNormBlock(n_embd, n_head, dropout, F.gelu) for _ in range(n_layer))
        self.mlm_head = MaskedLMHead(n_embd, vocab_size)

    def forward(self, ids: Tensor, padding: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """padding: (B, T), True for tokens. segments: (B, T), 0 for the first text and 1 for the second."""
        t = ids.shape[1]
        segments = torch.zeros_like(ids) if segments is None else segments
        x = self.token_embedding(ids) + self.position_embedding.weight[:t] + self.type_embedding(segments)  # (B, T, C)
        x = self.dropout(self.embedding_norm(x))
        mask = None if padding is None else padding[:, None, None, :]  # (B, 1, 1, T)
        for block in self.blocks:
            x = block(x, mask)  # (B, T, C)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, V)."""
        return self.mlm_head(hidden, self.token_embedding.weight)
