"""Keys and values of past tokens, kept by whoever generates and passed to the model: a model never holds one."""

from __future__ import annotations

import torch
from torch import Tensor


class LayerCache:
    """Room for the keys and values of one attention layer.

    Keys and values are (B, G, capacity, D), written in place; the first `length` positions are valid.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add k, v of T new positions, (B, G, T, D) each; return all so far, (B, G, length, D) each.

        Raises:
            ValueError: the new positions do not fit; the caller has to slide its window first.
        """
        start, stop = self.length, self.length + k.shape[2]
        if stop > self.keys.shape[2]:
            raise ValueError(f"{stop} positions do not fit into a cache for {self.keys.shape[2]}")
        self.keys[:, :, start:stop] = k
        self.values[:, :, start:stop] = v
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]


class KVCache:
    """One LayerCache for each layer of a decoder.

    Memory: 2 · n_layer · B · G · capacity · D numbers, allocated once.
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
        shape = (batch, n_kv_head, capacity, head_dim)
        self.layers = [
            LayerCache(torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(n_layer)
        ]

    @property
    def length(self) -> int:
        """Number of positions held."""
        return self.layers[0].length

    def clear(self) -> None:
        """Forget everything; the room stays allocated."""
        for layer in self.layers:
            layer.length = 0
