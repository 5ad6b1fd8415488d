"""Attention for training on CPUs: explicit weights, a few queries at a time, with a backward pass of its own.

The fused kernel of PyTorch is made for inference: on CPUs its backward pass takes longer than plain matrix products
over weights that were kept. Here the queries are taken in chunks, and a chunk looks only at the keys it may see, which
saves a good third of the work where attention is causal; each chunk of weights is small enough to stay in the cache of
the processor from the product that makes it to the one that uses it. Up to LONGEST_KEPT keys the weights are kept for
the backward pass; beyond that they are made again, so that memory grows with the length and not with its square
(https://arxiv.org/abs/2205.14135, section 3, without the tiling over keys).

Both passes are operators that `torch.compile` calls and does not look into. Shapes use the legend of `jumok.attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

LONGEST_KEPT = 512  # keys, up to which the weights are kept for the backward pass
TILE = 2**20  # weights in flight, about; two megabytes in bfloat16


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q kᵀ / sqrt(D)) v, differentiable once.

    Args:
        q: (B, H, T, D). k, v: (B, H, S, D), of the same type.
        mask: bool, broadcastable to (B, H, T, S), True where a query may attend. causal: see
            `jumok.attention.causal_mask`.

    Returns:
        (B, H, T, D). The softmax runs in float32 or better, the products in the type of q. A query with nothing to
        attend to gets zeros; a NaN stays a NaN.
    """
    if mask is not None:
        mask = mask.expand(*(1,) * (4 - mask.dim()), *mask.shape)  # four dimensions, of which any may be 1
    out, _ = torch.ops.jumok.explicit_attention(q, k, v, mask, causal)
    return out


class _Chunk(NamedTuple):
    """Queries first..last-1 and how many keys they may see; where their weights are kept, as part of B·H·T·S."""

    first: int
    last: int
    keys: int


def _chunks(t: int, s: int, causal: bool) -> Iterator[_Chunk]:
    size = min(128, max(32, t // 4))
    for first in range(0, t, size):
        last = min(t, first + size)
        yield _Chunk(first, last, min(s, max(1, s - t + last)) if causal else s)


def _kept(q: Tensor, k: Tensor, causal: bool) -> int:
    """How many weights there are to keep: all that the chunks make, or none where the keys are too many."""
    (b, h, t, _), s = q.shape, k.shape[2]
    if s > LONGEST_KEPT:
        return 0
    return b * h * sum((chunk.last - chunk.first) * chunk.keys for chunk in _chunks(t, s, causal))


def _rows(q: Tensor, k: Tensor) -> Iterator[slice]:
    """The batch in parts whose weights fit a tile."""
    (b, h, t, _), s = q.shape, k.shape[2]
    size = max(1, TILE // (h * min(t, min(128, max(32, t // 4))) * s))
    return (slice(first, min(b, first + size)) for first in range(0, b, size))


def _weights(
    q: Tensor, k: Tensor, mask: Tensor | None, chunk: _Chunk, behind: int, causal: bool, out: Tensor | None = None
) -> Tensor:
    """(N, c, keys): the weights of a chunk of queries, in `out` if there is one.

    Args:
        q: (N, T, D), N sequences and heads. k: (N, S, D). mask: (N or 1, T or 1, S), or None.
        behind: S - T, how far the first query is from the first key.
    """
    rows, keys = slice(chunk.first, chunk.last), slice(0, chunk.keys)
    scores = q.new_empty(len(q), chunk.last - chunk.first, chunk.keys)  # (N, c, keys)
    torch.baddbmm(scores, q[:, rows], k[:, keys].mT, beta=0, alpha=q.shape[-1] ** -0.5, out=scores)
    # What may not be seen is filled in, not added: -inf and a NaN would be a NaN.
    if causal:
        seen = max(0, chunk.first + behind)  # keys that all queries of the chunk may see; then comes the triangle
        corner = torch.ones(scores.shape[1], chunk.keys - seen, dtype=torch.bool)
        scores[:, :, seen:].masked_fill_(corner.tril(min(0, chunk.first + behind)).logical_not_(), float("-inf"))
    if mask is not None:
        part = mask[:, rows if mask.shape[1] > 1 else slice(None), keys]  # (N or 1, c or 1, keys)
        scores.masked_fill_(~part, float("-inf"))
    weights = torch.softmax(scores, -1, out=out)
    if mask is not None or behind < 0:  # else no row is empty
        weights.masked_fill_((scores == float("-inf")).all(-1, keepdim=True), 0.0)
    return weights


def _next(kept: Tensor, start: int, q: Tensor, chunk: _Chunk) -> tuple[Tensor, int]:
    """Where the weights of a chunk are kept, (N, c, keys), and where those of the next one begin."""
    shape = (len(q), chunk.last - chunk.first, chunk.keys)
    stop = start + shape[0] * shape[1] * shape[2]
    return kept[start:stop].view(shape), stop


def _part(mask: Tensor | None, rows: slice, heads: int) -> Tensor | None:
    """The mask of some sequences and their heads, (N or 1, T or 1, S)."""
    if mask is None or mask.shape[0] == mask.shape[1] == 1:
        return None if mask is None else mask[0]
    part = mask[rows] if mask.shape[0] > 1 else mask.expand(rows.stop - rows.start, *mask.shape[1:])
    return part.expand(-1, heads, -1, -1).flatten(0, 1)  # (N, T or 1, S)


@torch.library.custom_op("jumok::explicit_attention", mutates_args=(), device_types="cpu")
def _forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    b, h, t, d = q.shape
    s = k.shape[2]
    out = q.new_empty(b, t, h, d).transpose(1, 2)  # (B, H, T, D), laid out for the projection that follows
    kept, end = q.new_empty(_kept(q, k, causal)), 0
    for rows in _rows(q, k):
        queries, keys, values = (x[rows].flatten(0, 1) for x in (q, k, v))  # (N, T, D) and (N, S, D)
        seen = _part(mask, rows, h)
        for chunk in _chunks(t, s, causal):
            place = None
            if len(kept):
                place, end = _next(kept, end, queries, chunk)
            weights = _weights(queries, keys, seen, chunk, s - t, causal, place)  # (N, c, keys)
            heads = torch.bmm(weights, values[:, : chunk.keys])  # (N, c, D)
            out[rows, :, chunk.first : chunk.last] = heads.unflatten(0, (-1, h))
    return out, kept


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    b, h, t, d = q.shape
    return q.new_empty(b, t, h, d).transpose(1, 2), q.new_empty(_kept(q, k, causal))


@torch.library.custom_op("jumok::explicit_attention_backward", mutates_args=(), device_types="cpu")
def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, t, d = q.shape
    s, scale, end = k.shape[2], d**-0.5, 0
    dq = q.new_empty(b, t, h, d).transpose(1, 2)  # (B, H, T, D)
    dk, dv = (k.new_empty(b, s, h, d).transpose(1, 2) for _ in range(2))  # (B, H, S, D)
    exact = torch.promote_types(q.dtype, torch.float32)
    for rows in _rows(q, k):
        queries, keys, values = (x[rows].flatten(0, 1) for x in (q, k, v))  # (N, T, D) and (N, S, D)
        above = gradient[rows].flatten(0, 1)  # (N, T, D)
        seen = _part(mask, rows, h)
        to_keys, to_values = (torch.zeros(keys.shape, dtype=exact) for _ in range(2))  # (N, S, D)
        for chunk in _chunks(t, s, causal):
            mine, theirs = slice(chunk.first, chunk.last), slice(0, chunk.keys)
            if len(kept):
                weights, end = _next(kept, end, queries, chunk)  # (N, c, keys)
            else:
                weights = _weights(queries, keys, seen, chunk, s - t, causal)  # (N, c, keys)
            to_values[:, theirs] += torch.bmm(weights.mT, above[:, mine])
            to_weights = torch.bmm(above[:, mine], values[:, theirs].mT)  # (N, c, keys)
            to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype).mul_(scale)
            dq[rows, :, mine] = torch.bmm(to_scores, keys[:, theirs]).unflatten(0, (-1, h))
            to_keys[:, theirs] += torch.bmm(to_scores.mT, queries[:, mine])
        dk[rows], dv[rows] = (x.unflatten(0, (-1, h)).to(k.dtype) for x in (to_keys, to_values))
    return dq, dk, dv


@_backward.register_fake
def _(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, h, t, d = q.shape
    dk, dv = (k.new_empty(b, k.shape[2], h, d).transpose(1, 2) for _ in range(2))
    return q.new_empty(b, t, h, d).transpose(1, 2), dk, dv


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, mask, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, mask, kept = ctx.saved_tensors
    return (*torch.ops.jumok.explicit_attention_backward(gradient, q, k, v, mask, ctx.causal, kept), None, None)


_forward.register_autograd(_gradients, setup_context=_remember)
_forward.register_autocast("cpu", torch.bfloat16)
