"""From text to ids to batches, in an order that depends on the seed and the step alone.

Nothing here keeps a position: batch number n is a function of n, so a run continues anywhere without a state.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.text import Text
from jumok.tokenizers import Tokenizer

Ids = NDArray[np.unsignedinteger]
REMEDY = "Restore it from a copy, or start a new run; the model itself can still be used."


def tokenize(text: Text, tokenizer: Tokenizer, path: Path, start: int = 0, stop: int | None = None) -> Ids:
    """Write the ids of text[start:stop] to a .npy file and map it into memory.

    The text is read in pieces, so that its size is limited by the disk, not by the memory.

    Returns:
        (tokens,), of the tokenizer's smallest integer type, read-only.
    """
    raw = path.with_suffix(".ids")
    count = 0
    try:
        with raw.open("wb") as file:
            for piece in tokenizer.encode_chunks(text.chunks(start, stop)):
                file.write(piece.tobytes())
                count += len(piece)
        with atomic_path(path) as temporary, temporary.open("wb") as target, raw.open("rb") as source:
            np.lib.format.write_array_header_2_0(
                target, {"descr": tokenizer.dtype.str, "fortran_order": False, "shape": (count,)}
            )
            while block := source.read(1 << 22):
                target.write(block)
    finally:
        raw.unlink(missing_ok=True)
    return load_ids(path)


def load_ids(path: Path, count: int | None = None) -> Ids:
    """Ids written by `tokenize`, mapped into memory.

    Raises:
        RunError: the file is missing, damaged, or does not hold `count` ids.
    """
    try:
        empty = path.stat().st_size <= 128  # a header alone, and nothing cannot be mapped
        ids: Ids = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"{path}, the text as ids, cannot be read ({reason}). {REMEDY}") from None
    if count is not None and len(ids) != count:
        raise RunError(f"{path} holds {len(ids):,} ids where the run had {count:,}. {REMEDY}")
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
