"""Chapter 15: attention from one sequence to another, and batches of sequences of different lengths.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.course.chapters.multi_head import MultiHeadAttention


class CrossAttention(MultiHeadAttention):
    """Attention from x to a context: the queries come from x, the keys and values from the context."""

    def forward(self, x: Tensor, context: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, C) and (B, S, C) -> (B, T, C). mask: broadcastable to (B, H, T, S)."""
        return self.attend(x, context, mask)


def pad(sequences: Sequence[Tensor], value: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return a batch (B, S, C) of sequences, (S_b, C) each, and its mask (B, 1, 1, S): True for tokens."""
    longest = max(len(sequence) for sequence in sequences)
    batch = torch.full((len(sequences), longest, sequences[0].shape[-1]), value, dtype=sequences[0].dtype)
    mask = torch.zeros(len(sequences), 1, 1, longest, dtype=torch.bool)
    for b, sequence in enumerate(sequences):
        batch[b, : len(sequence)] = sequence
        mask[b, ..., : len(sequence)] = True
    return batch, mask
