"""The attention that a trace shows, and one number of each kind for each head.

Shapes use the legend of `jumok.nn.attention`; B is 1 and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from jumok.interpret.heads import profile
from jumok.interpret.record import AttentionRecord, Recording
from jumok.view.weight_encoding import Floats

STATISTICS = ("entropy", "distance", "first", "previous", "self")


class Attention:
    """The attention of one kind of block in all its recorded layers.

    Args:
        records: one for each layer, of the same heads and lengths.
        queries, keys: which of the trace's sequences they come from.

    Attributes:
        block: "self", "encoder", "decoder" or "cross". layers, heads: those that were recorded.
        n_head, n_kv_head, head_dim: of the model. causal, t, s: as in `AttentionRecord`.
    """

    def __init__(self, records: Sequence[AttentionRecord], queries: int, keys: int) -> None:
        self.records, self.queries, self.keys = records, queries, keys
        one = records[0]
        self.block, self.causal, self.heads, self.t, self.s = one.block, one.causal, one.heads, one.t, one.s
        self.n_head, self.n_kv_head, self.head_dim = one.n_head, one.n_kv_head, one.head_dim
        self.layers = tuple(record.layer for record in records)

    def weights(self, layer: int) -> Floats:
        """(H, T, S), float32: the attention weights of the heads that were recorded."""
        return float_array(self.records[self.layers.index(layer)].weights()[0])

    def head_weights(self, layer: int, place: int) -> Floats:
        """(T, S), float32: the same for one head, the one at this place among `heads`."""
        return float_array(self.records[self.layers.index(layer)].weights(self.heads[place])[0, 0])

    def queries_of(self, layer: int) -> Floats:
        """(H, T, D), float32: the queries from which the scores are computed."""
        return float_array(self.records[self.layers.index(layer)].q[0])

    def keys_of(self, layer: int) -> Floats:
        """(G, S, D), float32: the keys; where some heads were recorded, one for each."""
        return float_array(self.records[self.layers.index(layer)].k[0])


def head_statistics(weights: Floats, *, causal: bool, crossing: bool) -> dict[str, list[float]]:
    """Return the numbers of `jumok.interpret.heads.profile` by their names, one for each head.

    In causal attention the first query is left out, since it has no choice. Between two texts there is no distance, no
    previous token and no self.

    Args:
        weights: (H, T, S), the last T of S positions if causal. crossing: queries and keys are of two texts.
    """
    _, t, s = weights.shape
    first_row = 1 if causal and t == s and t > 1 else 0
    found = profile(torch.from_numpy(weights[:, first_row:]))
    # A page has no NaN: where no query has such a token, as in a text of one token, its weight is zero.
    return {
        name: np.nan_to_num(float_array(getattr(found, name))).tolist()
        for name in (("entropy", "first") if crossing else STATISTICS)
    }


def attentions_of(recording: Recording, sequences: int) -> Iterator[Attention]:
    """Return the attention of each block of a recording.

    Args:
        sequences: 2 for a source and a target, else 1.
    """
    last = sequences - 1
    for block in dict.fromkeys(entry.block for entry in recording.attentions):
        records = [entry for entry in recording.attentions if entry.block == block]
        yield Attention(records, 0 if block == "encoder" else last, last if block == "decoder" else 0)


def float_array(tensor: Tensor) -> Floats:
    """Return a tensor as a float32 array on the CPU."""
    return tensor.to(device="cpu", dtype=torch.float32).numpy()
