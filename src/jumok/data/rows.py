"""Sequences of ids of different lengths in one memory-mapped file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.ids import load_ids
from jumok.files import atomic_path
from jumok.tokenizers import Ids

MULTIPLE = 8  # lengths are padded to a multiple of this, which is efficient for the kernels


class Rows:
    """Sequences of ids of different lengths.

    Args:
        ids: (tokens,), the concatenated sequences.
        ends: (rows,), the end of each sequence in `ids`.
    """

    def __init__(self, ids: Ids, ends: NDArray[np.int64]) -> None:
        self.ids, self.ends = ids, ends
        self.lengths: NDArray[np.int64] = np.diff(ends, prepend=0)

    @classmethod
    def of(cls, sequences: Sequence[NDArray[Any]]) -> Rows:
        """Make rows from sequences in memory."""
        ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.uint32), *sequences]), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        """Return the ids of one sequence, (length,), int64."""
        end = int(self.ends[row])
        return self.ids[end - int(self.lengths[row]) : end].astype(np.int64)

    def padded(
        self, rows: Sequence[int] | NDArray[np.int64], pad: int, multiple: int = MULTIPLE, most: int | None = None
    ) -> Tensor:
        """Return some sequences as a batch, (B, T), int64, padded on the right.

        Args:
            rows: numbers of the sequences.
            pad: id of the padding.
            multiple: T is a multiple of this, unless `most` is smaller.
            most: T is at most this; None: no limit.
        """
        longest = max(1, int(self.lengths[rows].max()))
        block = np.full((len(rows), -(-longest // multiple) * multiple), pad, np.int64)
        for place, row in enumerate(rows):
            sequence = self[int(row)]
            block[place, : len(sequence)] = sequence
        return torch.from_numpy(block)[:, :most].contiguous()


def evenly_spread(count: int, wanted: int) -> NDArray[np.int64]:
    """Return the indices of the middles of `wanted` equal parts of `count` items: (wanted,), ascending."""
    return (np.arange(wanted) * 2 + 1) * count // (2 * wanted)


def write_rows(path: Path, sequences: Iterable[Ids], dtype: np.dtype[Any]) -> Rows:
    """Write sequences of ids to a .npy file at `path`, and their ends to a second file in the same folder."""
    lengths, pieces = [], [np.empty(0, dtype)]
    for sequence in sequences:
        lengths.append(len(sequence))
        pieces.append(np.asarray(sequence, dtype))
    for file, values in ((path, np.concatenate(pieces)), (_ends(path), np.cumsum(lengths, dtype=np.int64))):
        with atomic_path(file) as temporary, temporary.open("wb") as target:
            np.save(target, values, allow_pickle=False)
    return load_rows(path, len(lengths))


def load_rows(path: Path, count: int) -> Rows:
    """Map sequences written by `write_rows` into memory.

    Raises:
        RunError: a file is missing or damaged, or does not contain `count` sequences.
    """
    ends: Any = load_ids(_ends(path), count)
    total = int(ends[-1]) if count else 0
    return Rows(load_ids(path, total), np.asarray(ends, np.int64))


def _ends(path: Path) -> Path:
    return path.with_suffix(".ends.npy")
