"""Attention for training on CPUs, computed in chunks of queries, with its own backward pass.

On CPUs the backward pass of PyTorch's fused kernel is slower than matrix products with stored weights. Here the queries
are processed in chunks. In causal attention a chunk uses only the keys that it may attend to, which saves more than a
third of the operations. The weights of a chunk are small enough to stay in the cache of the processor until they are
used. Up to LONGEST_STORED keys, the weights are stored for the backward pass. With more keys they are recomputed, so
that the memory grows linearly with the length (https://arxiv.org/abs/2205.14135, section 3, without the tiling over
keys).

Both passes are operators that `torch.compile` does not trace. They are defined in a `Library`, because the first call
of a `custom_op` imports the compiler, which takes more than a second.

Shapes use the legend of `jumok.nn.attention`; c is the number of queries in a chunk, and N that of the sequences and
heads in a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

LONGEST_STORED = 512  # keys; up to this number the weights are stored for the backward pass
MOST_STORED = 2**25  # weights of one layer; above this number they are recomputed
TILE = 2**20  # weights computed at a time, about; two megabytes in bfloat16


def chunked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(q kᵀ / sqrt(D)) v. First derivatives are supported, second ones are not.

    Args:
        q: (B, H, T, D).
        k, v: (B, H, S, D), of the same type.
        mask: bool, broadcastable to (B, H, T, S), True where a query may attend.
        causal: whether to apply `jumok.nn.attention.causal_mask` as well.

    Returns:
        (B, H, T, D). Products and scores have the type of q; the softmax is computed in float32 or better. The result
        is zero for a query without any allowed key. A NaN in the input gives NaN.
    """
    if mask is not None:
        mask = mask.expand(*(1,) * (4 - mask.dim()), *mask.shape)  # four dimensions, of which any may be 1
    out, _ = torch.ops.jumok.chunked_attention(q, k, v, mask, causal)
    return out


class _Chunk(NamedTuple):
    """Queries first..last-1, and the number of keys that they use."""

    first: int
    last: int
    keys: int


def _chunk_size(t: int) -> int:
    return min(128, max(32, t // 4))


def _chunks(t: int, s: int, causal: bool) -> Iterator[_Chunk]:
    for first in range(0, t, _chunk_size(t)):
        last = min(t, first + _chunk_size(t))
        yield _Chunk(first, last, min(s, max(1, s - t + last)) if causal else s)


def _tiles(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield slices of sequences and heads so that a chunk has about TILE weights."""
    (b, h, t, _), s = q.shape, k.shape[2]
    size = max(1, TILE // max(1, min(t, _chunk_size(t)) * s))  # heads, of one or several sequences
    for row in range(0, b, rows := max(1, size // max(1, h))):
        for head in range(0, h, heads := min(size, h)):
            yield slice(row, min(b, row + rows)), slice(head, min(h, head + heads))


def _stored_count(q: Tensor, k: Tensor, causal: bool) -> int:
    """Return the number of weights that a layer stores: those of all chunks, or 0 if there are too many."""
    b, h, t, _ = q.shape
    s = k.shape[2]
    count = b * h * sum((chunk.last - chunk.first) * chunk.keys for chunk in _chunks(t, s, causal))
    return count if s <= LONGEST_STORED and count <= MOST_STORED else 0


def _take_view(stored: Tensor, start: int, heads: int, chunk: _Chunk) -> tuple[Tensor, int]:
    """Return the view of a chunk in the stored weights, (N, c, keys), and the start of the next one."""
    shape = (heads, chunk.last - chunk.first, chunk.keys)
    stop = start + shape[0] * shape[1] * shape[2]
    return stored[start:stop].view(shape), stop


def _tile(x: Tensor, rows: slice, heads: slice, first: int, last: int) -> Tensor:
    """Return positions first..last-1 of a tile, (N, last - first, D), contiguous.

    A product copies a slice that is not contiguous, and so would each of several products.
    """
    return x[rows, heads, first:last].flatten(0, 1).contiguous()


def _mask_tile(mask: Tensor | None, rows: slice, heads: slice) -> Tensor | None:
    """Return the mask of some sequences and heads, four dimensions, of which any may be 1."""
    if mask is None:
        return None
    return mask[rows if mask.shape[0] > 1 else slice(None), heads if mask.shape[1] > 1 else slice(None)]


def _weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    chunk: _Chunk,
    behind: int,
    causal: bool,
    rows: int,
    out: Tensor | None = None,
) -> Tensor:
    """Return the weights of a chunk of queries, (N, c, keys).

    Args:
        q: (N, c, D).
        k: (N, keys, D).
        mask: of the tile, (sequences or 1, heads or 1, T or 1, S), or None.
        behind: S - T, the position of the first query.
        rows: sequences of the tile.
        out: tensor for the result, or None.
    """
    scores = q.new_empty(*q.shape[:2], chunk.keys)  # (N, c, keys)
    torch.baddbmm(scores, q, k.mT, beta=0, alpha=q.shape[-1] ** -0.5, out=scores)
    # Masked scores are overwritten, because adding -inf to NaN would give NaN.
    if mask is None and behind >= 0:  # every query has a key
        if causal:
            seen = chunk.first + behind  # keys that all queries of the chunk may attend to
            corner = torch.ones(scores.shape[1], chunk.keys - seen, dtype=torch.bool)
            scores[:, :, seen:].masked_fill_(corner.tril().logical_not_(), float("-inf"))
        return torch.softmax(scores, -1, out=out)
    # What is forbidden is computed once for heads that share a mask.
    forbidden = torch.zeros(1, 1, 1, chunk.keys, dtype=torch.bool)
    if mask is not None:
        queries = slice(chunk.first, chunk.last) if mask.shape[2] > 1 else slice(None)
        forbidden = ~mask[:, :, queries, : chunk.keys]  # (sequences or 1, heads or 1, c or 1, keys)
    if causal:
        future = torch.ones(*scores.shape[1:], dtype=torch.bool).triu(chunk.first + behind + 1)  # (c, keys)
        forbidden = forbidden | future
    scores.unflatten(0, (rows, -1)).masked_fill_(forbidden, float("-inf"))
    weights = torch.softmax(scores, -1, out=out)
    empty = forbidden.all(-1, keepdim=True)  # (sequences or 1, heads or 1, c or 1, 1)
    if empty.any():
        weights.unflatten(0, (rows, -1)).masked_fill_(empty, 0.0)
    return weights


def _forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    b, h, t, d = q.shape
    s = k.shape[2]
    out = q.new_empty(b, t, h, d).transpose(1, 2)  # (B, H, T, D), in the memory order of (B, T, H, D)
    stored, end = q.new_empty(_stored_count(q, k, causal)), 0
    for rows, some in _tiles(q, k):
        seen = _mask_tile(mask, rows, some)
        for chunk in _chunks(t, s, causal):
            queries = _tile(q, rows, some, chunk.first, chunk.last)  # (N, c, D)
            if causal or chunk.first == 0:  # otherwise they are the same for all chunks
                keys, values = (_tile(x, rows, some, 0, chunk.keys) for x in (k, v))  # (N, keys, D)
            place = None
            if len(stored):
                place, end = _take_view(stored, end, len(queries), chunk)
            weights = _weights(queries, keys, seen, chunk, s - t, causal, rows.stop - rows.start, place)  # (N, c, keys)
            heads = torch.bmm(weights, values)  # (N, c, D)
            out[rows, some, chunk.first : chunk.last] = heads.unflatten(0, (rows.stop - rows.start, -1))
    return out, stored


def _empty_output(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    b, h, t, d = q.shape
    return q.new_empty(b, t, h, d).transpose(1, 2), q.new_empty(_stored_count(q, k, causal))


def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, stored: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, t, d = q.shape
    s, scale, end = k.shape[2], d**-0.5, 0
    dq = q.new_empty(b, t, h, d).transpose(1, 2)  # (B, H, T, D)
    dk, dv = (k.new_empty(b, s, h, d).transpose(1, 2) for _ in range(2))  # (B, H, S, D)
    for rows, some in _tiles(q, k):
        heads = (rows.stop - rows.start) * (some.stop - some.start)
        seen = _mask_tile(mask, rows, some)
        to_keys, to_values = k.new_zeros(heads, s, d), k.new_zeros(heads, s, d)
        for chunk in _chunks(t, s, causal):
            queries, above = (_tile(x, rows, some, chunk.first, chunk.last) for x in (q, gradient))  # (N, c, D)
            if causal or chunk.first == 0:  # otherwise they are the same for all chunks
                keys, values = (_tile(x, rows, some, 0, chunk.keys) for x in (k, v))  # (N, keys, D)
            if len(stored):
                weights, end = _take_view(stored, end, heads, chunk)  # (N, c, keys)
            else:
                weights = _weights(queries, keys, seen, chunk, s - t, causal, rows.stop - rows.start)  # (N, c, keys)
            # Products that add to their result round once. In bfloat16 they are as exact as sums in float32 of products
            # that were rounded before, and much faster.
            to_values[:, : chunk.keys].baddbmm_(weights.mT, above)
            to_weights = torch.bmm(above, values.mT)  # (N, c, keys)
            to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype)
            to_keys[:, : chunk.keys].baddbmm_(to_scores.mT, queries, alpha=scale)
            to_queries = torch.bmm(to_scores, keys).mul_(scale)  # (N, c, D)
            dq[rows, some, chunk.first : chunk.last] = to_queries.unflatten(0, (rows.stop - rows.start, -1))
        dk[rows, some], dv[rows, some] = (x.unflatten(0, (rows.stop - rows.start, -1)) for x in (to_keys, to_values))
    return dq, dk, dv


def _empty_gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, stored: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, t, d = q.shape
    dk, dv = (k.new_empty(b, k.shape[2], h, d).transpose(1, 2) for _ in range(2))
    return q.new_empty(b, t, h, d).transpose(1, 2), dk, dv


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, mask, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # otherwise a zero gradient of the weights would be allocated


def _gradients(ctx: Any, gradient: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return (None,) * 5
    q, k, v, mask, stored = ctx.saved_tensors
    return (*torch.ops.jumok.chunked_attention_backward(gradient, q, k, v, mask, ctx.causal, stored), None, None)


_LIBRARY = torch.library.Library("jumok", "DEF")
_LIBRARY.define("chunked_attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal) -> (Tensor, Tensor)")
_LIBRARY.define(
    "chunked_attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal,"
    " Tensor stored) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.impl("chunked_attention", _forward, "CPU")
_LIBRARY.impl("chunked_attention_backward", _backward, "CPU")
torch.library.register_fake("jumok::chunked_attention", _empty_output, lib=_LIBRARY)
torch.library.register_fake("jumok::chunked_attention_backward", _empty_gradients, lib=_LIBRARY)
torch.library.register_autograd("jumok::chunked_attention", _gradients, setup_context=_remember, lib=_LIBRARY)
torch.library.register_autocast("jumok::chunked_attention", "cpu", torch.bfloat16, lib=_LIBRARY)
