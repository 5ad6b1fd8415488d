"""Texts that step.cpp reads once: their hidden states, and the logits of a classifier.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from jumok.inference.native.parameters import NativeModel, not_finite_is_told
from jumok.inference.native.slots import LONGEST, NativeSlots
from jumok.inference.slots import Chunk
from jumok.tokenizers import Ids

BATCH_IDS = 1024  # read side by side, or one text; their keys and values are in memory together

Numbers = NDArray[np.float32]


def hidden_states(model: NativeModel, rows: Sequence[Ids]) -> Iterator[Numbers]:
    """Yield the hidden states of each row after the final norm: (T, C), for its T ids, at least one.

    They are the same bit for bit whatever rows there are besides.
    """
    first = 0
    while first < len(rows):
        ends = np.cumsum([len(row) for row in rows[first : first + BATCH_IDS]])
        batch = rows[first : first + max(1, int(np.searchsorted(ends, BATCH_IDS, side="right")))]
        first += len(batch)
        slots, found = NativeSlots(model, len(batch)), [list[Numbers]() for _ in batch]
        for start in range(0, max(map(len, batch)), LONGEST):
            parts = [row[start : start + LONGEST].tolist() for row in batch]
            chunks = [Chunk(slot, start, ids) for slot, ids in enumerate(parts) if ids]
            for chunk, hidden in zip(chunks, slots.hidden(chunks), strict=True):
                found[chunk.slot].append(hidden)
        yield from map(np.concatenate, found)


@not_finite_is_told()
def class_logits(model: NativeModel, rows: Sequence[Ids]) -> Numbers:
    """Return the logits of the labels for each row: (n, labels)."""
    assert model.classifier is not None
    pooled = np.stack([_pooled(model, hidden) for hidden in hidden_states(model, rows)])  # (n, C)
    return pooled @ model.classifier.T


def _pooled(model: NativeModel, hidden: Numbers) -> Numbers:
    """(T, C) -> (C,), as `jumok.models.pooling.Pooling`."""
    return hidden[-1] if model.config.pooling == "last" else hidden.mean(axis=0)


@not_finite_is_told()
def softmax(scores: Numbers) -> Numbers:
    """(..., N) -> (..., N); numbers that are not finite remain so."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
