"""Sinusoidal and rotary positions.

Learned positions are a `torch.nn.Embedding` of the model. The functions of this module have no parameters.
Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHARP = 0.05  # radians per token; `looking_back` does not use pairs with a lower frequency


def sinusoidal(length: int, width: int, *, base: float = 10_000.0) -> Tensor:
    """Return the position table of "Attention Is All You Need", section 3.5 (https://arxiv.org/abs/1706.03762).

    Returns:
        (length, width), float32: sin of wavelength 2π·base^(2i/width) in column 2i, cos in column 2i+1. The angles are
        computed in float64; in float32 the error would be 0.00025 at position 5,000.
    """
    angles = torch.outer(torch.arange(length).double(), _frequencies(width, base, torch.float64))
    table = torch.stack((angles.sin(), angles.cos()), dim=-1)  # (length, ceil(width/2), 2)
    return table.flatten(1)[:, :width].float()  # (length, width)


def rotary(length: int, head_dim: int, *, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of rotary positions for `rotate` (RoFormer, https://arxiv.org/abs/2104.09864).

    Returns:
        cos, sin: (length, D) each, float32. Columns i and i + D/2 have the same angle (the "two halves" layout). The
        angles are computed in float32, as in `transformers`, so that an exported model computes the same there.
    """
    angles = torch.outer(torch.arange(length).float(), _frequencies(head_dim, base))  # (length, D/2)
    angles = angles.repeat(1, 2)  # (length, D)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) by the angle of its position; q·k then depends only on the distance.

    Args:
        x: (B, H, T, D).
        cos, sin: (T, D) or (B, 1, T, D), rows of `rotary` for the positions of x.

    Returns:
        (B, H, T, D), of the type of x.
    """
    left, right = x.chunk(2, dim=-1)  # (B, H, T, D/2) each
    turned = torch.cat((-right, left), dim=-1)  # (B, H, T, D)
    return (x * cos + turned * sin).to(x.dtype)


def looking_back(distance: int, head_dim: int, *, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return a query and a key whose product, after `rotate`, is largest if the key is `distance` tokens before.

    The product is a sum of cosines of frequency · (offset - distance). Only pairs with a frequency above SHARP are
    used, because the others hardly differ between adjacent positions.

    Returns:
        query, key: (D,) each, float32, of mean square 1. The key does not depend on the distance.
    """
    turns = _frequencies(head_dim, base)  # (D/2,), radians per token
    length = (turns > SHARP).float()
    length = length * (head_dim / length.sum()).sqrt()  # (D/2,)
    angles = distance * turns
    query = torch.cat((length * angles.cos(), -length * angles.sin()))  # (D,)
    return query, torch.cat((length, torch.zeros_like(length)))


def _frequencies(width: int, base: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return 1.0 / base ** (torch.arange(0, width, 2).to(dtype) / width)  # (ceil(width/2),)
