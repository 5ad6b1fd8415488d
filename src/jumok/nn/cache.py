"""Caches of keys and values. The caller of a model owns the cache and passes it to each call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.config import FIRST_CACHED


class LayerCache:
    """The keys and values of one attention layer, (B, G, length, D) each.

    Args:
        capacity: largest number of positions.
        empty: (B, G, 0, D), determines shape, type and device.
    """

    def __init__(self, capacity: int, empty: Tensor) -> None:
        self.capacity = capacity
        self.length = 0
        # Rows, (B, 1), and positions, (B, T), see `KVCache.begin_at`; None: all from `length` on.
        self.write_positions: tuple[Tensor, Tensor] | None = None
        self._use(empty.repeat(1, 2, 1, 1))

    def keys_values(self) -> tuple[Tensor, Tensor]:
        """Return the keys and values, (B, G, length, D) each."""
        return self._keys.narrow(2, 0, self.length), self._values.narrow(2, 0, self.length)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of T positions, (B, G, T, D) each; return all of them, (B, G, length, D) each.

        Raises:
            ValueError: the capacity is exceeded.
        """
        start, stop = self.length, self.length + k.shape[2]
        self._make_room(stop)
        if self.write_positions is None:
            self._keys[:, :, start:stop] = k
            self._values[:, :, start:stop] = v
        else:
            rows, positions = self.write_positions
            kv = torch.cat((k, v), dim=1).transpose(1, 2)  # (B, T, 2G, D)
            self._memory[rows, :, positions] = kv.to(self._memory.dtype)
        self.length = stop
        return self.keys_values()

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, (N,), in this order; a row can occur several times."""
        new = self._memory.new_zeros(len(rows), *self._memory.shape[1:])
        new[:, :, : self.length] = self._memory[rows, :, : self.length]
        self._use(new)

    def _make_room(self, stop: int) -> None:
        if stop > self.capacity:
            raise ValueError(f"{stop} positions do not fit into a cache for {self.capacity}")
        room = self._memory.shape[2]
        if stop > room:
            # Zeros, because uninitialised memory can be NaN, and a masked weight of zero times NaN is NaN.
            larger = self._memory.new_zeros(
                *self._memory.shape[:2], min(self.capacity, max(stop, FIRST_CACHED, 2 * room)), self._memory.shape[3]
            )
            larger[:, :, :room] = self._memory
            self._use(larger)

    @classmethod
    def from_memory(cls, memory: Tensor, capacity: int) -> LayerCache:
        """Return an empty cache in given memory, (B, 2G, room, D), whose room suffices."""
        cache = cls(capacity, memory[:, :0, :0])
        cache._use(memory)
        return cache

    def _use(self, memory: Tensor) -> None:
        self._memory = memory  # (B, 2G, room, D)
        keys = memory.shape[1] // 2  # not torch.chunk, whose results autograd does not allow to be written to
        self._keys, self._values = memory[:, :keys], memory[:, keys:]  # (B, G, room, D) each


class KVCache:
    """One LayerCache for each layer of a decoder.

    It takes 2 · n_layer · B · G · D numbers per position, for at most twice the positions in use, or 256.

    Args:
        n_layer: number of layers. capacity, empty: of each, see `LayerCache`.

    Attributes:
        positions: (B, T), those of the next tokens where the rows have different lengths, or None: all from `length`.
        mask: (B, 1, T, length + T), True where these tokens may attend, or None: wherever the causal mask allows.
    """

    def __init__(self, n_layer: int, capacity: int, empty: Tensor) -> None:
        self.layers = [LayerCache(capacity, empty) for _ in range(n_layer)]
        self.positions: Tensor | None = None
        self.mask: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of positions in use, of the longest row."""
        return self.layers[0].length

    def begin_at(self, starts: Sequence[int], tokens: int) -> None:
        """Let the next call append so many tokens to each row from its own position, in place of what is there.

        After a call with different positions, this is needed before the next one.
        """
        longest, write_positions = max(starts), None
        self.positions = self.mask = None
        if min(starts) < longest:
            device = self.layers[0].keys_values()[0].device
            first = torch.tensor(starts, device=device)[:, None]  # (B, 1)
            self.positions = first + torch.arange(tokens, device=device)  # (B, T)
            self.mask = (torch.arange(longest + tokens, device=device) <= self.positions[:, :, None])[:, None]
            write_positions = (torch.arange(len(starts), device=device)[:, None], self.positions)
        for layer in self.layers:
            layer.length, layer.write_positions = longest, write_positions

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, (N,), in this order; a row can occur several times."""
        for layer in self.layers:
            layer.select(rows)


class RaggedCache:
    """The keys and values of texts of different lengths that come and go, a row for each, in one piece of memory.

    Rows and positions are allocated when they are needed, and doubled each time. What is behind the end of a row is
    zero, because a masked weight of zero times NaN is NaN.

    Args:
        like: an empty cache without rows, which determines shape, type, device and capacity.
        rows: the most rows.

    Attributes:
        lengths: of each row.
    """

    def __init__(self, like: KVCache, rows: int) -> None:
        self.lengths = [0] * rows
        self._capacity = like.layers[0].capacity
        self._empty = like.layers[0].keys_values()[0]  # (0, G, 0, D)
        self._memory = torch.stack(
            [torch.cat(layer.keys_values(), dim=1) for layer in like.layers]
        )  # (L, rows, 2G, room, D)
        self._views: dict[tuple[int, int], KVCache] = {}

    def view(self, first: int, starts: Sequence[int], tokens: int) -> KVCache:
        """Return a cache of neighbouring rows, from `first` on, that shares their memory.

        The caller appends so many tokens to each row from its own position, as with `KVCache.begin_at`.
        """
        stop = max(starts) + tokens
        if stop > self._capacity:
            raise ValueError(f"{stop} positions do not fit into a cache for {self._capacity}")
        self._make_room(first + len(starts), stop)
        for row, start in enumerate(starts, first):
            self.cut(row, start)
            self.lengths[row] = start + tokens
        place = (first, first + len(starts))
        if place not in self._views:
            self._views[place] = view = KVCache(0, self._capacity, self._empty)
            view.layers = [LayerCache.from_memory(layer[slice(*place)], self._capacity) for layer in self._memory]
        self._views[place].begin_at(starts, tokens)
        return self._views[place]

    def cut(self, row: int, length: int) -> None:
        """Remove the positions of a row from `length` on."""
        if self.lengths[row] > length:
            self._memory[:, row, :, length : self.lengths[row]] = 0
            self.lengths[row] = length

    def copy(self, source: int, target: int, length: int) -> None:
        """Let a row hold the first positions of another one."""
        self._make_room(max(source, target) + 1, length)
        self.cut(target, length)
        self._memory[:, target, :, :length] = self._memory[:, source, :, :length]
        self.lengths[target] = length

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows."""
        self._make_room(max(one, other) + 1, 0)
        longest = max(self.lengths[one], self.lengths[other])
        self._memory[:, [one, other], :, :longest] = self._memory[:, [other, one], :, :longest]
        self.lengths[one], self.lengths[other] = self.lengths[other], self.lengths[one]

    def _make_room(self, rows: int, positions: int) -> None:
        layers, held, heads, room, width = self._memory.shape
        if rows <= held and positions <= room:
            return
        if rows > held:
            rows = min(len(self.lengths), max(rows, 2 * held))
        if positions > room:
            positions = min(self._capacity, max(positions, FIRST_CACHED, 2 * room))
        larger = self._memory.new_zeros(layers, max(rows, held), heads, max(positions, room), width)
        larger[:, :held, :, :room] = self._memory
        self._memory = larger
        self._views.clear()


class EncoderDecoderCache:
    """The caches of a decoder: keys and values of the target, and of the encoded source.

    Cross-attention computes those of the source in the first step; another source needs a new cache. The arguments are
    those of `KVCache`.
    """

    def __init__(self, n_layer: int, capacity: int, empty: Tensor) -> None:
        self.target, self.source = KVCache(n_layer, capacity, empty), KVCache(n_layer, capacity, empty)

    @property
    def length(self) -> int:
        """Number of positions of the target in use."""
        return self.target.length
