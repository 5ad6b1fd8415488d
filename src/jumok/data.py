"""From text to ids to batches, in an order that depends on the seed and the step alone.

Nothing here keeps a position: batch number n is a function of n, so a run continues anywhere without a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.messages import message, tr
from jumok.text import Text
from jumok.tokenizers import Tokenizer

Ids = NDArray[np.unsignedinteger]
HEADER = 128  # bytes of a .npy file before the numbers, for any array of one dimension
MULTIPLE = 8  # lengths are padded to one, which suits the kernels
REMEDY = message("Restore it from a copy, or start a new run; the model itself can still be used.")


def tokenize(text: Text, tokenizer: Tokenizer, path: Path, start: int = 0, stop: int | None = None) -> Ids:
    """Write the ids of text[start:stop] to a .npy file and map it into memory.

    The text is read in pieces, so that its size is limited by the disk, not by the memory.

    Returns:
        (tokens,), of the tokenizer's smallest integer type, read-only.
    """
    count = 0
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_header(file, tokenizer.dtype, count)
        for piece in tokenizer.encode_chunks(text.chunks(start, stop)):
            file.write(piece.tobytes())
            count += len(piece)
        file.seek(0)
        _write_header(file, tokenizer.dtype, count)  # as long as the first: both are filled up to HEADER bytes
    return load_ids(path)


def _write_header(file: IO[bytes], dtype: np.dtype[Any], count: int) -> None:
    np.lib.format.write_array_header_2_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    assert file.tell() == HEADER


def load_ids(path: Path, count: int | None = None) -> Ids:
    """Ids written by `tokenize`, mapped into memory.

    Raises:
        RunError: the file is missing, damaged, or does not hold `count` ids.
    """
    try:
        empty = path.stat().st_size <= HEADER  # a header alone, and nothing cannot be mapped
        ids: Ids = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(
            "{path}, the text as ids, cannot be read ({reason}). {remedy}", path=path, reason=reason, remedy=tr(REMEDY)
        ) from None
    if count is not None and len(ids) != count:
        raise RunError(
            "{path} holds {count:,} ids where the run had {expected:,}. {remedy}",
            path=path,
            count=len(ids),
            expected=count,
            remedy=tr(REMEDY),
        )
    return ids


class Batches:
    """Training windows without replacement.

    Each epoch lays a grid of windows of context_length tokens over the text, shifted by a random offset, and visits
    them in random order. So an epoch sees each token once, but for some at the two ends, and each time at another
    place in its window.

    Args:
        ids: (tokens,), at least context_length + 1 of them.
        context_length: T. batch_size: B. seed: of shifts and orders.
    """

    def __init__(self, ids: Ids, context_length: int, batch_size: int, seed: int) -> None:
        self.ids, self.context_length, self.batch_size, self.seed = ids, context_length, batch_size, seed
        self.windows = max(1, (len(ids) - context_length) // context_length)  # in one epoch
        self._epoch = -1
        self._starts: NDArray[np.int64] = np.empty(0, np.int64)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of batch `number`, counted from 0: (B, T) each, int64."""
        first = number * self.batch_size
        rows = [self._window(i) for i in range(first, first + self.batch_size)]
        block = torch.from_numpy(np.stack(rows))  # (B, T+1)
        return block[:, :-1].contiguous(), block[:, 1:].contiguous()

    def _window(self, index: int) -> NDArray[np.int64]:
        epoch, place = divmod(index, self.windows)
        if epoch != self._epoch:
            random = np.random.Generator(np.random.PCG64((self.seed, epoch)))
            slack = len(self.ids) - 1 - self.windows * self.context_length  # tokens that the grid may shift by
            shift = random.integers(0, slack + 1)
            self._starts = shift + random.permutation(self.windows) * self.context_length
            self._epoch = epoch
        start = int(self._starts[place])
        return self.ids[start : start + self.context_length + 1].astype(np.int64)


# --- rows of different lengths ---


class Rows:
    """Sequences of ids of different lengths in one file, mapped into memory.

    Args:
        ids: (tokens,), all sequences one after the other. ends: (rows,), where each of them ends.
    """

    def __init__(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        self.ids, self.ends = ids, ends
        self.lengths: NDArray[np.int64] = np.diff(ends, prepend=0)

    @classmethod
    def of(cls, sequences: Sequence[NDArray[Any]]) -> Rows:
        """Sequences in memory."""
        ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.uint32), *sequences]), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        """The ids of one sequence, (length,), int64."""
        end = int(self.ends[row])
        return self.ids[end - int(self.lengths[row]) : end].astype(np.int64)

    def padded(self, rows: Sequence[int] | NDArray[np.int64], pad: int, multiple: int = MULTIPLE) -> Tensor:
        """Some sequences as a batch, (B, T), int64, filled up on the right with `pad` to a multiple of `multiple`."""
        longest = max(1, int(self.lengths[rows].max()))
        block = np.full((len(rows), -(-longest // multiple) * multiple), pad, np.int64)
        for place, row in enumerate(rows):
            sequence = self[int(row)]
            block[place, : len(sequence)] = sequence
        return torch.from_numpy(block)


def write_rows(path: Path, sequences: Iterable[Ids], dtype: np.dtype[Any]) -> Rows:
    """Write sequences of ids to `path`, a .npy file, and their ends beside it."""
    lengths, pieces = [], [np.empty(0, dtype)]
    for sequence in sequences:
        lengths.append(len(sequence))
        pieces.append(np.asarray(sequence, dtype))
    for file, values in ((path, np.concatenate(pieces)), (_ends(path), np.cumsum(lengths, dtype=np.int64))):
        with atomic_path(file) as temporary, temporary.open("wb") as target:
            np.save(target, values, allow_pickle=False)
    return load_rows(path, len(lengths))


def load_rows(path: Path, count: int) -> Rows:
    """Sequences written by `write_rows`.

    Raises:
        RunError: a file is missing, damaged, or does not hold `count` sequences.
    """
    ends: Any = load_ids(_ends(path), count)
    total = int(ends[-1]) if count else 0
    return Rows(load_ids(path, total), np.asarray(ends, np.int64))


def _ends(path: Path) -> Path:
    return path.with_suffix(".ends.npy")


class LengthBatches:
    """Batches of rows that are about as long as each other, so that little of a batch is padding.

    An epoch sorts all rows by their lengths, rows of equal lengths in random order, cuts that into batches of at most
    `tokens` numbers with their padding, and visits the batches in random order. How many there are does not depend on
    the epoch, so batch number n is a function of n here too.

    With `weights` there are as many batches, and all of them weigh the same, give or take a row. Training needs that:
    each batch moves the weights of a model about as far, since Adam and Muon divide a gradient by its size. So what a
    row counts depends on how much else is in its batch, and no factor before the loss would change that. Batches of
    long rows then exceed `tokens`, and `parts` says how to cut them.

    Args:
        lengths: (rows, k): of the k sequences that a row has. tokens: in a batch, padding included; a row that is
            longer by itself is a batch of its own. seed: of the orders. multiple: to which lengths are padded.
        weights: (rows,), whole numbers above 0: how many of what a loss is the mean of are in a row.
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
        self.numbers_per_batch = float(self._keys.sum()) / max(1, self.count)  # padding included, about
        self._epoch = -1
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._order: NDArray[np.int64] = np.empty(0, np.int64)

    def rows(self, number: int) -> NDArray[np.int64]:
        """The rows of batch `number`, counted from 0."""
        epoch, place = divmod(number, self.count)
        if epoch != self._epoch:
            random = np.random.Generator(np.random.PCG64((self.seed, epoch)))
            self._rows = self._sorted(random.permutation(len(self._keys)))
            self._order = random.permutation(self.count)
            if self.weights is not None:
                self._cuts = _even_cuts(self.weights[self._rows], self.count)
            self._epoch = epoch
        batch = int(self._order[place])
        return self._rows[self._cuts[batch] : self._cuts[batch + 1]]

    def parts(self, number: int) -> list[slice]:
        """Where batch `number` is cut so that no part has more than `tokens` numbers."""
        return [slice(*ends) for ends in pairwise(_cuts(self._keys[self.rows(number)], self.tokens))]

    def _sorted(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """`rows` by their lengths, the longest sequence of each first to count; stable."""
        keys = self._keys[rows]
        return rows[np.lexsort((*keys.T, keys.max(axis=1)))]


def _cuts(keys: NDArray[np.int64], tokens: int) -> list[int]:
    """Where to cut rows of these padded lengths, (rows, k), so that no batch costs more than `tokens`."""
    cuts, widest = [0], np.zeros(keys.shape[1], np.int64)
    for row, key in enumerate(keys):
        wider = np.maximum(widest, key)
        if row > cuts[-1] and (row + 1 - cuts[-1]) * int(wider.sum()) > tokens:
            cuts.append(row)
            wider = key
        widest = wider
    return [*cuts, len(keys)]


def _even_cuts(weights: NDArray[np.int64], count: int) -> list[int]:
    """Where to cut rows of these weights, (rows,), into `count` batches of equal weight, at least one row in each."""
    sums, i = np.cumsum(weights), np.arange(count + 1)
    cuts = np.searchsorted(count * sums, i * sums[-1], side="right")
    cuts = np.maximum.accumulate(cuts - i) + i  # a row may outweigh a batch
    found: list[int] = np.minimum(cuts, len(weights) - (count - i)).tolist()
    return found
