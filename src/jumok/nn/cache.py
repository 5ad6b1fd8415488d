"""Caches of keys and values. The caller of a model owns the cache and passes it to each call."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST_ROOM = 256  # positions allocated at first; doubled when needed


class LayerCache:
    """The keys and values of one attention layer, (B, G, length, D) each.

    Args:
        capacity: largest number of positions.
        empty: (B, G, 0, D), determines shape, type and device.
    """

    def __init__(self, capacity: int, empty: Tensor) -> None:
        self.capacity = capacity
        self.length = 0
        self._keep(empty.repeat(1, 2, 1, 1))

    def held(self) -> tuple[Tensor, Tensor]:
        """Return the keys and values, (B, G, length, D) each."""
        return self._keys.narrow(2, 0, self.length), self._values.narrow(2, 0, self.length)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of T positions, (B, G, T, D) each; return all of them, (B, G, length, D) each.

        Raises:
            ValueError: the capacity is exceeded.
        """
        start, stop = self.length, self.length + k.shape[2]
        self._make_room(stop)
        self._keys[:, :, start:stop] = k
        self._values[:, :, start:stop] = v
        self.length = stop
        return self.held()

    def append_one(self, kv: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Append one position to each row, with few operations; rows can have different lengths.

        Args:
            kv: (B, 2G, 1, D), the keys, then the values.
            positions: (B,), the position to write in each row; entries at later positions become invalid. None: all
                rows at `length`.

        Returns:
            keys and values up to the longest row, (B, G, length, D) each. The caller must mask the positions after the
            end of a shorter row.
        """
        if positions is None:
            start, stop = self.length, self.length + 1
            self._make_room(stop)
            self._kept.narrow(2, start, 1).copy_(kv)
        else:
            stop = int(positions.max()) + 1
            self._make_room(stop)
            self._kept[torch.arange(len(positions)), :, positions] = kv[:, :, 0]
        self.length = stop
        return self.held()

    def replace(self, rows: Tensor, other: LayerCache, chosen: Tensor) -> None:
        """Copy the rows `chosen`, (N,), of another cache to the rows `rows`, (N,), and take over its length."""
        self._make_room(other.length)
        self._kept[rows, :, : other.length] = other._kept[chosen, :, : other.length]
        self.length = other.length

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, (N,), in this order; a row can occur several times."""
        new = self._kept.new_zeros(len(rows), *self._kept.shape[1:])
        new[:, :, : self.length] = self._kept[rows, :, : self.length]
        self._keep(new)

    def _make_room(self, stop: int) -> None:
        if stop > self.capacity:
            raise ValueError(f"{stop} positions do not fit into a cache for {self.capacity}")
        room = self._kept.shape[2]
        if stop > room:
            # Zeros, because uninitialised memory can be NaN, and a masked weight of zero times NaN is NaN.
            larger = self._kept.new_zeros(
                *self._kept.shape[:2], min(self.capacity, max(stop, FIRST_ROOM, 2 * room)), self._kept.shape[3]
            )
            larger[:, :, :room] = self._kept
            self._keep(larger)

    def _keep(self, kept: Tensor) -> None:
        self._kept = kept  # (B, 2G, room, D)
        keys = kept.shape[1] // 2  # not torch.chunk, whose results autograd does not allow to be written to
        self._keys, self._values = kept[:, :keys], kept[:, keys:]  # (B, G, room, D) each


class KVCache:
    """One LayerCache for each layer of a decoder.

    It takes 2 · n_layer · B · G · D numbers per position, for at most twice the positions in use, or 256.

    Args:
        n_layer: number of layers. capacity, empty: of each, see `LayerCache`.
    """

    def __init__(self, n_layer: int, capacity: int, empty: Tensor) -> None:
        self.layers = [LayerCache(capacity, empty) for _ in range(n_layer)]

    @property
    def length(self) -> int:
        """Number of positions in use."""
        return self.layers[0].length

    def clear(self) -> None:
        """Remove all positions; the memory stays allocated."""
        for layer in self.layers:
            layer.length = 0

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch, (N,), in this order; a row can occur several times."""
        for layer in self.layers:
            layer.select(rows)


class EncoderDecoderCache:
    """The caches of a decoder: keys and values of the target, and of the encoded source.

    Cross-attention computes those of the source in the first step. For another source, call `clear` or create a new
    cache. The arguments are those of `KVCache`.
    """

    def __init__(self, n_layer: int, capacity: int, empty: Tensor) -> None:
        self.target, self.source = KVCache(n_layer, capacity, empty), KVCache(n_layer, capacity, empty)

    @property
    def length(self) -> int:
        """Number of positions of the target in use."""
        return self.target.length

    def clear(self) -> None:
        """Remove all positions; the memory stays allocated."""
        self.target.clear()
        self.source.clear()
