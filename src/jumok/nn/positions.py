"""Sinusoidal and rotary positions.

Learned positions are a `torch.nn.Embedding` of the model. The functions of this module have no parameters.
Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.config import RopeScaling
from jumok.rotary import scaled_frequencies as rotary_frequencies

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


def rotary(
    positions: int | Tensor,
    head_dim: int,
    *,
    base: float = 10_000.0,
    scaling: RopeScaling | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of rotary positions for `rotate` (RoFormer, https://arxiv.org/abs/2104.09864).

    Args:
        positions: (T,) or another shape, or the number of positions from 0 on.
        head_dim: D, or the number of dimensions that are rotated.
        base: of the frequencies.
        scaling: a change of the frequencies for long contexts.

    Returns:
        cos, sin: (T, D) each, float32. Columns i and i + D/2 have the same angle (the "two halves" layout). The angles
        are computed in float32, as in `transformers`, so that an exported model computes the same there.
    """
    if isinstance(positions, int):
        positions = torch.arange(positions)
    frequencies, factor = scaled_frequencies(head_dim, base, scaling)  # (D/2,)
    angles = positions.float().unsqueeze(-1) * frequencies.to(positions.device)  # (T, D/2)
    angles = torch.cat((angles, angles), dim=-1)  # (T, D)
    return angles.cos() * factor, angles.sin() * factor


def scaled_frequencies(width: int, base: float, scaling: RopeScaling | None) -> tuple[Tensor, float]:
    """Return rotary frequencies, (D/2,), and a factor; see `jumok.rotary.scaled_frequencies`.

    Args:
        width: D, or the number of dimensions that are rotated. base, scaling: as in `rotary`.
    """
    found, factor = rotary_frequencies(_periods(width, base, device="cpu").numpy(), base, scaling)
    return torch.from_numpy(found), factor


def positions_in(segments: Tensor) -> Tensor:
    """Return the position of each token in its text, from 0.

    Args:
        segments: (B, T), see `GPT.hidden`.

    Returns:
        (B, T), int64.
    """
    places = torch.arange(segments.shape[1], device=segments.device)  # (T,)
    begins = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)  # (B, T)
    return places - (places * begins).cummax(dim=1).values  # (B, T)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) by the angle of its position; q·k then depends only on the distance.

    Args:
        x: (B, H, T, D).
        cos, sin: (T, R) or (B, 1, T, R), rows of `rotary` for the positions of x. With R < D only the first R
            dimensions are rotated.

    Returns:
        (B, H, T, D), of the type of x.
    """
    rotated = cos.shape[-1]
    if rotated < x.shape[-1]:
        return torch.cat((rotate(x[..., :rotated], cos, sin), x[..., rotated:]), dim=-1)  # (B, H, T, D)
    # The halves are exchanged as rows of a pair. Compiled, that is fused with the products, backwards too; the backward
    # pass of slices writes whole tensors in float32.
    pairs, cos, sin = (each.unflatten(-1, (2, -1)) for each in (x, cos, sin))  # (.., 2, D/2)
    left, right = sin.unbind(-2)
    turned = pairs.flip(-2) * torch.stack((-left, right), dim=-2)  # (B, H, T, 2, D/2)
    return (pairs * cos + turned).flatten(-2).to(x.dtype)  # (B, H, T, D)


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
    return 1.0 / _periods(width, base, dtype)  # (ceil(width/2),)


def _periods(width: int, base: float, dtype: torch.dtype = torch.float32, device: str | None = None) -> Tensor:
    return base ** (torch.arange(0, width, 2, device=device).to(dtype) / width)  # (ceil(width/2),)
