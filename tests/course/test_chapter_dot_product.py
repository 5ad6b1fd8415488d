"""Chapter 2: attention without weights, by loops and by products, is what production computes with nothing to learn."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from equality import FOUR_DECIMALS
from torch import Tensor

from jumok.course.chapters.averaging import normalise_rows
from jumok.course.chapters.dot_product import (
    attend,
    attend_by_loop,
    entropy,
    plain_attention,
    scores_by_loop,
    scores_by_product,
    softmax,
    softmax_by_formula,
    softmax_jacobian,
)
from jumok.nn.attention import attention_weights

TOLERANCE = {torch.float32: {"rtol": 0, "atol": 1e-6}, torch.float64: {"rtol": 0, "atol": 1e-12}}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
SHAPES = pytest.mark.parametrize("shape", [(1, 3), (7, 5), (2, 1, 4), (3, 6, 1), (2, 5, 3)], ids=str)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_the_published_tables(published: dict[str, Any]) -> None:
    x = torch.tensor(published["inputs"])
    table = {name: torch.tensor(values) for name, values in published["dot_product"].items()}
    scores = scores_by_loop(x, x)
    torch.testing.assert_close(scores, table["scores"], **FOUR_DECIMALS)
    torch.testing.assert_close(scores[1], table["scores_of_token_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(normalise_rows(scores)[1], table["sum_normalised"], **FOUR_DECIMALS)
    torch.testing.assert_close(softmax(scores)[1], table["weights_of_token_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(softmax(scores), table["weights"], **FOUR_DECIMALS)
    torch.testing.assert_close(attend_by_loop(x, x, x)[1], table["context_of_token_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(attend(x, x, x), table["context"], **FOUR_DECIMALS)
    torch.testing.assert_close(plain_attention(3)(x), table["context"], **FOUR_DECIMALS)


@DTYPES
@SHAPES
def test_loops_and_products_agree(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    q, v = draw(*shape, dtype=dtype), draw(*shape[:-1], 2, dtype=dtype, seed=2)
    k = draw(*shape, dtype=dtype, seed=1)
    torch.testing.assert_close(scores_by_loop(q, k), scores_by_product(q, k), **TOLERANCE[dtype])
    torch.testing.assert_close(attend_by_loop(q, k, v), attend(q, k, v), **TOLERANCE[dtype])


@DTYPES
@SHAPES
def test_production_divides_by_the_root_of_the_width_and_is_else_the_same(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    q, k = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    one_head = [tensor.unsqueeze(-3) for tensor in (q * math.sqrt(shape[-1]), k)]
    expected = attention_weights(*one_head).squeeze(-3)
    torch.testing.assert_close(softmax(scores_by_product(q, k)), expected, **TOLERANCE[dtype])


@DTYPES
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_both_softmaxes_are_that_of_torch(size: float, dtype: torch.dtype) -> None:
    scores = draw(3, 7, dtype=dtype) * size
    torch.testing.assert_close(softmax(scores), scores.softmax(dim=-1), **TOLERANCE[dtype])
    if size == 1.0:
        torch.testing.assert_close(softmax_by_formula(scores), scores.softmax(dim=-1), **TOLERANCE[dtype])


def test_the_formula_overflows_and_the_cure_does_not() -> None:
    """float32 ends at about 3.4e38, and exp(89) is 4.5e38."""
    scores = torch.tensor([[89.0, 88.0, 0.0]])
    assert softmax_by_formula(scores).isnan().tolist() == [[True, False, False]]
    torch.testing.assert_close(softmax(scores), torch.tensor([[0.73106, 0.26894, 0.0]]), rtol=0, atol=1e-5)
    shifted = softmax(scores.double() + 1e4)
    torch.testing.assert_close(shifted, softmax_by_formula(scores.double()), rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3, 4)], ids=str)
def test_the_jacobian_is_that_of_autograd(shape: tuple[int, ...]) -> None:
    scores = draw(*shape, dtype=torch.float64)
    found = softmax_jacobian(scores.softmax(dim=-1))
    assert found.shape == (*shape, shape[-1])
    width = shape[-1]
    for row, jacobian in zip(scores.reshape(-1, width), found.reshape(-1, width, width), strict=True):
        expected = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), row)
        torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.sum(dim=-1), torch.zeros(shape, dtype=torch.float64), rtol=0, atol=1e-12)


def test_entropy_counts_the_keys_that_matter() -> None:
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    torch.testing.assert_close(entropy(weights).exp(), torch.tensor([4.0, 2.0, 1.0]))
