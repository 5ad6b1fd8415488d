"""Chapter 3: the steps of one head are those of the production layer, and sqrt(D) is what keeps a softmax alive."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from equality import FOUR_DECIMALS
from torch import Tensor, nn

from jumok.course.chapters.dot_product import softmax
from jumok.course.chapters.projections import (
    attend_pair_by_pair,
    gradient_of_queries,
    layer_of,
    project,
    random_queries_and_keys,
    spread,
    step_by_step,
)
from jumok.nn.attention import MultiHeadAttention, attention_weights

TOLERANCE = {torch.float32: {"rtol": 0, "atol": 1e-6}, torch.float64: {"rtol": 0, "atol": 1e-12}}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
SHAPES = pytest.mark.parametrize("shape", [(1, 3), (7, 5), (2, 1, 4), (3, 6, 1), (2, 5, 12)], ids=str)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


# --- the published tables, and others made the same way ---


def test_the_published_steps(published: dict[str, Any]) -> None:
    x = torch.tensor(published["inputs"])
    table = {name: torch.tensor(v) for name, v in published["trainable_step_by_step"].items() if name != "setup"}
    torch.manual_seed(123)
    steps = step_by_step(layer_of(torch.rand(3, 2), torch.rand(3, 2), torch.rand(3, 2)), x)
    torch.testing.assert_close(steps.q[1], table["query_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(steps.scores[1, 1], table["score_22"], **FOUR_DECIMALS)
    torch.testing.assert_close(steps.scores[1], table["scores_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(steps.weights[1], table["weights_2"], **FOUR_DECIMALS)
    torch.testing.assert_close(steps.context[1], table["context_2"], **FOUR_DECIMALS)


def test_the_published_layer(published: dict[str, Any]) -> None:
    x = torch.tensor(published["inputs"])
    table = published["self_attention_linear"]
    torch.manual_seed(789)
    layer = MultiHeadAttention(3, 2, 1, project=False)
    torch.testing.assert_close(layer(x), torch.tensor(table["context"]), **FOUR_DECIMALS)
    torch.testing.assert_close(step_by_step(layer, x).weights, torch.tensor(table["weights"]), **FOUR_DECIMALS)


# --- lesson = production ---


@DTYPES
@SHAPES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("projected", [False, True])
def test_the_steps_lead_to_the_output_of_production(
    projected: bool, bias: bool, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(shape[-1], 6, 1, qkv_bias=bias, project=projected, head_dim=3).to(dtype)
    x = draw(*shape, dtype=dtype)
    steps = step_by_step(layer, x)
    torch.testing.assert_close(steps.output, layer(x), **TOLERANCE[dtype])
    torch.testing.assert_close(attend_pair_by_pair(layer, x), layer(x), **TOLERANCE[dtype])
    expected = attention_weights(steps.q.unsqueeze(-3), steps.k.unsqueeze(-3)).squeeze(-3)
    torch.testing.assert_close(steps.weights, expected, **TOLERANCE[dtype])
    assert steps.weights.shape == (*shape[:-1], shape[-2])
    assert steps.context.shape == (*shape[:-1], 3)


@DTYPES
@pytest.mark.parametrize("bias", [False, True])
def test_a_projection_is_a_matrix_product(bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    linear, x = nn.Linear(5, 3, bias=bias).to(dtype), draw(2, 4, 5, dtype=dtype)
    torch.testing.assert_close(project(linear, x), linear(x), **TOLERANCE[dtype])


def test_a_layer_of_matrices_can_be_trained_and_shares_nothing() -> None:
    matrices = [draw(3, 2, dtype=torch.float64, seed=seed) for seed in range(3)]
    layer = layer_of(*matrices)
    layer(draw(4, 3, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None and p.dtype == torch.float64 for p in layer.parameters())
    before = matrices[0].clone()
    with torch.no_grad():
        layer.q_proj.weight.zero_()
    assert torch.equal(matrices[0], before)


# --- why the scores are divided by sqrt(D) ---


@pytest.mark.parametrize("head_dim", [1, 4, 64])
def test_the_variance_of_a_dot_product_is_the_width(head_dim: int) -> None:
    q, k = random_queries_and_keys(head_dim, queries=2000, keys=8)
    assert q.shape == (2000, 1, head_dim)
    assert k.shape == (2000, 8, head_dim)
    assert spread(q, k, scale=1).variance == pytest.approx(head_dim, rel=0.15)
    assert spread(q, k, scale=head_dim**-0.5).variance == pytest.approx(1, rel=0.15)


def test_without_scaling_a_wide_head_is_sure_of_itself_and_learns_nothing() -> None:
    bare, scaled = [], []
    for head_dim in (4, 16, 64, 256):
        q, k = random_queries_and_keys(head_dim, queries=500, keys=8)
        bare.append(spread(q, k, scale=1))
        scaled.append(spread(q, k, scale=head_dim**-0.5))
    assert all(a.largest < b.largest and a.entropy > b.entropy for a, b in pairwise(bare))
    assert all(a.gradient > b.gradient for a, b in pairwise(bare[1:]))
    assert bare[-1].gradient < 0.2 * scaled[-1].gradient
    for first, other in pairwise(scaled):
        assert other.largest == pytest.approx(first.largest, abs=0.05)
        assert other.entropy == pytest.approx(first.entropy, abs=0.1)
        assert other.gradient == pytest.approx(first.gradient, rel=0.1)


def test_the_wrong_width_makes_the_weights_too_even() -> None:
    """Dividing by the root of the model's width in the place of the head's: the variance is D / C, not 1."""
    model_width, head_dim = 512, 64
    q, k = random_queries_and_keys(head_dim, queries=1000, keys=8)
    wrong, right = spread(q, k, scale=model_width**-0.5), spread(q, k, scale=head_dim**-0.5)
    assert wrong.variance == pytest.approx(head_dim / model_width, rel=0.15)
    assert right.entropy < wrong.entropy < math.log(8)


@pytest.mark.parametrize("scale", [1.0, 3**-0.5])
def test_how_much_weights_move_with_their_query(scale: float) -> None:
    """As autograd has it. Measured at the scores instead, the factor between them and q·k was forgotten."""
    q, k = draw(2, 4, 3, dtype=torch.float64), draw(2, 5, 3, dtype=torch.float64, seed=1)
    weights = softmax(q @ k.transpose(-2, -1) * scale)

    def norm(b: int, t: int) -> float:
        jacobian = torch.autograd.functional.jacobian(lambda query: softmax(k[b] @ query * scale), q[b, t])
        return torch.linalg.matrix_norm(jacobian).item()

    expected = [[norm(b, t) for t in range(4)] for b in range(2)]
    torch.testing.assert_close(gradient_of_queries(weights, k, scale).tolist(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient_of_queries(weights[0], k[0], scale).tolist(), expected[0], rtol=0, atol=1e-12)
    assert gradient_of_queries(torch.tensor([[0.0, 1.0, 0.0]]), draw(3, 2), scale).item() == 0.0
