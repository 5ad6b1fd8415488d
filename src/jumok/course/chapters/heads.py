"""Chapter 6, many heads: concatenated single heads, one split projection, merging, and the output projection.

The functions use the parameters of a production `MultiHeadAttention` head by head: head h has rows
h·D to (h+1)·D of W_q, the same rows of W_k and W_v (or those of the key/value head it shares), and the same *columns*
of the output projection.

Shapes use the legend of `jumok.nn.attention`.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2.2; one key/value head for all:
https://arxiv.org/abs/1911.02150; grouped: https://arxiv.org/abs/2305.13245.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.masked_attention import masked_weights
from jumok.nn import MultiHeadAttention, combined_mask


def make_heads(d_in: int, head_dim: int, n_head: int, *, qkv_bias: bool = False) -> list[MultiHeadAttention]:
    """Single heads, created one after the other; each draws its W_q, W_k and W_v before the next one.

    With these heads, `concatenate_heads` reproduces tables printed for "stacked heads" after `torch.manual_seed(n)`. If
    the table has an output projection, create `torch.nn.Linear(n_head * head_dim, d_out)` after the heads.

    Args:
        d_in: width of the input. head_dim: width of each head. qkv_bias: biases of the three projections.

    Returns:
        n_head layers of one head each, without output projection.
    """
    return [MultiHeadAttention(d_in, head_dim, 1, project=False, qkv_bias=qkv_bias) for _ in range(n_head)]


def concatenate_heads(
    heads: Sequence[MultiHeadAttention],
    x: Tensor,
    context: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Run single heads one after the other and concatenate their outputs.

    Args:
        heads: H layers, as made by `make_heads`. x: (B, T, C), or (T, C). context, mask, causal: as in the production
            layer; every head gets the same mask.

    Returns:
        (B, T, H*D), or (T, H*D): head 0 in the first D columns, head 1 in the next D.
    """
    return torch.cat([head(x, context, mask=mask, causal=causal) for head in heads], dim=-1)


def join_heads(heads: Sequence[MultiHeadAttention], o_proj: nn.Linear | None = None) -> MultiHeadAttention:
    """One production layer with the parameters of single heads: their matrices are stacked.

    It draws no random numbers, so it does not change a table printed after `torch.manual_seed(n)`.

    Args:
        heads: H layers with one head each, all of the same shape. o_proj: (H*D -> d_out), copied too, or None.

    Returns:
        A layer whose output is that of `concatenate_heads`, followed by `o_proj` if there is one.

    Raises:
        ValueError: there are no heads, their shapes differ, or one of them has several heads or an output projection.
    """
    _require_single_heads(heads)
    first, width = heads[0], len(heads) * heads[0].head_dim
    with torch.device("meta"):  # parameters without memory need no random numbers
        joined = MultiHeadAttention(
            first.q_proj.in_features,
            width if o_proj is None else o_proj.out_features,
            len(heads),
            head_dim=first.head_dim,
            d_context=first.k_proj.in_features,
            qkv_bias=first.q_proj.bias is not None,
            project=o_proj is not None,
            out_bias=o_proj is not None and o_proj.bias is not None,
        )
    parts = [head.state_dict() for head in heads]
    parameters = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if o_proj is not None:
        parameters |= {f"o_proj.{name}": value.clone() for name, value in o_proj.state_dict().items()}
    joined.load_state_dict(parameters, assign=True)
    return joined


def split(x: Tensor, n_head: int) -> Tensor:
    """Split the width into heads: head h gets columns h·D to (h+1)·D of every position.

    Args:
        x: (B, T, H*D), or (T, H*D).

    Returns:
        (B, H, T, D), or (H, T, D).

    Raises:
        ValueError: the width is not divisible by n_head.
    """
    width = x.shape[-1]
    if width % n_head:
        raise ValueError(f"a width of {width} is not divisible by n_head={n_head}")
    head_dim = width // n_head
    return torch.stack([x[..., h * head_dim : (h + 1) * head_dim] for h in range(n_head)], dim=-3)  # (B, H, T, D)


def merge(heads: Tensor) -> Tensor:
    """Concatenate the heads, the inverse of `split`.

    Args:
        heads: (B, H, T, D), or (H, T, D).

    Returns:
        (B, T, H*D), or (T, H*D).
    """
    return torch.cat(list(heads.unbind(dim=-3)), dim=-1)  # (B, T, H*D)


def key_head(h: int, n_head: int, n_kv_head: int) -> int:
    """The key/value head of query head h. H / G neighbouring query heads share one."""
    return h // (n_head // n_kv_head)


def head_weights(
    attention: MultiHeadAttention,
    h: int,
    x: Tensor,
    context: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    turn: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The attention weights of head h, from its rows of W_q and W_k.

    Args:
        attention: any layer. h: 0 to n_head - 1. turn: the rotation of queries and keys by rotary positions, each
            (B, T, D), see `jumok.nn.rotate`. The rest: as in the production layer.

    Returns:
        (B, T, S), or (T, S).

    Raises:
        ValueError: there is no such head.
    """
    _require_head(attention, h)
    source = x if context is None else context
    q = _rows(attention.q_proj, h, attention.head_dim, x)  # (B, T, D)
    k = _rows(attention.k_proj, key_head(h, attention.n_head, attention.n_kv_head), attention.head_dim, source)
    if attention.q_norm is not None and attention.k_norm is not None:
        q, k = attention.q_norm(q), attention.k_norm(k)
    if turn is not None:
        q, k = turn(q), turn(k)
    scores = q @ k.transpose(-2, -1) * attention.head_dim**-0.5  # (B, T, S)
    return masked_weights(scores, _mask_of_head(attention, h, scores, mask, causal))


def head_output(
    attention: MultiHeadAttention,
    h: int,
    x: Tensor,
    context: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    turn: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The output of head h: its weights times its values.

    Args:
        attention: any layer. h: 0 to n_head - 1. turn: as in `head_weights`; values are not rotated. The rest: as in
            the production layer.

    Returns:
        (B, T, D), or (T, D).

    Raises:
        ValueError: there is no such head.
    """
    weights = head_weights(attention, h, x, context, mask=mask, causal=causal, turn=turn)  # (B, T, S)
    source = x if context is None else context
    v = _rows(attention.v_proj, key_head(h, attention.n_head, attention.n_kv_head), attention.head_dim, source)
    return weights @ v


def attend_by_heads(
    attention: MultiHeadAttention,
    x: Tensor,
    context: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    turn: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The whole layer, one head at a time: compute each head, concatenate, project.

    Args:
        attention: any layer. turn: as in `head_weights`. The rest: as in the production layer.

    Returns:
        (B, T, d_out), or (T, d_out); equal to `attention(x, context, mask=mask, causal=causal)` without dropout.
    """
    heads = [
        head_output(attention, h, x, context, mask=mask, causal=causal, turn=turn) for h in range(attention.n_head)
    ]
    merged = torch.cat(heads, dim=-1)  # (B, T, H*D)
    return merged if attention.o_proj is None else attention.o_proj(merged)


def contributions(attention: MultiHeadAttention, merged: Tensor) -> Tensor:
    """The contribution of each head to the output: its D columns times its D columns of W_o.

    The output projection is a sum over heads; the bias is added once.

    Args:
        attention: a layer with output projection. merged: (B, T, H*D), or (T, H*D), the concatenated heads.

    Returns:
        (B, H, T, d_out), or (H, T, d_out). The sum over H, plus the bias, is `attention.o_proj(merged)`.

    Raises:
        ValueError: the layer has no output projection.
    """
    if attention.o_proj is None:
        raise ValueError("the layer has no output projection; make it with project=True")
    columns = attention.o_proj.weight.split(attention.head_dim, dim=1)  # H times (d_out, D)
    heads = split(merged, attention.n_head).unbind(dim=-3)  # H times (B, T, D)
    return torch.stack([head @ part.T for head, part in zip(heads, columns, strict=True)], dim=-3)  # (B, H, T, d_out)


def _rows(projection: nn.Linear, head: int, head_dim: int, x: Tensor) -> Tensor:
    rows = slice(head * head_dim, (head + 1) * head_dim)
    bias = None if projection.bias is None else projection.bias[rows]
    return F.linear(x, projection.weight[rows], bias)  # (B, T, D)


def _mask_of_head(attention: MultiHeadAttention, h: int, scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """(T, S) or (B, T, S), from a mask that may be broadcast to (B, H, T, S)."""
    *batch, t, s = scores.shape
    allowed = combined_mask(t, s, mask, causal, scores.device)
    if allowed is None:
        return torch.ones(t, s, dtype=torch.bool, device=scores.device)
    return allowed.expand(*batch, attention.n_head, t, s)[..., h, :, :]  # (B, T, S)


def _require_head(attention: MultiHeadAttention, h: int) -> None:
    if not 0 <= h < attention.n_head:
        raise ValueError(f"there is no head {h}; the layer has heads 0 to {attention.n_head - 1}")


def _require_single_heads(heads: Sequence[MultiHeadAttention]) -> None:
    if not heads:
        raise ValueError("no heads were given; make some with make_heads")
    for head in heads:
        if head.n_head != 1 or head.o_proj is not None or head.q_norm is not None:
            raise ValueError("a layer to be joined must have one head, no output projection and no qk_norm")
    shapes = sorted({tuple(tuple(p.shape) for p in head.parameters()) for head in heads})
    if len(shapes) > 1:
        raise ValueError(
            f"heads to be joined must be of one shape; their parameters are {' and '.join(map(str, shapes))}"
        )
