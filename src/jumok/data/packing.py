"""Texts of different lengths packed into rows of one length, so that hardly anything of a batch is padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.rows import Rows, load_rows, write_rows

PADDING = -1  # the segment of padding
ROW_LENGTH = 1_024  # of rows, if the context of the model is longer: attention costs time for each pair of a row
DTYPE = np.dtype(np.int32)  # of targets and segments, which may be negative

Text = tuple[NDArray[Any], NDArray[np.bool_]]  # ids (n,), and which of them are to be predicted (n,)


def best_fit(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Divide texts among rows, each text whole: the longest first, each into the fullest row that has room for it.

    Best fit decreasing needs at most 11/9 of the fewest rows possible, and 6/9 of a row
    (https://doi.org/10.1007/978-3-540-74450-4_1). Here the result is a function of the lengths alone.

    Args:
        lengths: 1 to `size` each. size: of a row.

    Returns:
        The numbers of the texts in each row.
    """
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(size + 1)]  # rows by the room that they have left
    rooms = 0  # bit r is set where a row has room r
    for text in np.argsort(-np.asarray(lengths, np.int64), kind="stable").tolist():
        length = lengths[text]
        if enough := rooms >> length:
            room = length + (enough & -enough).bit_length() - 1  # the least that is enough
            row = with_room[room].pop()
            rooms ^= (not with_room[room]) << room
        else:
            room, row = size, len(rows)
            rows.append([])
        rows[row].append(text)
        if left := room - length:
            with_room[left].append(row)
            rooms |= 1 << left
    return rows


def row_length(texts: Sequence[Text], context: int) -> int:
    """Return the length of rows for texts that a model with this context reads."""
    return min(context, max([ROW_LENGTH, *(len(ids) - 1 for ids, _ in texts)]))


class PackedRows(NamedTuple):
    """Rows of packed texts: inputs, what follows each of them, and the number of the text in the row."""

    inputs: Rows
    targets: Rows
    segments: Rows

    @classmethod
    def of(cls, texts: Sequence[Text], length: int, ignored: int) -> PackedRows:
        """Pack texts. The last id of a text is no input, and its first one no target.

        Args:
            texts: of 2 to `length` + 1 ids each. ignored: the target where nothing is to be predicted.
        """
        parts = tuple[list[NDArray[Any]], ...](([], [], []))
        for row in best_fit([len(ids) - 1 for ids, _ in texts], length):
            chosen = [texts[text] for text in row]
            parts[0].append(np.concatenate([ids[:-1] for ids, _ in chosen]))
            parts[1].append(np.concatenate([np.where(mask, ids.astype(DTYPE), ignored)[1:] for ids, mask in chosen]))
            parts[2].append(np.repeat(np.arange(len(row)), [len(ids) - 1 for ids, _ in chosen]))
        return cls(*map(Rows.of, parts))

    @classmethod
    def load(cls, folder: Path, name: str, count: int) -> PackedRows:
        """Map rows that `write` has written into memory."""
        return cls(*(load_rows(folder / f"{name}-{part}.npy", count) for part in cls._fields))

    def write(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        """Write the rows to files in a folder. dtype: of ids."""
        for part, rows, kind in zip(self._fields, self, (dtype, DTYPE, DTYPE), strict=True):
            write_rows(folder / f"{name}-{part}.npy", (rows[row].astype(kind) for row in range(len(rows))), kind)

    def batch(self, rows: Sequence[int], length: int, ignored: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return some rows as inputs, targets and segments, (B, T) each, int64, padded to T = `length`."""
        inputs, targets, segments = (
            part.padded(rows, pad, multiple=length) for part, pad in zip(self, (0, ignored, PADDING), strict=True)
        )
        return inputs, targets, segments
