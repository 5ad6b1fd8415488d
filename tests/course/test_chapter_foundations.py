"""Chapter 0: the loops equal PyTorch's operations and jumok's loss."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from jumok.course.chapters.foundations import (
    average_surprise,
    broadcast_shape,
    embedding_by_one_hot,
    one_hot,
    product_by_loop,
    slopes,
    sum_by_loop,
    surprise,
)
from jumok.models.losses import cross_entropies


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_a_sum_over_a_dimension(dim: int) -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(sum_by_loop(x, dim), x.sum(dim))


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.product([(), (1,), (3,), (2, 3), (2, 1), (5, 1, 3), (0, 3), (1, 1, 1, 1)], repeat=2))
)
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Also of nothing with a size of 1; and what torch refuses is refused."""
    try:
        expected = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shape(a, b)
    else:
        assert broadcast_shape(a, b) == expected


@pytest.mark.parametrize(("n", "m", "p"), [(1, 1, 1), (3, 4, 5), (2, 0, 3)])
def test_a_matrix_product(n: int, m: int, p: int) -> None:
    a, b = torch.randn(n, m, dtype=torch.float64), torch.randn(m, p, dtype=torch.float64)
    torch.testing.assert_close(product_by_loop(a, b), a @ b)


def test_slopes_are_gradients() -> None:
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def f(y: torch.Tensor) -> torch.Tensor:
        return (y.sin() * y.exp()).sum() + y[0, 0] * y[2, 1]

    f(x).backward()
    torch.testing.assert_close(slopes(f, x.detach()), x.grad, rtol=0, atol=1e-8)


def test_surprise() -> None:
    assert math.copysign(1, surprise(1.0)) == 1
    assert surprise(1.0) == 0
    assert surprise(0.25) == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3)], ids=str)
def test_the_average_surprise_is_the_loss(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(*shape, 9, dtype=torch.float64) * 100, torch.randint(9, shape)
    torch.testing.assert_close(average_surprise(logits, targets), cross_entropies(logits, targets).mean())


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
def test_an_embedding_is_a_product(shape: tuple[int, ...]) -> None:
    table, ids = torch.randn(6, 3, dtype=torch.float64), torch.randint(6, shape)
    assert torch.equal(embedding_by_one_hot(ids, table), table[ids])
    assert torch.equal(one_hot(ids, 6), torch.nn.functional.one_hot(ids, 6).float())
