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
        self._keep(empty.repeat(1, 2, 1, 1))

    def held(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far, (B, G, length, D) each."""
        return self._keys.narrow(2, 0, self.length), self._values.narrow(2, 0, self.length)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v of T new positions, (B, G, T, D) each; return all so far, (B, G, length, D) each.

        Raises:
            ValueError: the new positions do not fit; the caller has to slide its window first.
        """
        start, stop = self.length, self.length + k.shape[2]
        self._make_room(stop)
        self._keys[:, :, start:stop] = k
        self._values[:, :, start:stop] = v
        self.length = stop
        return self.held()

    def append_one(self, kv: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `append`, for one position of each row, in few calls and for rows that need not be equally long.

        Args:
            kv: (B, 2G, 1, D), keys and values one after the other.
            positions: (B,), where each row goes on, and what it holds there and behind is no longer valid; None: all
                at `length`.

        Returns:
            keys and values up to the longest row, (B, G, length, D) each; the caller masks what is behind the end of
            a shorter one.
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
        """Let `rows`, (N,), begin with what the rows `chosen`, (N,), of another cache hold, and go on from there."""
        self._make_room(other.length)
        self._kept[rows, :, : other.length] = other._kept[chosen, :, : other.length]
        self.length = other.length

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, (N,), in this order; one may come twice."""
        new = self._kept.new_zeros(len(rows), *self._kept.shape[1:])
        new[:, :, : self.length] = self._kept[rows, :, : self.length]
        self._keep(new)

    def _make_room(self, stop: int) -> None:
        if stop > self.capacity:
            raise ValueError(f"{stop} positions do not fit into a cache for {self.capacity}")
        room = self._kept.shape[2]
        if stop > room:
            # Zeros: behind the end of a shorter row a mask makes the weights zero, and zero times a NaN is a NaN.
            larger = self._kept.new_zeros(
                *self._kept.shape[:2], min(self.capacity, max(stop, FIRST_ROOM, 2 * room)), self._kept.shape[3]
            )
            larger[:, :, :room] = self._kept
            self._keep(larger)

    def _keep(self, kept: Tensor) -> None:
        self._kept = kept  # (B, 2G, room, D)
        keys = kept.shape[1] // 2  # two slices, not chunk, into whose results gradients forbid writing
        self._keys, self._values = kept[:, :keys], kept[:, keys:]  # (B, G, room, D) each


class KVCache:
    """One LayerCache for each layer of a decoder.

    Memory: 2 · n_layer · B · G · D numbers a position, for at most twice the positions held, or 256.
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
