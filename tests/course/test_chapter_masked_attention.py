"""Chapter 4: masking by hand equals the seam, with -inf and with loops; the mistakes are mistakes."""

from __future__ import annotations

import platform
from typing import Any

import pytest
import torch
from equality import DTYPES, FOUR_DECIMALS, assert_close
from torch import Tensor
from torch.nn import functional as F

from jumok.course.chapters.masked_attention import (
    causal_attention_by_loop,
    causal_weights,
    drop,
    influence,
    mask_scores,
    masked_weights,
    weights_masked_after,
    weights_masked_before,
)
from jumok.course.chapters.projections import step_by_step
from jumok.nn.attention import MultiHeadAttention, attention_weights, causal_mask
from jumok.nn.layers import Dropout

SHAPES = pytest.mark.parametrize("shape", [(1, 3), (3, 4, 7)], ids=str)  # (T, C) or (B, T, C)


def one_head(d_in: int, dtype: torch.dtype, seed: int = 1, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(seed)
    return MultiHeadAttention(d_in, 2 * d_in - 1, 1, **options).to(dtype)


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5


# --- equal to production ---


@DTYPES
@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 5), (1, 4), (3, 7), (5, 2)])
@pytest.mark.parametrize("heads", [1, 3])
def test_all_ways_of_masking_are_the_seam(heads: int, t: int, s: int, dtype: torch.dtype) -> None:
    """Also with fewer or more queries than keys; more leave the first rows empty, where only one way has no NaN."""
    torch.manual_seed(0)
    q, k = torch.randn(2, heads, t, 3, dtype=dtype), torch.randn(2, heads, s, 3, dtype=dtype)
    scores, mask = scaled_scores(q, k), causal_mask(t, s)
    expected = attention_weights(q, k, causal=True)
    assert_close(masked_weights(scores, mask), expected)
    full = mask.any(dim=-1)
    for way in (weights_masked_before, weights_masked_after):
        weights = way(scores, mask)
        assert_close(weights[..., full, :], expected[..., full, :])
        assert weights[..., ~full, :].isnan().all()


@DTYPES
@SHAPES
@pytest.mark.parametrize("bias", [False, True])
def test_one_head_by_steps_equals_the_layer(bias: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    attention = one_head(shape[-1], dtype, qkv_bias=bias, project=bias)
    x = torch.randn(shape, dtype=dtype)
    assert_close(causal_attention_by_loop(attention, x), attention(x, causal=True))
    head = causal_weights(attention, x) @ attention.v_proj(x)
    assert_close(head if attention.o_proj is None else attention.o_proj(head), attention(x, causal=True))


@DTYPES
def test_empty_rows_are_zero_and_a_nan_stays(dtype: torch.dtype) -> None:
    scores = torch.zeros(3, 3, dtype=dtype)
    scores[2, 1] = float("nan")
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[0] = False
    weights = masked_weights(scores, mask)
    assert weights[0].tolist() == [0, 0, 0]
    assert_close(weights[1], torch.full((3,), 1 / 3, dtype=dtype))
    assert weights[2].isnan().all()


# --- dropout ---


@DTYPES
@pytest.mark.parametrize("rate", [0.25, 0.5, 0.75])  # multiples of 1/256, which production keeps exactly on CPUs
def test_drop_is_what_both_dropouts_do(rate: float, dtype: torch.dtype) -> None:
    """The same seed keeps the same elements, whatever the values are; the rest is `drop`."""
    torch.manual_seed(0)
    weights = torch.rand(3, 5, 7, dtype=dtype).softmax(dim=-1)
    for dropout in (Dropout(rate).train(), lambda x: F.dropout(x, rate)):
        torch.manual_seed(3)
        kept = dropout(torch.ones_like(weights)) != 0
        torch.manual_seed(3)
        assert_close(drop(weights, kept, rate), dropout(weights))
        assert kept.any()
        assert not kept.all()


@DTYPES
def test_a_layer_in_training_drops_weights(dtype: torch.dtype) -> None:
    """Not outputs: what is dropped is a whole connection between two positions."""
    attention = one_head(3, dtype, project=False, dropout=0.5).train()
    x = torch.randn(2, 6, 3, dtype=dtype)
    weights = causal_weights(attention, x)
    torch.manual_seed(4)
    out = attention(x, causal=True)
    torch.manual_seed(4)
    kept = attention.attend.dropout(torch.ones(2, 1, 6, 6)) != 0
    assert_close(out, drop(weights, kept[:, 0], 0.5) @ attention.v_proj(x))
    assert not torch.allclose(out, attention.eval()(x, causal=True))


# --- influence ---


@DTYPES
@SHAPES
def test_influence_finds_the_triangle(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    attention = one_head(shape[-1], dtype)
    x, t = torch.randn(shape, dtype=dtype), shape[-2]
    assert torch.equal(influence(lambda y: attention(y, causal=True), x), causal_mask(t, t))
    assert influence(attention, x).all()


# --- published tables ---


@pytest.fixture
def layer_and_table(published: dict[str, Any]) -> tuple[MultiHeadAttention, Tensor, dict[str, Any]]:
    torch.manual_seed(789)
    attention = MultiHeadAttention(3, 2, 1, project=False)
    return attention, torch.tensor(published["inputs"]), published["self_attention_linear"]


def numbers(table: list[list[Any]]) -> Tensor:
    return torch.tensor([[float(value) for value in row] for row in table])


def test_table_of_masked_scores(layer_and_table: tuple[MultiHeadAttention, Tensor, dict[str, Any]]) -> None:
    attention, x, table = layer_and_table
    masked = mask_scores(step_by_step(attention, x).scores, causal_mask(6, 6))
    torch.testing.assert_close(masked, numbers(table["masked_scores"]), **FOUR_DECIMALS)


@pytest.mark.parametrize("way", [weights_masked_before, weights_masked_after, masked_weights])
def test_table_of_causal_weights(layer_and_table: tuple[MultiHeadAttention, Tensor, dict[str, Any]], way: Any) -> None:
    attention, x, table = layer_and_table
    expected = numbers(table["causal_weights"])
    torch.testing.assert_close(causal_weights(attention, x), expected, **FOUR_DECIMALS)
    torch.testing.assert_close(way(step_by_step(attention, x).scaled, causal_mask(6, 6)), expected, **FOUR_DECIMALS)


def test_tables_of_dropout(
    published: dict[str, Any], layer_and_table: tuple[MultiHeadAttention, Tensor, dict[str, Any]]
) -> None:
    """What is kept may differ from platform to platform, but for that of the tables; what becomes of it may not."""
    attention, x, _ = layer_and_table
    weights = causal_weights(attention, x)
    torch.manual_seed(123)
    of_ones = F.dropout(torch.ones(6, 6), 0.5)
    torch.manual_seed(123)
    of_weights = F.dropout(weights, 0.5)
    assert set(of_ones.unique().tolist()) == {0.0, 2.0}
    assert_close(drop(weights, of_ones != 0, 0.5), of_weights)
    # With the published choice of elements instead of this platform's:
    kept = numbers(published["dropout"]["of_ones"]) != 0
    expected = numbers(published["dropout"]["of_causal_weights"])
    torch.testing.assert_close(drop(weights, kept, 0.5), expected, rtol=0, atol=1.01e-4)  # twice a rounded number
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        assert torch.equal(of_ones != 0, kept)
        torch.testing.assert_close(of_weights, expected, rtol=0, atol=1.01e-4)
