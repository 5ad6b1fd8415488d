"""What tasks on tables share: batches of rows of different lengths, and their tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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

    def cost(self, batch: tuple[Tensor, ...]) -> float:
        """Of the ids, padding included."""
        return sum(tensor.numel() for tensor in batch if tensor.dim() == 2) / self.batches.numbers_per_batch
