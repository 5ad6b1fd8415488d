"""Pooling: from the hidden states of a text to one vector, the input of a classifier.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.config import PoolingKind


class Pooling(nn.Module):
    """Pools the hidden states of a text to one vector.

    - "first": the first position ([CLS] in BERT, https://arxiv.org/abs/1810.04805).
    - "last": the last position that is not padding (GPT, Radford et al. 2018,
      https://openai.com/index/language-unsupervised).
    - "mean": the mean of all positions.
    - "attention": a weighted mean. The weights are a softmax over the products with a learned vector
      (https://aclanthology.org/N16-1174/, without the hidden layer). It is initially zero, which gives the mean.

    Args:
        kind: one of the four names.
        width: C.
    """

    def __init__(self, kind: PoolingKind, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.query = nn.Parameter(torch.zeros(width)) if kind == "attention" else None

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, C) -> (B, C).

        Args:
            hidden: the hidden states.
            mask: (B, T), True for tokens, at least one in each row; None: no padding.
        """
        if self.kind == "first":
            return hidden[:, 0]
        if mask is None:
            mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)  # (B, T)
        if self.kind == "last":
            places = torch.arange(hidden.shape[1], device=hidden.device)  # (T,)
            last = (places * mask).argmax(dim=1)  # (B,)
            return hidden[torch.arange(len(hidden), device=hidden.device), last]  # (B, C)
        return (self._weights(hidden, mask.bool()).unsqueeze(-1) * hidden).sum(dim=1)  # (B, C)

    def _weights(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the weight of each position: (B, T), of the type of `hidden`; rows sum to one."""
        if self.query is None:
            scores = hidden.new_zeros(mask.shape)  # (B, T)
        else:
            scores = hidden @ self.query * hidden.shape[-1] ** -0.5  # (B, T)
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=1).to(hidden.dtype)
