"""What tasks on tables share: batches of rows of different lengths, and their tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.data.batches import LengthBatches
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.tasks.task import M, Task

BPE_VOCABULARY = 4_000  # ids, half of what a language model has: a table has too few examples of a rare piece


class TableTask(Task[M]):
    """A task that learns from the rows of a table with two columns.

    A batch has as many rows as fit its number of tokens, so its shape varies.
    """

    unit = "rows"
    fixed_shapes = False

    batches: LengthBatches

    @staticmethod
    def train_on(texts: Iterable[str], kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on texts, one a line."""
        usual = {"vocab_size": BPE_VOCABULARY} if kind == "bpe" else {}
        return train_tokenizer((f"{text}\n" for text in texts), kind, **{**usual, **options})

    @property
    def rows_per_batch(self) -> int:
        """Rows of the table."""
        return self.batches.rows_per_batch

    def share(self, batch: tuple[Tensor, ...]) -> float:
        """Of the ids, padding included."""
        return sum(tensor.numel() for tensor in batch if tensor.dim() == 2) / self.batches.numbers_per_batch


def thinned(
    ids: Tensor, droppable: Tensor, share: float, pad: int, random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Leave out random tokens of each text.

    Source: word dropout, https://arxiv.org/abs/1512.05287, section 4.2; here the tokens are removed, not set to zero.

    Args:
        ids: (B, T), padded on the right with `pad`. droppable: (B, T), True where a token may be left out.
        share: probability that such a token is left out.

    Returns:
        ids (B, T) of what is left, in its order, and how many tokens of each text were left out, (B,).
    """
    gone = droppable & torch.from_numpy(random.random(ids.shape) < share)  # (B, T)
    order = gone.to(torch.uint8).argsort(dim=1, stable=True)  # (B, T), what stays first
    return ids.masked_fill(gone, pad).gather(1, order), gone.sum(dim=1)
