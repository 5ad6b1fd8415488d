"""Chapter 3, dot-product attention without parameters: the weights depend on the similarity of vectors.

Nothing is learned here: x itself is query, key and value. The scores are not divided by sqrt(D) yet; chapter 4
(`jumok.course.chapters.projections`) does that. `plain_attention` makes a production layer with the same result.

Shapes use the legend of `jumok.nn.attention`. `scores` are before the softmax, `weights` after it.

Source: dot-product attention: https://arxiv.org/abs/1508.04025; "Attention Is All You Need",
https://arxiv.org/abs/1706.03762, section 3.2.1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.nn import MultiHeadAttention


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the products of the numbers at the same index.

    Args:
        a, b: (..., C), both of one width.

    Returns:
        (...), without the last dimension.

    Raises:
        ValueError: the widths differ.
    """
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a has the width {a.shape[-1]}, b has {b.shape[-1]}; a dot product needs two of one width")
    total = torch.zeros_like(a[..., 0] * b[..., 0])
    for c in range(a.shape[-1]):
        total = total + a[..., c] * b[..., c]
    return total


def scores_by_loop(q: Tensor, k: Tensor) -> Tensor:
    """The score of each query with each key, one pair at a time.

    Args:
        q: (B, T, D), or (T, D). k: (B, S, D), or (S, D).

    Returns:
        (B, T, S), or (T, S).
    """
    rows = []
    for t in range(q.shape[-2]):
        row = [dot(q[..., t, :], k[..., s, :]) for s in range(k.shape[-2])]  # S times (B,)
        rows.append(torch.stack(row, dim=-1))  # (B, S)
    return torch.stack(rows, dim=-2)  # (B, T, S)


def scores_by_product(q: Tensor, k: Tensor) -> Tensor:
    """All scores at once: each cell of q kᵀ is the dot product of one query and one key.

    Args:
        q: (B, T, D), or (T, D). k: (B, S, D), or (S, D).

    Returns:
        (B, T, S), or (T, S); equal to `scores_by_loop`.
    """
    return q @ k.transpose(-2, -1)


def softmax_by_formula(scores: Tensor) -> Tensor:
    """exp(s) divided by the sum of all exp(s), without protection against overflow.

    In float32, exp(89) is infinite, and inf / inf is NaN; see `softmax`.

    Args:
        scores: (..., S).

    Returns:
        (..., S), each row positive with sum one, or NaN.
    """
    powers = scores.exp()  # (..., S)
    return powers / powers.sum(dim=-1, keepdim=True)


def softmax(scores: Tensor) -> Tensor:
    """The same after subtracting each row's largest score, so that the largest term is exp(0) = 1.

    The common factor exp(-max) cancels in the fraction, so the result is the same, and nothing overflows.

    Args:
        scores: (..., S), finite.

    Returns:
        (..., S); equal to `scores.softmax(dim=-1)`.
    """
    return softmax_by_formula(scores - scores.max(dim=-1, keepdim=True).values)


def softmax_jacobian(weights: Tensor) -> Tensor:
    """The derivative of each weight with respect to each score: d w_i / d s_j = w_i (1 if i = j else 0) - w_i w_j.

    It depends only on the weights. Each column sums to zero, because the weights always sum to one. Each row sums to
    zero, because adding a number to all scores changes no weight.

    Args:
        weights: (..., S), of a softmax.

    Returns:
        (..., S, S), symmetric.
    """
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def entropy(weights: Tensor) -> Tensor:
    """How evenly the weights are spread: 0 if one key has all the weight, log S if all S keys have the same weight.

    exp(entropy) is the effective number of keys that receive weight.

    Args:
        weights: (..., S), each row with sum one.

    Returns:
        (...), in nats. Source: https://doi.org/10.1002/j.1538-7305.1948.tb01338.x.
    """
    return torch.special.entr(weights).sum(dim=-1)


def attend_by_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Dot-product attention one query at a time: scores, softmax, and the weighted sum of the values.

    Args:
        q: (B, T, D), or (T, D). k: (B, S, D), or (S, D). v: (B, S, C), or (S, C). Without learned weights all three
            are x.

    Returns:
        (B, T, C), or (T, C).
    """
    scores = scores_by_loop(q, k)  # (B, T, S)
    contexts = []
    for t in range(q.shape[-2]):
        weights = softmax(scores[..., t, :])  # (B, S)
        context = torch.zeros_like(v[..., 0, :])  # (B, C)
        for s in range(v.shape[-2]):
            context = context + weights[..., s, None] * v[..., s, :]
        contexts.append(context)
    return torch.stack(contexts, dim=-2)  # (B, T, C)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same with two matrix products and a softmax between them.

    Args:
        q, k, v: as for `attend_by_loop`.

    Returns:
        (B, T, C), or (T, C); equal to `attend_by_loop`.
    """
    return softmax(scores_by_product(q, k)) @ v


@torch.no_grad()
def plain_attention(width: int, dtype: torch.dtype | None = None) -> MultiHeadAttention:
    """A production layer with one head in which x itself is query, key and value.

    The production layer divides q·k by sqrt(D). Here W_q is sqrt(D) times the identity, so the division cancels and
    the scores are plain dot products. W_k and W_v are the identity.

    Args:
        width: C, and D. dtype: of the parameters (None: PyTorch's default).

    Returns:
        A layer with `layer(x)` equal to `attend(x, x, x)`.
    """
    layer = MultiHeadAttention(width, width, 1, project=False).to(dtype or torch.get_default_dtype())
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        nn.init.eye_(projection.weight)
    layer.q_proj.weight.mul_(width**0.5)
    return layer
