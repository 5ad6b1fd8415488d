"""Keys and values of past tokens, kept by whoever generates and passed to the model: a model never holds one."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST_ROOM = 256  # positions; doubled as needed, so that a long context costs no memory before it is used


class LayerCache:
    """The keys and values of one attention layer, (B, G, length, D) each.

    Args:
        capacity: the most positions it will take.
        empty: (B, G, 0, D), gives shape, type and device.
    """

    def __init__(self, capacity: int, empty: Tensor) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys = self._values = empty

    def held(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, (B, G, length, D) each."""
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v of T new positions, (B, G, T, D) each; return all so far, (B, G, length, D) each.

        Raises:
            ValueError: the new positions do not fit; the caller has to slide its window first.
        """
        start, stop = self.length, self.length + k.shape[2]
        if stop > self.capacity:
            raise ValueError(f"{stop} positions do not fit into a cache for {self.capacity}")
        if stop > self._keys.shape[2]:
            room = min(self.capacity, max(stop, FIRST_ROOM, 2 * start))
            self._keys, self._values = _enlarged(self._keys, start, room), _enlarged(self._values, start, room)
        self._keys[:, :, start:stop] = k
        self._values[:, :, start:stop] = v
        self.length = stop
        return self.held()

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, (N,), in this order; one may come twice."""
        self._keys, self._values = (_selected(kept, rows, self.length) for kept in (self._keys, self._values))


def _selected(old: Tensor, rows: Tensor, length: int) -> Tensor:
    new = old.new_empty(len(rows), *old.shape[1:])
    new[:, :, :length] = old[rows, :, :length]
    return new


def _enlarged(old: Tensor, length: int, room: int) -> Tensor:
    new = old.new_empty(*old.shape[:2], room, old.shape[3])
    new[:, :, :length] = old[:, :, :length]
    return new


class KVCache:
    """One LayerCache for each layer of a decoder.

    Memory: 2 · n_layer · B · G · D numbers a position, for at most twice the positions held.
    """

    def __init__(
        self,
        n_layer: int,
        batch: int,
        n_kv_head: int,
        capacity: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        empty = torch.empty(batch, n_kv_head, 0, head_dim, dtype=dtype, device=device)
        self.layers = [LayerCache(capacity, empty) for _ in range(n_layer)]

    @property
    def length(self) -> int:
        """Number of positions held."""
        return self.layers[0].length

    def clear(self) -> None:
        """Forget everything; the room stays allocated."""
        for layer in self.layers:
            layer.length = 0

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, (N,), in this order; one may come twice."""
        for layer in self.layers:
            layer.select(rows)


class EncoderDecoderCache:
    """What a decoder keeps while it writes about one source.

    target: keys and values of what it wrote. source: those of the encoded source, which cross-attention computes at
    the first step and reads at all others; for another source, `clear` it or take a new one. Arguments: see `KVCache`.
    """

    def __init__(
        self,
        n_layer: int,
        batch: int,
        n_head: int,
        capacity: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.target = KVCache(n_layer, batch, n_head, capacity, head_dim, dtype=dtype, device=device)
        self.source = KVCache(n_layer, batch, n_head, capacity, head_dim, dtype=dtype, device=device)

    @property
    def length(self) -> int:
        """Number of positions of the target held."""
        return self.target.length

    def clear(self) -> None:
        """Forget everything; the room stays allocated."""
        self.target.clear()
        self.source.clear()
