"""From the positions of a text to one vector: what a classifier stands on.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.config import PoolingKind


class Pooling(nn.Module):
    """One vector for each text.

    "first" takes the first position ([CLS] of BERT, https://arxiv.org/abs/1810.04805), "last" the last one that is no
    filling (GPT, Radford et al. 2018, https://openai.com/index/language-unsupervised), "mean" the mean of all, and
    "attention" a mean weighted by a softmax over the products with one learned vector, the only parameter
    (https://aclanthology.org/N16-1174/, without its hidden layer). That begins at zero, which is the plain mean.

    Args:
        kind: one of the four. width: C.
    """

    def __init__(self, kind: PoolingKind, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.query = nn.Parameter(torch.zeros(width)) if kind == "attention" else None

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, C) -> (B, C).

        Args:
            hidden: one vector for each position.
            mask: (B, T), True where there is a token, at least one in each row; None: everywhere.
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
        """How much each position counts: (B, T), of the type of `hidden`; rows sum to one."""
        if self.query is None:
            scores = hidden.new_zeros(mask.shape)  # (B, T)
        else:
            scores = hidden @ self.query * hidden.shape[-1] ** -0.5  # (B, T)
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=1).to(hidden.dtype)
