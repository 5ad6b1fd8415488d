"""What the tests of equality share: both precisions, a comparison as exact as each allows, random numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Assert that two tensors are equal up to the rounding of their precision."""
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12 if expected.dtype == torch.float64 else 1e-6)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def randomise(module: nn.Module, dtype: torch.dtype = torch.float64) -> None:
    """Give every parameter a random value, those that begin as zero or one too."""
    generator = torch.Generator().manual_seed(5)
    for parameter in module.to(dtype).parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
