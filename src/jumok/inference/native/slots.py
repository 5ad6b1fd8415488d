"""Slots whose texts are read by step.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.inference.native.build import library
from jumok.inference.native.parameters import PANEL, NativeModel
from jumok.inference.slots import Chunk

BLOCK = 16  # positions of a cache that lie together, as in step.cpp
LONGEST = 256  # ids of a chunk; measured: 64 are read at 0.8 of the speed of 256, 512 no faster


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

    def __init__(self, model: NativeModel, slots: int) -> None:
        found = library(build=False)
        if found is None:
            raise RuntimeError("the C++ step is not built")
        self._step, self._work_of, self._draw = found.jumok_step, found.jumok_work, found.jumok_draw
        self._work_of.restype = ctypes.c_int64
        self._model, self._work = model, torch.empty(0)
        self._pointer = ctypes.byref(model.structure)
        c = model.config
        padded = -(-c.head_dim // BLOCK) * BLOCK
        kind = torch.float32 if model.kind == "float32" else torch.bfloat16
        shape = (c.n_layer, c.n_kv_head, 0, BLOCK * (c.head_dim + padded))  # (L, G, blocks, numbers of a block)
        self._empty = torch.empty(shape, dtype=kind)
        self._caches = [self._empty] * slots

    def read(self, chunks: Sequence[Chunk]) -> Tensor:
        """Logits after the last id of each chunk: (N, V), float32.

        Raises:
            ValueError: an id or a position is out of range, a chunk is empty, or a slot occurs twice.
        """
        if len({chunk.slot for chunk in chunks}) < len(chunks):
            raise ValueError("a slot occurs twice")
        config, vocabulary = self._model.config, self._model.config.vocab_size
        ids = [token for chunk in chunks for token in chunk.ids]
        longest = max(chunk.start + len(chunk.ids) for chunk in chunks)
        if (  # step.cpp would read and write outside its memory
            any(chunk.start < 0 or len(chunk.ids) == 0 for chunk in chunks)
            or min(ids) < 0 or max(ids) >= vocabulary or longest > config.context_length
        ):  # fmt: skip
            raise ValueError("a chunk is empty, or an id or a position is out of range")
        given = (_Chunk * len(chunks))()
        for one, (slot, start, new) in zip(given, chunks, strict=True):
            cache = self._with_room(slot, start + len(new))
            one.cache, one.blocks, one.start, one.count = cache.data_ptr(), cache.shape[2], start, len(new)
        needed = self._work_of(self._pointer, ctypes.c_int64(len(ids)), ctypes.c_int64(longest))
        if needed > len(self._work):
            self._work = torch.empty(needed)
        logits = torch.empty(len(chunks), -(-vocabulary // PANEL) * PANEL)
        self._step(
            self._pointer, given, len(chunks), (ctypes.c_int32 * len(ids))(*ids), ctypes.c_void_p(logits.data_ptr()),
            ctypes.c_void_p(self._work.data_ptr()), torch.get_num_threads(),
        )  # fmt: skip
        return logits[:, :vocabulary]

    def draw(self, logits: Tensor, temperatures: Sequence[float], uniform: Sequence[float]) -> list[int]:
        """Return the id of each row, as `sampling.drawn` draws it from softmax(logits / temperature).

        It runs on the caller's thread. PyTorch's threads would compete with those of the step, which wait actively: a
        step of 64 texts took 26 ms with them, and 16 with this.

        Returns:
            (N,); -1 where a logit is not finite.

        Args:
            logits: (N, V), float32. temperatures: (N,), 0 for the likeliest id. uniform: (N,), at least 0 and below 1.
        """
        if logits.dtype != torch.float32 or logits.stride(1) != 1:  # where a hook changed them
            logits = logits.float().contiguous()
        n, vocabulary = logits.shape
        ids = (ctypes.c_int32 * n)()
        self._draw(
            ctypes.c_void_p(logits.data_ptr()), ctypes.c_int64(logits.stride(0)), ctypes.c_int64(n),
            ctypes.c_int64(vocabulary), (ctypes.c_float * n)(*temperatures), (ctypes.c_double * n)(*uniform), ids,
        )  # fmt: skip
        return list(ids)

    @torch.inference_mode()  # as in `_grown`
    def copy(self, source: int, target: int, length: int) -> None:
        """Let the target hold the first positions of the source."""
        blocks = -(-length // BLOCK)
        self._with_room(target, length)[:, :, :blocks] = self._caches[source][:, :, :blocks]

    def forget(self, slot: int) -> None:
        """Free the memory of a slot."""
        self._caches[slot] = self._empty

    def _with_room(self, slot: int, length: int) -> Tensor:
        """Return the cache of a slot, of at least so many positions; the memory is doubled when needed."""
        cache, blocks = self._caches[slot], -(-length // BLOCK)
        if blocks > cache.shape[2]:
            most = -(-self._model.config.context_length // BLOCK)
            self._caches[slot] = cache = self._grown(cache, min(most, max(blocks, 2 * cache.shape[2])))
        return cache

    @torch.inference_mode()  # callers may be in it or not, and tensors that were made in it can only be changed in it
    def _grown(self, cache: Tensor, blocks: int) -> Tensor:
        larger = cache.new_zeros(*cache.shape[:2], blocks, cache.shape[3])
        larger[:, :, : cache.shape[2]] = cache
        return larger
