"""Chapter 1: every way to average the past gives the same numbers, and the production layer is one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from jumok.config import RungConfig
from jumok.course.chapters.averaging import (
    average_by_loop,
    average_by_matrix,
    average_by_running_mean,
    average_by_softmax,
    normalise_rows,
    silence_queries,
    triangle,
    weights_by_softmax,
)
from jumok.models.rung import Rung
from jumok.nn.attention import MultiHeadAttention, attention_weights

TOLERANCE = {torch.float32: {"rtol": 0, "atol": 1e-6}, torch.float64: {"rtol": 0, "atol": 1e-12}}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
SHAPES = pytest.mark.parametrize("shape", [(1, 3), (7, 5), (2, 1, 4), (3, 6, 1), (2, 5, 12)], ids=str)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_the_published_table(published: dict[str, Any]) -> None:
    table = published["averaging"]
    a, b = triangle(3), torch.tensor(table["b"], dtype=torch.float32)
    assert a.tolist() == table["a"]
    assert (a @ b).tolist() == table["a_at_b"]
    torch.testing.assert_close(normalise_rows(a), weights_by_softmax(a))
    torch.testing.assert_close(weights_by_softmax(a) @ b, average_by_loop(b))


@DTYPES
@SHAPES
@pytest.mark.parametrize("average", [average_by_running_mean, average_by_matrix, average_by_softmax])
def test_every_way_gives_the_same(average, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = draw(*shape, dtype=dtype)
    out = average(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, average_by_loop(x), **TOLERANCE[dtype])
    last = x.mean(dim=-2)  # the last position has seen everything
    torch.testing.assert_close(out[..., -1, :], last, **TOLERANCE[dtype])


@DTYPES
def test_unequal_scores_are_the_attention_of_production(dtype: torch.dtype) -> None:
    """Nothing about these weights is special to averages."""
    q, k = draw(6, 4, dtype=dtype), draw(6, 4, dtype=dtype, seed=1)
    expected = attention_weights(q[None], k[None], causal=True)[0]
    torch.testing.assert_close(weights_by_softmax(q @ k.T / 2), expected, **TOLERANCE[dtype])


@DTYPES
@SHAPES
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_attention_with_silent_queries_averages(
    heads: int, project: bool, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(5)
    layer = MultiHeadAttention(shape[-1], 6, heads, project=project, qkv_bias=True).to(dtype)
    x = draw(*shape, dtype=dtype)
    assert silence_queries(layer) is layer
    averages = average_by_matrix(layer.v_proj(x))
    expected = averages if layer.o_proj is None else layer.o_proj(averages)
    torch.testing.assert_close(layer(x, causal=True), expected, **TOLERANCE[dtype])


@DTYPES
def test_the_averaging_rung_of_the_ladder_is_this_average(dtype: torch.dtype) -> None:
    model = Rung(RungConfig(vocab_size=11, n_layer=1, n_head=2, n_embd=8, context_length=8, mixing="average")).to(dtype)
    x = draw(2, 7, 8, dtype=dtype)
    out = model.blocks[0].attention(x, causal=True)
    torch.testing.assert_close(out, average_by_loop(x), **TOLERANCE[dtype])


def test_no_average_looks_ahead() -> None:
    """A change of the last position moves the last average only."""
    x = draw(6, 3)
    changed = x.clone()
    changed[-1] += 10
    for average in (average_by_loop, average_by_running_mean, average_by_matrix, average_by_softmax):
        before, after = average(x), average(changed)
        assert torch.equal(before[:-1], after[:-1])
        assert not torch.allclose(before[-1], after[-1])
