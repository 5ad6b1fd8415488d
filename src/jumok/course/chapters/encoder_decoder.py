"""Chapter 19: the encoder–decoder of 2017.

Shapes use the legend of `jumok.nn.attention`; S is the length of the source.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.head import causal_mask
from jumok.course.chapters.positions import sinusoidal
from jumok.course.chapters.post_norm import DecoderBlock, PostNormBlock


class EncoderDecoder(nn.Module):
    """A model that reads a source and predicts each next token of the target: (B, S), (B, T) -> (B, T, V)."""

    def __init__(self, vocab_size: int, n_layer: int, n_head: int, n_embd: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.encoder = nn.ModuleList(PostNormBlock(n_embd, n_head, dropout, F.relu) for _ in range(n_layer))
        self.decoder = nn.ModuleList(DecoderBlock(n_embd, n_head, dropout, F.relu) for _ in range(n_layer))
        self.dropout = nn.Dropout(dropout)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, C), with sinusoidal positions."""
        x = self.token_embedding(ids) * self.token_embedding.embedding_dim**0.5  # (B, T, C)
        return self.dropout(x + sinusoidal(ids.shape[1], x.shape[-1]).to(x.dtype))

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, S) -> (B, S, C)."""
        x = self.embed(source)  # (B, S, C)
        for block in self.encoder:
            x = block(x, mask)  # (B, S, C)
        return x

    def decode(self, target: Tensor, encoded: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """(B, T), (B, S, C) -> (B, T, V)."""
        x, mask = self.embed(target), causal_mask(target.shape[1])
        for block in self.decoder:
            x = block(x, encoded, mask, source_mask)  # (B, T, C)
        return x @ self.token_embedding.weight.T  # (B, T, V)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor | None = None) -> Tensor:
        """padding: (B, S), True for the tokens of the source."""
        mask = None if padding is None else padding[:, None, None, :]  # (B, 1, 1, S)
        return self.decode(target, self.encode(source, mask), mask)
