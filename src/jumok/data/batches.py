"""Batches in an order that depends only on the seed and the step.

Batch number n is a function of n, so a run can be resumed at any step without a state of the data.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.random_streams import Purpose, random_for
from jumok.data.rows import MULTIPLE
from jumok.tokenizers import Ids


class Batches:
    """Batches of training windows, sampled without replacement.

    Each epoch divides the text into windows of context_length tokens, starting at a random offset, and visits them in
    random order. An epoch contains each token once, except some at both ends of the text. The position of a token in
    its window changes with the epoch.

    Args:
        ids: (tokens,), at least context_length + 1 of them.
        context_length: T.
        batch_size: B.
        seed: of the offsets and orders.
    """

    def __init__(self, ids: Ids, context_length: int, batch_size: int, seed: int) -> None:
        self.ids, self.context_length, self.batch_size, self.seed = ids, context_length, batch_size, seed
        self.windows = max(1, (len(ids) - context_length) // context_length)  # in one epoch
        self._epoch = -1
        self._starts: NDArray[np.int64] = np.empty(0, np.int64)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of batch `number`, counted from 0: (B, T) each, int64."""
        length = self.context_length + 1
        rows = [self.ids[start : start + length].astype(np.int64) for start in self._starts_of(number)]
        block = torch.from_numpy(np.stack(rows))  # (B, T+1)
        return block[:, :-1].contiguous(), block[:, 1:].contiguous()

    def _starts_of(self, number: int) -> list[int]:
        first = number * self.batch_size
        return [self._start(i) for i in range(first, first + self.batch_size)]

    def _start(self, index: int) -> int:
        epoch, place = divmod(index, self.windows)
        if epoch != self._epoch:
            random = random_for(Purpose.ORDER, self.seed, epoch)
            slack = len(self.ids) - 1 - self.windows * self.context_length  # the largest offset
            shift = random.integers(0, slack + 1)
            self._starts = shift + random.permutation(self.windows) * self.context_length
            self._epoch = epoch
        return int(self._starts[place])


class RowBatches:
    """Batches of equally many rows. Each epoch visits all rows once, in random order; a batch may end one and begin
    the next.

    Args:
        count: of rows. batch_size: B. seed: of the orders.
    """

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def rows(self, number: int) -> list[int]:
        """Return the row numbers of batch `number`, counted from 0."""
        first = number * self.batch_size
        return [self._row(i) for i in range(first, first + self.batch_size)]

    def _row(self, index: int) -> int:
        epoch, place = divmod(index, self.count)
        if epoch != self._epoch:
            self._order = random_for(Purpose.ORDER, self.seed, epoch).permutation(self.count)
            self._epoch = epoch
        return int(self._order[place])


# --- rows of different lengths ---


class LengthBatches:
    """Batches of rows of similar length, so that little of a batch is padding.

    An epoch sorts all rows by length, with rows of equal length in random order. It divides them into batches of at
    most `tokens` ids, padding included, and visits the batches in random order. Every epoch has the same number of
    batches, so batch number n is a function of n.

    With `weights` there are as many batches, but each has the same total weight, up to one row. In training every batch
    changes the model by about the same amount, because Adam and Muon divide a gradient by its size. The influence of a
    row would therefore depend on the number of targets in its batch, and scaling the loss would not change that.
    Batches of long rows then exceed `tokens`; `parts` divides them.

    Args:
        lengths: (rows, k), of the k sequences of each row.
        tokens: ids in a batch, padding included. A longer row is a batch of its own.
        seed: of the orders.
        multiple: lengths are padded to a multiple of this.
        weights: (rows,), positive integers: the number of targets in each row over which the loss is averaged.
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        tokens: int,
        seed: int,
        multiple: int = MULTIPLE,
        weights: NDArray[np.int64] | None = None,
    ) -> None:
        self.tokens, self.seed, self.weights = tokens, seed, weights
        self._keys = -(-np.maximum(lengths, 1) // multiple) * multiple  # (rows, k)
        self._cuts = _cuts(self._keys[self._sorted(np.arange(len(lengths)))], tokens)
        self.count = len(self._cuts) - 1  # in one epoch
        self.tokens_per_batch = max(1, round(float(lengths.sum()) / max(1, self.count)))
        self.rows_per_batch = len(lengths) // max(1, self.count)
        self.numbers_per_batch = float(self._keys.sum()) / max(1, self.count)  # padding included, about
        self._epoch = -1
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def rows(self, number: int) -> NDArray[np.int64]:
        """Return the row numbers of batch `number`, counted from 0."""
        epoch, place = divmod(number, self.count)
        if epoch != self._epoch:
            random = random_for(Purpose.ORDER, self.seed, epoch)
            self._rows = self._sorted(random.permutation(len(self._keys)))
            self._order = random.permutation(self.count)
            if self.weights is not None:
                self._cuts = _even_cuts(self.weights[self._rows], self.count)
            self._epoch = epoch
        batch = int(self._order[place])
        return self._rows[self._cuts[batch] : self._cuts[batch + 1]]

    def parts(self, number: int) -> list[slice]:
        """Return the parts of batch `number`, each of at most `tokens` ids."""
        return [slice(*ends) for ends in pairwise(_cuts(self._keys[self.rows(number)], self.tokens))]

    def _sorted(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `rows` sorted by the length of their longest sequence, then by the other lengths; stable."""
        keys = self._keys[rows]
        return rows[np.lexsort((*keys.T, keys.max(axis=1)))]


def _cuts(keys: NDArray[np.int64], tokens: int) -> list[int]:
    """Return the boundaries of batches of at most `tokens` ids, for rows of these padded lengths, (rows, k)."""
    cuts, widest = [0], np.zeros(keys.shape[1], np.int64)
    for row, key in enumerate(keys):
        wider = np.maximum(widest, key)
        if row > cuts[-1] and (row + 1 - cuts[-1]) * int(wider.sum()) > tokens:
            cuts.append(row)
            wider = key
        widest = wider
    return [*cuts, len(keys)]


def _even_cuts(weights: NDArray[np.int64], count: int) -> list[int]:
    """Return the boundaries of `count` batches of equal weight and at least one row; weights: (rows,)."""
    sums, i = np.cumsum(weights), np.arange(count + 1)
    cuts = np.searchsorted(count * sums, i * sums[-1], side="right")
    cuts = np.maximum.accumulate(cuts - i) + i  # a row can weigh more than a batch
    found: list[int] = np.minimum(cuts, len(weights) - (count - i)).tolist()
    return found
