"""Chapter 8, positions: a learned table, a sinusoidal one, and rotary angles, each by loops.

Attention without positions does not depend on the order of its inputs. There are two places for positions: they are
added to the embedding before the first block, or queries and keys are rotated inside every attention layer.

Shapes use the legend of `jumok.nn.attention`.

Sources: learned tables https://arxiv.org/abs/1705.03122, the sinusoidal one https://arxiv.org/abs/1706.03762, rotary
https://arxiv.org/abs/2104.09864, causal models without positions https://arxiv.org/abs/2203.16634.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from jumok.course.chapters.heads import attend_by_heads
from jumok.nn import MultiHeadAttention


def embed(ids: Tensor, tokens: nn.Embedding, positions: nn.Embedding | None = None, start: int = 0) -> Tensor:
    """A row of the token table for each id, plus a row of the position table, if there is one.

    Args:
        ids: (B, T). tokens: V rows. positions: a row for each position, or None.
        start: the position of the first id, which is the number of tokens in the cache.

    Returns:
        (B, T, C): the input of the first block of a GPT in eval mode.

    Raises:
        ValueError: a position has no row.
    """
    stop = start + ids.shape[-1]
    if positions is not None and stop > positions.num_embeddings:
        raise ValueError(f"place {stop - 1} has no row in a table of {positions.num_embeddings}")
    sequences = []
    for sequence in ids.tolist():
        rows = [tokens.weight[token] for token in sequence]  # T times (C,)
        if positions is not None:
            rows = [row + positions.weight[start + t] for t, row in enumerate(rows)]
        sequences.append(torch.stack(rows))  # (T, C)
    return torch.stack(sequences)  # (B, T, C)


def frequency(pair: int, width: int, base: float = 10_000.0) -> float:
    """Radians per position of a pair of columns: 1 for pair 0, and close to 1 / base for the last one."""
    return base ** (-2 * pair / width)


def sinusoidal_by_loop(length: int, width: int, *, base: float = 10_000.0) -> Tensor:
    """The sinusoidal table, number by number: pair i is the sine and the cosine of position · frequency(i).

    Returns:
        (length, width), float64. `jumok.nn.positions.sinusoidal` computes in float32, so its angles have a relative
        error of up to about 1e-7.
    """
    table = torch.zeros(length, width, dtype=torch.float64)
    for position in range(length):
        for column in range(width):
            angle = position * frequency(column // 2, width, base)
            table[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def turn(left: Tensor, right: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate points of the plane around the origin.

    Args:
        left, right: the coordinates, both of the same shape. cos, sin: of the angle, broadcastable to that shape.
    """
    return left * cos - right * sin, right * cos + left * sin


def rotate_by_loop(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) of each position by the angle of that position and pair.

    Args:
        x: (..., T, D), queries or keys. cos, sin: (T, R), rows of `jumok.nn.positions.rotary`. R is even; with R < D
            only the first R dimensions are rotated, as if the vector ended there.

    Returns:
        (..., T, D); equal to `jumok.nn.positions.rotate`. The lengths do not change.
    """
    turned = x.clone()
    half = cos.shape[-1] // 2
    for t in range(x.shape[-2]):
        for i in range(half):
            pair = turn(x[..., t, i], x[..., t, i + half], cos[t, i], sin[t, i])
            turned[..., t, i], turned[..., t, i + half] = pair
    return turned


def rotate_as_complex(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same with each pair as one complex number: x_i + i·x_{i+D/2}, times exp(i · angle).

    Then q·k is the real part of the sum of q times the conjugate of k. It contains exp(i·m·θ) · exp(-i·n·θ) =
    exp(i·(m-n)·θ), which depends only on the distance.

    Args:
        x: (..., T, D), D even. cos, sin: (T, D), rows of `jumok.nn.positions.rotary`.

    Returns:
        (..., T, D).
    """
    half = x.shape[-1] // 2
    number = torch.complex(x[..., :half], x[..., half:])  # (..., T, D/2)
    unit = torch.complex(cos[:, :half], sin[:, :half]).to(number.dtype)  # (T, D/2)
    turned = number * unit  # (..., T, D/2)
    return torch.cat((turned.real, turned.imag), dim=-1)  # (..., T, D)


def attend_with_rotary(
    attention: MultiHeadAttention, x: Tensor, cos: Tensor, sin: Tensor, *, causal: bool = False
) -> Tensor:
    """Self-attention with rotary positions, one head at a time: q and k are rotated, v is not.

    Args:
        attention: any layer. x: (B, T, C), or (T, C). cos, sin: (T, D), for the positions of x.
        causal: whether to mask future positions.

    Returns:
        (B, T, d_out), or (T, d_out); equal to `attention(x, causal=causal, rotary=(cos, sin))` without dropout.
    """
    return attend_by_heads(attention, x, causal=causal, turn=partial(rotate_by_loop, cos=cos, sin=sin))


def scores_everywhere(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotary scores of one query and one key, each placed at every position.

    Args:
        q, k: (D,). cos, sin: (T, D).

    Returns:
        (T, T), before scaling. Each diagonal holds one number, because the score depends only on the distance.
    """
    t = cos.shape[0]
    queries = rotate_by_loop(q.expand(t, -1), cos, sin)  # (T, D)
    keys = rotate_by_loop(k.expand(t, -1), cos, sin)  # (T, D)
    return queries @ keys.T


def sinusoidal(length: int, width: int) -> Tensor:
    """Return the table of sinusoidal positions: (T,) and C -> (T, C), sines in even columns and cosines in odd ones."""
    pairs = torch.arange(width // 2)
    angles = torch.arange(length)[:, None] / 10_000.0 ** (2 * pairs / width).double()  # (T, C/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()  # (T, C)
