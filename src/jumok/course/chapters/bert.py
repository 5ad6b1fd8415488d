"""Chapter 18: BERT, blocks without a causal mask, and the prediction of masked tokens.

Shapes use the legend of `jumok.nn.attention`.

Source: https://arxiv.org/abs/1810.04805.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.block import LayerNorm
from jumok.course.chapters.post_norm import PostNormBlock
from jumok.course.chapters.training import learning_rate


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
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.05)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

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


def join_texts(first: Sequence[int], second: Sequence[int], cls: int, sep: int) -> tuple[list[int], list[int]]:
    """Return [CLS] first [SEP] second [SEP], and the segment of each token; the second text may be empty."""
    ids, segments = [cls, *first, sep], [0] * (len(first) + 2)
    if second:
        ids, segments = [*ids, *second, sep], [*segments, *[1] * (len(second) + 1)]
    return ids, segments


def pad_ids(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Return texts of different lengths as one batch, (B, T), and True for its tokens, (B, T)."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows])  # (B, T)
    return ids, ids != pad_id


def mask_tokens(ids: Tensor, mask_id: int, special: int, vocab_size: int, rate: float = 0.15) -> tuple[Tensor, Tensor]:
    """Choose tokens: 80 % become [MASK], 10 % a random token, 10 % stay. Ids below `special` are never chosen.

    Returns:
        Inputs and targets, (B, T) each; the target is -100 where nothing is predicted.
    """
    chosen = (torch.rand(ids.shape) < rate) & (ids >= special)  # (B, T)
    fate = torch.rand(ids.shape)  # (B, T)
    others = torch.randint(special, vocab_size, ids.shape)  # (B, T)
    inputs = torch.where(chosen & (fate < 0.8), mask_id, ids)
    inputs = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), others, inputs)
    return inputs, torch.where(chosen, ids, -100)


def mlm_loss(model: BERT, inputs: Tensor, targets: Tensor, padding: Tensor) -> Tensor:
    """Return the mean cross-entropy at the chosen tokens: (B, T) each -> ()."""
    chosen = targets != -100  # (B, T)
    hidden = model(inputs, padding)[chosen]  # (N, C)
    return F.cross_entropy(model.logits(hidden), targets[chosen])


def fit(model: nn.Module, next_loss: Callable[[], Tensor], steps: int, peak: float) -> list[float]:
    """Train a model with AdamW, and return the loss of each step. next_loss: draws a batch and returns its loss."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    losses = []
    model.train()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate((step + 0.5) / steps, peak=peak, warmup=0.1)
        loss = next_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


@torch.no_grad()
def fill_mask(model: BERT, ids: Tensor, mask_id: int) -> Tensor:
    """Return the probabilities of all tokens at each [MASK] of a text: (T,) -> (N, V)."""
    hidden = model(ids[None])[0]  # (T, C)
    return model.logits(hidden[ids == mask_id]).softmax(dim=-1)  # (N, V)


class Classifier(nn.Module):
    """A pretrained BERT with a pooler and a classifier: (B, T) -> (B, K), the logits of K classes."""

    def __init__(self, bert: BERT, classes: int) -> None:
        super().__init__()
        width = bert.token_embedding.embedding_dim
        self.bert = bert
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, ids: Tensor, padding: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Classify each text by its first hidden state, that of [CLS]."""
        first = self.bert(ids, padding, segments)[:, 0]  # (B, C)
        return self.classifier(torch.tanh(self.pooler(first)))  # (B, K)
