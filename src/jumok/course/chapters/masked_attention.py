"""Chapter 5, causal mask and dropout: masking before and after the softmax, empty rows, and dropout.

The functions compute scores and weights one step at a time. Queries, keys, values and scores are those of chapter 4
(`jumok.course.chapters.projections.step_by_step`), from the parameters of a production `MultiHeadAttention` with one
head. Chapter 6 (`jumok.course.chapters.heads`) handles several heads.

Shapes use the legend of `jumok.nn.attention`. `scores` are before the softmax, `weights` after it.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, sections 3.1 and 3.2.3; dropout:
https://jmlr.org/papers/v15/srivastava14a.html.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from jumok.course.chapters.projections import step_by_step
from jumok.nn import MultiHeadAttention, causal_mask

NOISE = 1e-6  # a smaller change of an output is taken as rounding


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores, with -inf where a query may not attend.

    Args:
        scores: (..., T, S). mask: bool, broadcastable to it.

    Returns:
        (..., T, S).
    """
    return scores.masked_fill(~mask, float("-inf"))


def weights_masked_before(scores: Tensor, mask: Tensor) -> Tensor:
    """Mask first, then softmax: exp(-inf) is 0, so only allowed positions receive weight.

    Args:
        scores: (..., T, S), scaled. mask: bool, broadcastable to it.

    Returns:
        (..., T, S). A row with nothing to attend to is NaN: its softmax is 0 / 0.
    """
    return mask_scores(scores, mask).softmax(dim=-1)


def weights_masked_after(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax first, then zeros where a query may not attend, and each row divided by its remaining sum.

    In exact arithmetic this equals `weights_masked_before`, because the sum over *all* keys cancels. In floating point
    it fails if the allowed scores are far below a masked one: in float32, exp(-104) is 0.

    Args:
        scores: (..., T, S), scaled. mask: bool, broadcastable to it.

    Returns:
        (..., T, S). A row with nothing left is NaN.
    """
    weights = scores.softmax(dim=-1) * mask  # (..., T, S)
    return weights / weights.sum(dim=-1, keepdim=True)


def masked_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """As in the production layer: mask before the softmax, and zeros for a row with nothing to attend to.

    Args:
        scores: (..., T, S), scaled. mask: bool, broadcastable to it.

    Returns:
        (..., T, S). Rows sum to one, or to zero if they are empty. A NaN in a row that is not empty stays.
    """
    weights = weights_masked_before(scores, mask)  # (..., T, S)
    empty = ~mask.any(dim=-1, keepdim=True)  # (..., T, 1)
    return weights.masked_fill(empty, 0.0)


def causal_weights(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """The causal attention weights of a layer with one head.

    Args:
        attention: a layer with one head. x: (B, T, C), or (T, C).

    Returns:
        (B, T, T), or (T, T); equal to `jumok.nn.attention.attention_weights` with causal=True.

    Raises:
        ValueError: the layer has several heads, or norms on q and k.
    """
    t = x.shape[-2]
    return masked_weights(step_by_step(attention, x).scaled, causal_mask(t, t, x.device))


def causal_attention_by_loop(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """Causal attention without a mask: query t uses keys and values 0 to t only.

    Args:
        attention: a layer with one head. x: (B, T, C), or (T, C).

    Returns:
        (B, T, d_out), or (T, d_out); equal to `attention(x, causal=True)` without dropout.

    Raises:
        ValueError: the layer has several heads, or norms on q and k.
    """
    q, k, v, *_ = step_by_step(attention, x)  # (B, T, D) each
    outputs = []
    for t in range(x.shape[-2]):
        past = slice(0, t + 1)
        scores = (k[..., past, :] * q[..., t : t + 1, :]).sum(dim=-1) * attention.head_dim**-0.5  # (B, t+1)
        weights = scores.softmax(dim=-1)  # (B, t+1)
        outputs.append((weights[..., None] * v[..., past, :]).sum(dim=-2))  # (B, D)
    head = torch.stack(outputs, dim=-2)  # (B, T, D)
    return head if attention.o_proj is None else attention.o_proj(head)


def drop(weights: Tensor, kept: Tensor, rate: float) -> Tensor:
    """Dropout with a given mask: elements that are not kept become 0, the others are divided by 1 - rate.

    An element is kept with probability 1 - rate, so its expectation stays the same.
    `torch.nn.functional.dropout` draws one number for each element, `jumok.nn.layers.Dropout` one byte on CPUs. To
    reproduce a table printed after `torch.manual_seed(n)`, use `torch.nn.functional.dropout(weights, rate)` with
    `weights` from `causal_weights` or from `jumok.nn.attention.attention_weights`.

    Args:
        weights: any shape. kept: bool, of the same shape. rate: probability of a zero, at least 0 and below 1.

    Returns:
        Of the shape of the weights. Rows no longer sum to one.

    Raises:
        ValueError: the rate is out of range.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate={rate} is out of range: it must be at least 0 and less than 1")
    return weights * kept / (1 - rate)


@torch.no_grad()
def influence(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Which outputs depend on which inputs: change one input position at a time and compare the outputs.

    This tests the result instead of the mask, so it also finds the effect of a wrong mask.

    Args:
        layer: takes (B, S, C), or (S, C), returns (B, T, ...), or (T, ...). It must be deterministic: no dropout.
        x: the unchanged input, (B, S, C), or (S, C), with C at least 2.

    Returns:
        (T, S), bool: True where a change of input position s changed output position t of some sequence.
    """
    before = layer(x)
    change = torch.linspace(1, 2, x.shape[-1], dtype=x.dtype, device=x.device)  # (C,); a norm would remove a constant
    reached = []
    for s in range(x.shape[-2]):
        changed = x.clone()
        changed[..., s, :] += change
        moved = (layer(changed) - before).abs() > NOISE  # (B, T, C)
        reached.append(moved.any(dim=-1).reshape(-1, moved.shape[-2]).any(dim=0))  # (T,)
    return torch.stack(reached, dim=-1)  # (T, S)
