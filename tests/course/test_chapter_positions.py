"""Chapter 8: the tables of positions, and rotation, are those of production."""

from __future__ import annotations

import pytest
import torch
from equality import assert_close, random

from jumok.course.chapters import positions
from jumok.nn.positions import rotary, rotate, sinusoidal


@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_the_tables_of_positions(base: float) -> None:
    assert torch.equal(positions.sinusoidal(500, 16, base), sinusoidal(500, 16, base=base))
    for own, theirs in zip(positions.rotary(50, 6, base), rotary(50, 6, base=base), strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=1e-5)


def test_rotation() -> None:
    x, (cos, sin) = random(2, 3, 5, 6), positions.rotary(5, 6, 100.0)
    assert_close(positions.rotate(x, cos, sin), rotate(x, cos, sin))
