"""Pooling: from the hidden states of a text to one vector, the input of a classifier.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Pools the hidden states of a text to one vector.

    - "first": the first position ([CLS] in BERT, https://arxiv.org/abs/1810.04805).
    - "last": the last position that is not padding (GPT, Radford et al. 2018,
      https://openai.com/index/language-unsupervised).
    - "mean": the mean of all positions.
    """

    def __init__(self, kind: Literal["first", "last", "mean"]) -> None:
        super().__init__()
        self.kind = kind

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
        scores = hidden.new_zeros(mask.shape).masked_fill(~mask.bool(), float("-inf"))  # (B, T)
        weights = scores.softmax(dim=1).to(hidden.dtype)
        return (weights.unsqueeze(-1) * hidden).sum(dim=1)  # (B, C)
