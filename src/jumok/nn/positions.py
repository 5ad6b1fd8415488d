"""Where a token stands: sinusoidal, learned and rotary positions.

Learned positions are a plain `torch.nn.Embedding` of the model; the functions here need no parameters.
Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHARP = 0.05  # radians a token: pairs that turn slower do not take part in `looking_back`


def sinusoidal(length: int, width: int, *, base: float = 10_000.0) -> Tensor:
    """The fixed position table of "Attention Is All You Need", section 3.5 (https://arxiv.org/abs/1706.03762).

    Returns:
        (length, width), float32, rounded once from float64: sin of wavelength 2π·base^(2i/width) in column 2i, cos in
        column 2i+1. With angles in float32 position 5,000 would be off by 0.00025.
    """
    angles = torch.outer(torch.arange(length).double(), _frequencies(width, base, torch.float64))
    table = torch.stack((angles.sin(), angles.cos()), dim=-1)  # (length, ceil(width/2), 2)
    return table.flatten(1)[:, :width].float()  # (length, width)


def rotary(length: int, head_dim: int, *, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `rotate`, of RoFormer (https://arxiv.org/abs/2104.09864).

    Returns:
        cos, sin: (length, D) each, float32, in the "two halves" layout: column i and column i + D/2 hold the same
        angle. The angles are products of float32 numbers, as in `transformers`, so that exported weights see the
        very same positions there.
    """
    angles = torch.outer(torch.arange(length).float(), _frequencies(head_dim, base))  # (length, D/2)
    angles = angles.repeat(1, 2)  # (length, D)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+D/2}) by its position's angle; q·k then depends on the distance alone.

    Args:
        x: (B, H, T, D).
        cos, sin: (T, D), rows of `rotary` for the positions of x.

    Returns:
        (B, H, T, D), of the type of x.
    """
    left, right = x.chunk(2, dim=-1)  # (B, H, T, D/2) each
    turned = torch.cat((-right, left), dim=-1)  # (B, H, T, D)
    return (x * cos + turned * sin).to(x.dtype)


def looking_back(distance: int, head_dim: int, *, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """A query and a key that fit best, once `rotate` has turned both, when the key is `distance` tokens before.

    Their product is a sum of cosines of the angles between the two positions, less `distance` turns. Only the pairs
    that turn by more than SHARP a token take part: the others hardly tell neighbours apart.

    Returns:
        query, key: (D,) each, float32, of mean square 1. The key does not depend on the distance.
    """
    turns = _frequencies(head_dim, base)  # (D/2,), radians a token
    length = (turns > SHARP).float()
    length = length * (head_dim / length.sum()).sqrt()  # (D/2,)
    angles = distance * turns
    query = torch.cat((length * angles.cos(), -length * angles.sin()))  # (D,)
    return query, torch.cat((length, torch.zeros_like(length)))


def _frequencies(width: int, base: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return 1.0 / base ** (torch.arange(0, width, 2).to(dtype) / width)  # (ceil(width/2),)
