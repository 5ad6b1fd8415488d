"""Slots whose texts are read by step.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jumok.inference.native import memory
from jumok.inference.native.build import library
from jumok.inference.native.parameters import PANEL, TYPES, NativeModel
from jumok.inference.slots import Chunk
from jumok.processors import computing_threads

BLOCK = 16  # positions of a cache that lie together, as in step.cpp
LONGEST = 256  # ids of a chunk; measured: 64 are read at 0.8 of the speed of 256, 512 no faster
OUTPUTS = ("last", "every", "hidden")  # in the order of step.cpp

Numbers = NDArray[np.float32]


class _Chunk(ctypes.Structure):
    _fields_ = (
        ("cache", ctypes.c_void_p), ("blocks", ctypes.c_int32), ("start", ctypes.c_int32), ("count", ctypes.c_int32),
    )  # fmt: skip


class NativeSlots:
    """Keys and values of some texts, for the step in C++. One thread at a time may use it.

    The logits of a text are the same bit for bit whatever other texts are read beside it, and however its ids are split
    into chunks.

    Args:
        model: packed parameters. slots: how many texts.

    Raises:
        RuntimeError: there is no compiled step; ask `build.library` first.
    """

    longest = LONGEST
    caches = True

    def __init__(self, model: NativeModel, slots: int) -> None:
        found = library(build=False)
        if found is None:
            raise RuntimeError("the C++ step is not built")
        self._step, self._work_of, self._draw = found.jumok_step, found.jumok_work, found.jumok_draw
        address, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._step.argtypes = (address, address, number, address, number, address, address, number)
        self._work_of.argtypes, self._work_of.restype = (address, count, count), count
        self._draw.argtypes = (address, count, count, count, address, address, address)
        self._model, self._work = model, memory.empty((0,))
        self._pointer = ctypes.addressof(model.structure)
        c = model.config
        padded = -(-c.head_dim // BLOCK) * BLOCK
        self._type = TYPES["float32" if model.kind == "float32" else "bfloat16"]
        shape = (c.n_layer, c.n_kv_head, 0, BLOCK * (c.head_dim + padded))  # (L, G, blocks, numbers of a block)
        self._empty = memory.empty(shape, self._type)
        self._caches, self._addresses = [self._empty] * slots, [0] * slots

    def read(self, chunks: Sequence[Chunk]) -> Numbers:
        """Logits after the last id of each chunk: (N, V), float32.

        Raises:
            ValueError: an id or a position is out of range, a chunk is empty, or a slot occurs twice.
        """
        return self._run(chunks, "last")[:, : self._model.config.vocab_size]

    def read_every(self, chunks: Sequence[Chunk]) -> list[Numbers]:
        """Logits after every id: (T, V) of each chunk. See `read`."""
        return _split(self._run(chunks, "every")[:, : self._model.config.vocab_size], chunks)

    def hidden(self, chunks: Sequence[Chunk]) -> list[Numbers]:
        """Hidden states of every id, after the final norm: (T, C) of each chunk. See `read`."""
        return _split(self._run(chunks, "hidden")[:, : self._model.config.n_embd], chunks)

    def _run(self, chunks: Sequence[Chunk], wanted: Literal["last", "every", "hidden"]) -> Numbers:
        """Return some numbers for the last or every id of the chunks: (N, padded V or C)."""
        if len({chunk.slot for chunk in chunks}) < len(chunks):
            raise ValueError("a slot occurs twice")
        config = self._model.config
        context, longest = config.context_length, 0
        given = (_Chunk * len(chunks))()
        for one, (slot, start, new) in zip(given, chunks, strict=True):
            stop = start + len(new)
            if not 0 <= start < stop <= context:  # step.cpp would read and write outside its memory
                raise ValueError("a chunk is empty, or a position is out of range")
            one.blocks, one.start, one.count = self._with_room(slot, stop).shape[2], start, stop - start
            one.cache = self._addresses[slot]
            longest = max(longest, stop)
        ids = [token for chunk in chunks for token in chunk.ids]
        if not 0 <= min(ids) <= max(ids) < config.vocab_size:
            raise ValueError("an id is out of range")
        needed = self._work_of(self._pointer, len(ids), longest)
        if needed > len(self._work):
            self._work = memory.empty((needed,))
        width = config.n_embd if wanted == "hidden" else config.vocab_size
        found = memory.empty((len(chunks) if wanted == "last" else len(ids), -(-width // PANEL) * PANEL))
        self._step(
            self._pointer, given, len(chunks), (ctypes.c_int32 * len(ids))(*ids), OUTPUTS.index(wanted),
            found.ctypes.data, self._work.ctypes.data, computing_threads(),
        )  # fmt: skip
        return found

    def draw(self, logits: Numbers, temperatures: Sequence[float], uniform: Sequence[float]) -> list[int]:
        """Return the id of each row, as `sampling.drawn` draws it from softmax(logits / temperature).

        It runs on the caller's thread, because the threads of the step wait actively.

        Returns:
            (N,); -1 where a logit is not finite.

        Args:
            logits: (N, V), float32, the numbers of a row side by side. temperatures: (N,), 0 for the likeliest id.
            uniform: (N,), at least 0 and below 1.
        """
        n, vocabulary = logits.shape
        ids = (ctypes.c_int32 * n)()
        self._draw(
            logits.ctypes.data, logits.strides[0] // logits.itemsize, n, vocabulary,
            (ctypes.c_float * n)(*temperatures), (ctypes.c_double * n)(*uniform), ids,
        )  # fmt: skip
        return list(ids)

    def copy(self, source: int, target: int, length: int) -> None:
        """Let the target hold the first positions of the source."""
        blocks = -(-length // BLOCK)
        self._with_room(target, length)[:, :, :blocks] = self._caches[source][:, :, :blocks]

    def forget(self, slot: int) -> None:
        """Free the memory of a slot."""
        self._caches[slot] = self._empty

    def _with_room(self, slot: int, length: int) -> NDArray[Any]:
        """Return the cache of a slot, of at least so many positions; the memory is doubled when needed."""
        cache, blocks = self._caches[slot], -(-length // BLOCK)
        if blocks > cache.shape[2]:
            most = -(-self._model.config.context_length // BLOCK)
            room = min(most, max(blocks, 2 * cache.shape[2]))
            larger = memory.empty((*cache.shape[:2], room, cache.shape[3]), self._type)
            larger[:, :, : cache.shape[2]] = cache
            self._caches[slot], self._addresses[slot] = larger, larger.ctypes.data
            return larger
        return cache


def _split(rows: Numbers, chunks: Sequence[Chunk]) -> list[Numbers]:
    """Return the rows of each chunk."""
    return np.split(rows, np.cumsum([len(chunk.ids) for chunk in chunks])[:-1])
