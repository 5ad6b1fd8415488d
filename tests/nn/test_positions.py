"""Positions, compared with their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from jumok.nn.positions import looking_back, rotary, rotate, sinusoidal


def test_sinusoidal_by_hand():
    """Section 3.5 of the paper: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same."""
    table = sinusoidal(6, 8)
    assert table.shape == (6, 8)
    assert table.dtype == torch.float32
    for position in range(6):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert float(table[position, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-7)
            assert float(table[position, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


def test_sinusoidal_positions_are_exact_far_from_the_start():
    """With angles in float32, position 5,000 was off by 0.00025: a table differed from that of other programs."""
    table = sinusoidal(5_001, 512)
    for i in range(256):
        angle = 5_000 / 10_000 ** (2 * i / 512)
        assert float(table[-1, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-7)
        assert float(table[-1, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


def test_an_odd_width_ends_with_a_sine():
    assert sinusoidal(5, 7).shape == (5, 7)
    assert float(sinusoidal(5, 7)[3, 6]) == pytest.approx(math.sin(3 / 10_000 ** (6 / 7)), abs=1e-7)


def test_rotation_keeps_lengths_and_shows_distances():
    """q·k after the rotation depends on the distance of the two positions, and on nothing else."""
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)
    cos, sin = (table.double() for table in rotary(50, 8))

    def at(x: torch.Tensor, position: int) -> torch.Tensor:
        return rotate(x, cos[position : position + 1], sin[position : position + 1])

    torch.testing.assert_close(at(q, 13).norm(), q.norm(), rtol=0, atol=1e-6)
    near, far = (at(q, 7) * at(k, 2)).sum(), (at(q, 45) * at(k, 40)).sum()
    torch.testing.assert_close(near, far, rtol=0, atol=1e-5)
    assert not torch.isclose((at(q, 7) * at(k, 3)).sum(), near)


@pytest.mark.parametrize("width", [2, 16, 64])
@pytest.mark.parametrize("distance", [1, 3])
def test_looking_back_fits_the_key_at_its_distance_best(width, distance):
    """The product of query and key is largest at the distance, at every position."""
    query, key = looking_back(distance, width)
    cos, sin = rotary(40, width)
    scores = rotate(query.expand(40, width), cos, sin) @ rotate(key.expand(40, width), cos, sin).T  # (T, S)
    for position in (10, 39):
        assert scores[position, : position + 1].argmax() == position - distance
    assert query.square().mean() == pytest.approx(1)
    assert key.square().mean() == pytest.approx(1)
