"""Chapter 5: stacked heads, one split projection and the production layer are the same attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from equality import DTYPES, FOUR_DECIMALS, assert_close
from torch import nn

from jumok.course.chapters.heads import (
    attend_by_heads,
    concatenate_heads,
    contributions,
    head_output,
    head_weights,
    join_heads,
    key_head,
    make_heads,
    merge,
    split,
)
from jumok.nn.attention import MultiHeadAttention, attention_weights

BATCHES = pytest.mark.parametrize("batch", [(), (3,)], ids=["alone", "three"])


# --- stacked heads ---


@DTYPES
@BATCHES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d_in", "head_dim", "n_head", "length"), [(3, 2, 2, 6), (5, 3, 1, 4), (7, 1, 5, 1)])
@pytest.mark.parametrize(("qkv_bias", "d_out"), [(False, None), (True, 4)])
def test_stacked_heads_equal_one_split_layer(
    d_in: int,
    head_dim: int,
    n_head: int,
    length: int,
    causal: bool,
    batch: tuple[int, ...],
    qkv_bias: bool,
    d_out: int | None,
    dtype: torch.dtype,
) -> None:
    """With and without output projection and biases."""
    torch.manual_seed(0)
    heads = [head.to(dtype) for head in make_heads(d_in, head_dim, n_head, qkv_bias=qkv_bias)]
    o_proj = None if d_out is None else nn.Linear(n_head * head_dim, d_out, dtype=dtype)
    x = torch.randn(*batch, length, d_in, dtype=dtype)
    side_by_side = concatenate_heads(heads, x, causal=causal)
    assert side_by_side.shape == (*batch, length, n_head * head_dim)
    expected = side_by_side if o_proj is None else o_proj(side_by_side)
    joined = join_heads(heads, o_proj)
    assert_close(joined(x, causal=causal), expected)
    assert_close(attend_by_heads(joined, x, causal=causal), expected)


def test_joining_copies() -> None:
    """The single heads stay as they are, the copy can be trained, and no random number is drawn for it."""
    heads, o_proj = make_heads(3, 2, 2), nn.Linear(4, 3)
    state = torch.random.get_rng_state()
    joined = join_heads(heads, o_proj)
    assert torch.equal(torch.random.get_rng_state(), state)
    joined(torch.randn(5, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in joined.parameters())
    with torch.no_grad():
        for parameter in joined.parameters():
            parameter.zero_()
    assert all(parameter.any() for part in (*heads, o_proj) for parameter in part.parameters())


# --- one head of the production layer ---


@BATCHES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_head", "n_kv_head"), [(1, 1), (4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "qk_norm": 1e-6}, {"head_dim": 5}, {"project": False}])
def test_head_by_head_equals_the_layer(
    n_head: int, n_kv_head: int, causal: bool, batch: tuple[int, ...], options: dict[str, Any]
) -> None:
    """Grouped heads, norms, biases, heads narrower or wider than the model."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(7, 12, n_head, n_kv_head=n_kv_head, **options).double()
    x = torch.randn(*batch, 5, 7, dtype=torch.float64)
    assert_close(attend_by_heads(attention, x, causal=causal), attention(x, causal=causal))


@DTYPES
def test_weights_of_each_head_are_those_of_the_seam(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 8, 4, n_kv_head=2).to(dtype)
    x = torch.randn(3, 5, 6, dtype=dtype)
    q, k = split(attention.q_proj(x), 4), split(attention.k_proj(x), 2)
    expected = attention_weights(q, k, causal=True)
    for h in range(4):
        assert_close(head_weights(attention, h, x, causal=True), expected[:, h])


@DTYPES
@pytest.mark.parametrize(
    "shape", [(4, 5), (1, 1, 1, 5), (2, 1, 1, 5), (2, 1, 4, 5), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str
)
def test_a_mask_of_any_shape_reaches_its_head(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 6, 3, d_context=2).to(dtype)
    x, context = torch.randn(2, 4, 6, dtype=dtype), torch.randn(2, 5, 2, dtype=dtype)
    mask = torch.rand(shape) < 0.5
    mask[..., 0, :] = False  # also queries with nothing to attend to
    for causal in (False, True):
        expected = attention(x, context, mask=mask, causal=causal)
        assert_close(attend_by_heads(attention, x, context, mask=mask, causal=causal), expected)


@pytest.mark.parametrize("g", [1, 2, 3, 6])
def test_neighbours_share_a_key_head(g: int) -> None:
    """As PyTorch's enable_gqa and repeat_interleave do it."""
    expected = torch.arange(g).repeat_interleave(6 // g).tolist()
    assert [key_head(h, 6, g) for h in range(6)] == expected


# --- splitting, merging, projecting ---


@BATCHES
def test_splitting_and_merging_are_what_the_layer_does(batch: tuple[int, ...]) -> None:
    attention = MultiHeadAttention(3, 12, 4)
    x = torch.randn(*batch, 5, 12)
    assert torch.equal(split(x, 4), attention._split(x, 4))
    assert torch.equal(merge(split(x, 4)), x)
    assert split(x, 4)[..., 1, 2, :].tolist() == x[..., 2, 3:6].tolist()


@DTYPES
@BATCHES
@pytest.mark.parametrize("out_bias", [False, True])
def test_the_output_projection_is_a_sum_over_heads(out_bias: bool, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 5, 3, head_dim=2, out_bias=out_bias).to(dtype)
    x = torch.randn(*batch, 4, 6, dtype=dtype)
    merged = torch.cat([head_output(attention, h, x) for h in range(3)], dim=-1)
    parts = contributions(attention, merged)
    assert parts.shape == (*batch, 3, 4, 5)
    total = parts.sum(dim=-3)
    assert attention.o_proj is not None
    assert_close(total if attention.o_proj.bias is None else total + attention.o_proj.bias, attention(x))


# --- published tables ---


def test_table_of_stacked_heads(published: dict[str, Any]) -> None:
    """Two causal single heads made one after the other, on a batch of the inputs twice."""
    x = torch.tensor(published["inputs"]).expand(2, -1, -1)  # (2, 6, 3)
    torch.manual_seed(123)
    heads = make_heads(3, 2, 2)
    expected = torch.tensor(published["stacked_heads"]["context"]).expand(2, -1, -1)  # (2, 6, 4)
    torch.testing.assert_close(concatenate_heads(heads, x, causal=True), expected, **FOUR_DECIMALS)
    torch.testing.assert_close(join_heads(heads)(x, causal=True), expected, **FOUR_DECIMALS)
