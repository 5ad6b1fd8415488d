"""Chapter 19: the encoder–decoder of 2017.

Shapes use the legend of `jumok.nn.attention`; S is the length of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
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
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)

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


def answer_loss(
    model: EncoderDecoder, source: Tensor, source_padding: Tensor, target: Tensor, target_padding: Tensor
) -> Tensor:
    """Return the mean cross-entropy of the tokens of the target after the first: (B, S) and (B, T + 1) -> ()."""
    logits = model(source, target[:, :-1], source_padding)  # (B, T, V)
    counted = target_padding[:, 1:]  # (B, T)
    return F.cross_entropy(logits[counted], target[:, 1:][counted])


@torch.no_grad()
def next_of_answer(model: EncoderDecoder, source: Sequence[int], start: int) -> Callable[[Sequence[int]], Tensor]:
    """Encode a source once, and return a function: the log-probabilities of the next token of an answer, (V,)."""
    encoded = model.encode(torch.tensor([source]))  # (1, S, C)

    @torch.no_grad()
    def log_probabilities(written: Sequence[int]) -> Tensor:
        target = torch.tensor([[start, *written]])  # (1, T)
        return model.decode(target, encoded)[0, -1].log_softmax(dim=-1)  # (V,)

    return log_probabilities
