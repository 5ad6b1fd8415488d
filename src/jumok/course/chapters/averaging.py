"""Chapter 2, average the past: by loops, by a triangular matrix, by a softmax, and by attention with zero queries.

All four give the same numbers. The last one is the production layer `MultiHeadAttention` with W_q = 0: all its scores
are equal, so its softmax gives every past position the same weight.

Shapes use the legend of `jumok.nn.attention`.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2; a uniform average in the place of
attention: https://arxiv.org/abs/1805.00631.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.course.chapters.masked_attention import weights_masked_before
from jumok.nn import MultiHeadAttention, causal_mask


def average_by_loop(x: Tensor) -> Tensor:
    """For each position, the mean of that position and all earlier ones, computed with two loops.

    Args:
        x: (B, T, C), or (T, C), at least one position.

    Returns:
        Of the shape of x. Row t is the mean of rows 0 to t.
    """
    averages = []
    for t in range(x.shape[-2]):
        total = torch.zeros_like(x[..., 0, :])  # (B, C)
        for s in range(t + 1):
            total = total + x[..., s, :]
        averages.append(total / (t + 1))
    return torch.stack(averages, dim=-2)  # (B, T, C)


def average_by_running_mean(x: Tensor) -> Tensor:
    """The same with one step per position: the mean moves 1/(t+1) of the way towards the new vector.

    This takes T steps instead of T²/2. It works only if all past positions have the same weight.

    Args:
        x: (B, T, C), or (T, C), at least one position.

    Returns:
        Of the shape of x; equal to `average_by_loop`.
    """
    mean = torch.zeros_like(x[..., 0, :])  # (B, C)
    averages = []
    for t in range(x.shape[-2]):
        mean = mean + (x[..., t, :] - mean) / (t + 1)
        averages.append(mean)
    return torch.stack(averages, dim=-2)  # (B, T, C)


def triangle(t: int) -> Tensor:
    """The causal mask as numbers: row i has a 1 for each position up to i, and zeros after it.

    Args:
        t: number of positions.

    Returns:
        (T, T). `triangle(t) @ x` is the sum of the past.
    """
    return causal_mask(t, t).to(torch.get_default_dtype())


def normalise_rows(table: Tensor) -> Tensor:
    """Divide each row by its sum, so that it sums to one.

    Args:
        table: (..., T, S). No row may sum to zero; one that does becomes inf or NaN.

    Returns:
        (..., T, S).
    """
    return table / table.sum(dim=-1, keepdim=True)


def average_by_matrix(x: Tensor) -> Tensor:
    """All averages at once: a triangular matrix whose rows sum to one, times x.

    Args:
        x: (B, T, C), or (T, C).

    Returns:
        Of the shape of x; equal to `average_by_loop`.
    """
    return normalise_rows(triangle(x.shape[-2]).to(x)) @ x


def weights_by_softmax(scores: Tensor) -> Tensor:
    """Weights as in attention: -inf for future positions, then a softmax over each row.

    Args:
        scores: (T, T), finite. If all are equal, the weights of the past are equal, because a softmax depends only on
            differences between scores.

    Returns:
        (T, T), each row with sum one; for equal scores it is `normalise_rows(triangle(t))`.
    """
    t, s = scores.shape
    return weights_masked_before(scores, causal_mask(t, s, scores.device))


def average_by_softmax(x: Tensor) -> Tensor:
    """The averages, with the weights from a softmax over equal scores.

    Args:
        x: (B, T, C), or (T, C).

    Returns:
        Of the shape of x; equal to `average_by_loop`.
    """
    return weights_by_softmax(x.new_zeros(x.shape[-2], x.shape[-2])) @ x


@torch.no_grad()
def silence_queries(attention: MultiHeadAttention) -> MultiHeadAttention:
    """Set W_q and its bias to zero, in place. All scores are then 0, and causal attention averages the past values.

    Args:
        attention: any layer.

    Returns:
        The same layer.
    """
    for parameter in attention.q_proj.parameters():
        parameter.zero_()
    return attention
