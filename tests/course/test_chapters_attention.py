"""Chapters 2 to 15: attention by loops, by hand and head by head is that of production.

That they compute the published tables is seen where the chapters run (test_learn.py, test_published_tables.py).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from equality import assert_close, random
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BlockConfig, RungConfig
from jumok.course.chapters import averaging, cross_attention, dot_product, heads, masked_attention, projections
from jumok.models.rung import Rung
from jumok.nn.attention import MultiHeadAttention, attention_weights, causal_mask
from jumok.nn.blocks import Block
from jumok.nn.layers import Dropout

SHAPES = pytest.mark.parametrize("shape", [(1, 3), (2, 5, 12)], ids=str)  # (T, C) or (B, T, C)


def layer(*sizes: int, **options: Any) -> MultiHeadAttention:
    torch.manual_seed(1)
    return MultiHeadAttention(*sizes, **options).double()


# --- 1: averages ---


@SHAPES
def test_every_average_of_the_past_is_the_same(shape: tuple[int, ...]) -> None:
    """Also that of the rung of the ladder, and of attention whose queries are silent."""
    x = random(*shape)
    expected = averaging.average_by_loop(x)
    for average in (averaging.average_by_running_mean, averaging.average_by_matrix, averaging.average_by_softmax):
        assert_close(average(x), expected)
    assert_close(expected[..., -1, :], x.mean(dim=-2))
    attention = layer(shape[-1], 6, 3, qkv_bias=True)
    assert averaging.silence_queries(attention) is attention
    assert attention.o_proj is not None
    assert_close(attention(x, causal=True), attention.o_proj(averaging.average_by_loop(attention.v_proj(x))))


def test_the_averaging_rung_of_the_ladder_is_this_average() -> None:
    model = Rung(RungConfig(vocab_size=11, n_layer=1, n_head=2, n_embd=8, context_length=8, mixing="average")).double()
    x = random(2, 7, 8)
    assert_close(model.blocks[0].attention(x, causal=True), averaging.average_by_loop(x))


def test_weights_of_scores_are_those_of_production() -> None:
    q, k = random(6, 4), random(6, 4, seed=1)
    assert_close(averaging.weights_by_softmax(q @ k.T / 2), attention_weights(q[None], k[None], causal=True)[0])
    assert averaging.triangle(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert_close(averaging.normalise_rows(averaging.triangle(3)).sum(dim=-1), torch.ones(3))


# --- 2: dot products ---


@SHAPES
def test_dot_product_attention_by_loop_is_that_of_production(shape: tuple[int, ...]) -> None:
    """Up to the root of the width, by which production divides."""
    q, k, v = random(*shape), random(*shape, seed=1), random(*shape[:-1], 2, seed=2)
    scores = dot_product.scores_by_product(q, k)
    assert_close(dot_product.scores_by_loop(q, k), scores)
    one_head = [tensor.unsqueeze(-3) for tensor in (q * math.sqrt(shape[-1]), k)]
    weights = attention_weights(*one_head).squeeze(-3)
    assert_close(dot_product.softmax(scores), weights)
    assert_close(dot_product.attend_by_loop(q, k, v), weights @ v)
    assert_close(dot_product.attend(q, k, v), weights @ v)
    assert_close(dot_product.plain_attention(shape[-1], torch.float64)(q), dot_product.attend(q, q, q))


def test_the_formula_overflows_and_the_cure_does_not() -> None:
    """float32 ends at about 3.4e38, and exp(89) is 4.5e38."""
    scores = torch.tensor([[89.0, 88.0, 0.0]])
    assert dot_product.softmax_by_formula(scores).isnan().tolist() == [[True, False, False]]
    assert_close(dot_product.softmax(scores), scores.softmax(dim=-1))
    assert_close(dot_product.softmax_by_formula(scores.double()), scores.double().softmax(dim=-1))


def test_the_jacobian_is_that_of_autograd() -> None:
    scores = random(2, 4)
    found = dot_product.softmax_jacobian(scores.softmax(dim=-1))
    for row, jacobian in zip(scores, found, strict=True):
        assert_close(jacobian, torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), row))


def test_entropy_counts_the_keys_that_matter() -> None:
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert_close(dot_product.entropy(weights).exp(), torch.tensor([4.0, 2.0, 1.0]))


# --- 3: queries, keys, values ---


@SHAPES
@pytest.mark.parametrize("projected", [False, True])
def test_the_steps_lead_to_the_output_of_production(projected: bool, shape: tuple[int, ...]) -> None:
    attention = layer(shape[-1], 6, 1, qkv_bias=projected, project=projected, head_dim=3)
    x = random(*shape)
    steps = projections.step_by_step(attention, x)
    assert_close(steps.output, attention(x))
    assert_close(projections.attend_pair_by_pair(attention, x), attention(x))
    assert_close(projections.project(attention.q_proj, x), steps.q)
    assert_close(steps.weights, attention_weights(steps.q.unsqueeze(-3), steps.k.unsqueeze(-3)).squeeze(-3))


def test_a_layer_of_matrices_can_be_trained_and_shares_nothing() -> None:
    matrices = [random(3, 2, seed=seed) for seed in range(3)]
    attention = projections.layer_of(*matrices)
    attention(random(4, 3)).sum().backward()
    assert all(p.grad is not None and p.dtype == torch.float64 for p in attention.parameters())
    with torch.no_grad():
        attention.q_proj.weight.zero_()
    assert torch.equal(matrices[0], random(3, 2, seed=0))


def test_without_scaling_a_wide_head_is_sure_of_itself_and_learns_nothing() -> None:
    bare, scaled = [], []
    for head_dim in (4, 16, 64, 256):
        q, k = projections.random_queries_and_keys(head_dim, queries=500, keys=8)
        bare.append(projections.spread(q, k, scale=1))
        scaled.append(projections.spread(q, k, scale=head_dim**-0.5))
        assert bare[-1].variance == pytest.approx(head_dim, rel=0.15)
    assert all(a.largest < b.largest and a.entropy > b.entropy for a, b in pairwise(bare))
    assert bare[-1].gradient < 0.2 * scaled[-1].gradient
    for first, other in pairwise(scaled):
        assert other.entropy == pytest.approx(first.entropy, abs=0.1)
        assert other.gradient == pytest.approx(first.gradient, rel=0.1)


@pytest.mark.parametrize("scale", [1.0, 3**-0.5])
def test_how_much_weights_move_with_their_query(scale: float) -> None:
    """As autograd has it. Measured at the scores instead, the factor between them and q·k was forgotten."""
    q, k = random(4, 3), random(5, 3, seed=1)
    found = projections.gradient_of_queries(dot_product.softmax(q @ k.T * scale), k, scale)
    for query, norm in zip(q, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda each: dot_product.softmax(k @ each * scale), query)
        assert_close(norm, torch.linalg.matrix_norm(jacobian))


# --- 4: masks and dropout ---


@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 7), (5, 2)])
def test_all_ways_of_masking_are_that_of_production(t: int, s: int) -> None:
    """More queries than keys leave the first rows empty, where only one way has no NaN."""
    q, k = random(2, 3, t, 3), random(2, 3, s, 3, seed=1)
    scores, mask = q @ k.transpose(-2, -1) / 3**0.5, causal_mask(t, s)
    expected = attention_weights(q, k, causal=True)
    assert_close(masked_attention.masked_weights(scores, mask), expected)
    assert_close(masked_attention.mask_scores(scores, mask), scores.masked_fill(~mask, -math.inf))
    full = mask.any(dim=-1)
    for way in (masked_attention.weights_masked_before, masked_attention.weights_masked_after):
        weights = way(scores, mask)
        assert_close(weights[..., full, :], expected[..., full, :])
        assert weights[..., ~full, :].isnan().all()


@SHAPES
def test_one_causal_head_by_steps_is_the_layer(shape: tuple[int, ...]) -> None:
    attention, x = layer(shape[-1], 5, 1, qkv_bias=True), random(*shape)
    assert_close(masked_attention.causal_attention_by_loop(attention, x), attention(x, causal=True))
    assert attention.o_proj is not None
    head = masked_attention.causal_weights(attention, x) @ attention.v_proj(x)
    assert_close(attention.o_proj(head), attention(x, causal=True))


def test_drop_is_what_both_dropouts_do() -> None:
    """The same seed keeps the same elements, whatever the values are; the rest is `drop`."""
    weights = random(3, 5, 7).softmax(dim=-1)
    for dropout in (Dropout(0.25).train(), lambda x: F.dropout(x, 0.25)):
        torch.manual_seed(3)
        kept = dropout(torch.ones_like(weights)) != 0
        torch.manual_seed(3)
        assert_close(masked_attention.drop(weights, kept, 0.25), dropout(weights))


def test_influence_finds_the_triangle() -> None:
    attention, x = layer(4, 7, 1), random(2, 5, 4)
    assert torch.equal(masked_attention.influence(lambda y: attention(y, causal=True), x), causal_mask(5, 5))
    assert masked_attention.influence(attention, x).all()


# --- 5: heads ---


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("qkv_bias", "d_out"), [(False, None), (True, 4)])
def test_stacked_heads_are_one_split_layer(causal: bool, qkv_bias: bool, d_out: int | None) -> None:
    single = [head.double() for head in heads.make_heads(3, 2, 5, qkv_bias=qkv_bias)]
    o_proj = None if d_out is None else nn.Linear(10, d_out, dtype=torch.float64)
    x = random(2, 6, 3)
    side_by_side = heads.concatenate_heads(single, x, causal=causal)
    expected = side_by_side if o_proj is None else o_proj(side_by_side)
    state = torch.random.get_rng_state()
    joined = heads.join_heads(single, o_proj)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_close(joined(x, causal=causal), expected)
    with torch.no_grad():
        for parameter in joined.parameters():
            parameter.zero_()
    assert all(parameter.any() for head in single for parameter in head.parameters()), "they were copied"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_head", "n_kv_head"), [(1, 1), (4, 2), (6, 1)])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "qk_norm": 1e-6}, {"head_dim": 5}, {"project": False}])
def test_head_by_head_is_the_layer(n_head: int, n_kv_head: int, causal: bool, options: dict[str, Any]) -> None:
    """Grouped heads, norms, biases, heads narrower or wider than the model."""
    attention, x = layer(7, 12, n_head, n_kv_head=n_kv_head, **options), random(2, 5, 7)
    assert_close(heads.attend_by_heads(attention, x, causal=causal), attention(x, causal=causal))
    assert [heads.key_head(h, 6, 2) for h in range(6)] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("shape", [(4, 5), (2, 1, 1, 5), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str)
def test_a_mask_of_any_shape_reaches_its_head(shape: tuple[int, ...]) -> None:
    attention, x, context = layer(6, 6, 3, d_context=2), random(2, 4, 6), random(2, 5, 2)
    mask = random(*shape) < 0
    mask[..., 0, :] = False  # also queries with nothing to attend to
    for causal in (False, True):
        expected = attention(x, context, mask=mask, causal=causal)
        assert_close(heads.attend_by_heads(attention, x, context, mask=mask, causal=causal), expected)


def test_the_parts_of_heads_are_those_of_the_layer() -> None:
    attention, x = layer(6, 8, 4, n_kv_head=2, out_bias=True), random(3, 5, 6)
    q, k = heads.split(attention.q_proj(x), 4), heads.split(attention.k_proj(x), 2)
    expected = attention_weights(q, k, causal=True)
    for h in range(4):
        assert_close(heads.head_weights(attention, h, x, causal=True), expected[:, h])
    assert torch.equal(heads.merge(q), attention.q_proj(x))
    merged = torch.cat([heads.head_output(attention, h, x) for h in range(4)], dim=-1)
    assert attention.o_proj is not None
    assert_close(heads.contributions(attention, merged).sum(dim=-3) + attention.o_proj.bias, attention(x))


# --- 6: across ---

KINDS: dict[str, dict[str, Any]] = {
    "paper": {"activation": "relu", "pre_norm": False},
    "modern": {"activation": "silu", "gated": True, "norm": "rms", "qk_norm": True, "qkv_bias": False, "n_kv_head": 1},
    "bare": {"activation": "relu", "norm": "none", "residual": False, "mlp_width": 0},
}


def sequences(*lengths: int) -> list[Tensor]:
    return [random(length, 6, seed=length) for length in lengths]


@pytest.mark.parametrize(("t", "s"), [(3, 5), (5, 3)])
@pytest.mark.parametrize("options", [{"n_kv_head": 2}, {"qkv_bias": True, "project": False}, {"head_dim": 3}])
def test_cross_attention_by_loop_is_the_layer(t: int, s: int, options: dict[str, Any]) -> None:
    attention = layer(5, 8, 4, d_context=7, **options)
    for x, context in ((random(t, 5), random(s, 7)), (random(2, t, 5), random(2, s, 7))):
        assert_close(cross_attention.cross_attention_by_loop(attention, x, context), attention(x, context))


def test_pad_fills_up_and_tells_what_is_real() -> None:
    batch, mask = cross_attention.pad([torch.ones(1, 2), torch.ones(3, 2)], value=9.0)
    assert batch.tolist() == [[[1, 1], [9, 9], [9, 9]], [[1, 1], [1, 1], [1, 1]]]
    assert mask.tolist() == [[[[True, False, False]]], [[[True, True, True]]]]


@pytest.mark.parametrize("filling", [0.0, 100.0])
@pytest.mark.parametrize("causal", [False, True])
def test_padded_is_as_alone(causal: bool, filling: float) -> None:
    attention, alone = layer(6, 6, 2), sequences(4, 1, 7)
    batch, mask = cross_attention.pad(alone, filling)
    for row, sequence in zip(attention(batch, mask=mask, causal=causal), alone, strict=True):
        assert_close(row[: sequence.shape[0]], attention(sequence, causal=causal))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_blocks_by_steps_are_the_blocks(masked: bool, kind: str) -> None:
    torch.manual_seed(0)
    fields = {"width": 6, "n_head": 3, "n_kv_head": 3, "head_dim": 2, "mlp_width": 10, **KINDS[kind]}
    encoder, decoder = (Block(BlockConfig(**fields), causal=x, cross=x).double() for x in (False, True))
    source, mask = cross_attention.pad(sequences(5, 3))
    target = torch.stack(sequences(4, 4))
    chosen = mask if masked else None
    encoded = encoder(source, mask=chosen)
    assert_close(cross_attention.encoder_block(encoder, source, mask=chosen), encoded)
    expected = decoder(target, context=encoded, context_mask=chosen)
    assert_close(cross_attention.decoder_block(decoder, target, encoded, context_mask=chosen), expected)
