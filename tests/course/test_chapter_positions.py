"""Chapter 8: positions by loops are those of production, in both families, and what is said of order holds."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from equality import DTYPES, assert_close, random
from torch import Tensor

from jumok.config import GPTConfig
from jumok.course.chapters.block_parts import apply_norm, run_block
from jumok.course.chapters.positions import (
    attend_with_rotary,
    embed,
    frequency,
    rotate_as_complex,
    rotate_by_loop,
    scores_everywhere,
    sinusoidal_by_loop,
)
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.positions import rotary, rotate, sinusoidal


def tiny(family: str, dtype: torch.dtype) -> GPT:
    """Two layers, three heads that share one key head where that exists, and random parameters throughout."""
    torch.manual_seed(0)
    grouped = {"n_kv_head": 1} if family == "modern" else {}
    config = GPTConfig(
        vocab_size=11, context_length=9, family=family, n_layer=2, n_head=3, n_embd=10, head_dim=4, **grouped
    )
    model = build(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


# --- tables ---


@pytest.mark.parametrize("width", [1, 2, 7, 16])
@pytest.mark.parametrize("base", [10_000.0, 100.0])
def test_sinusoidal_table_number_by_number(width: int, base: float) -> None:
    """Near the start float32 has nothing to lose; far out its angles are as coarse as the position itself."""
    near = sinusoidal_by_loop(6, width, base=base)
    torch.testing.assert_close(near.float(), sinusoidal(6, width, base=base), rtol=0, atol=1e-6)
    far = sinusoidal_by_loop(500, width, base=base)
    torch.testing.assert_close(far.float(), sinusoidal(500, width, base=base), rtol=0, atol=500 * 2.4e-7)


def test_dot_products_of_the_sinusoidal_table_depend_on_the_distance() -> None:
    table = sinusoidal_by_loop(20, 8)
    products = table @ table.T
    for distance in range(20):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-12)
        wanted = math.fsum(math.cos(distance * frequency(i, 8)) for i in range(4))
        assert float(diagonal[0]) == pytest.approx(wanted, abs=1e-12)


@DTYPES
@pytest.mark.parametrize("family", ["classic", "modern"])
@pytest.mark.parametrize("start", [0, 4])
def test_embedding_is_what_the_first_block_gets(family: str, start: int, dtype: torch.dtype) -> None:
    """Also in the middle of a text, when a cache holds what came before."""
    model = tiny(family, dtype)
    ids = torch.randint(11, (2, start + 3))
    caught: list[Tensor] = []
    cache = model.new_cache(2)
    with torch.no_grad():
        if start:
            model(ids[:, :start], cache)
        handle = model.blocks[0].register_forward_pre_hook(lambda block, inputs: caught.append(inputs[0]))
        model(ids[:, start:], cache)
        handle.remove()
        assert_close(embed(ids[:, start:], model.token_embedding, model.position_embedding, start), caught[0])


# --- rotary ---


@DTYPES
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (1, 1, 1, 2), (3, 7, 10)])
def test_rotation_by_loop_and_by_complex_numbers(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = random(*shape, dtype=dtype)
    cos, sin = rotary(shape[-2], shape[-1])
    expected = rotate(x, cos, sin)
    assert_close(rotate_by_loop(x, cos, sin), expected)
    assert_close(rotate_as_complex(x, cos, sin), expected)
    torch.testing.assert_close(expected.norm(dim=-1), x.norm(dim=-1), rtol=1e-5, atol=1e-5)


def test_rotary_angles_are_positions_times_frequencies() -> None:
    cos, sin = rotary(5, 6, base=100.0)
    for t in range(5):
        for column in range(6):
            angle = t * frequency(column % 3, 6, 100.0)
            assert float(cos[t, column]) == pytest.approx(math.cos(angle), abs=1e-6)
            assert float(sin[t, column]) == pytest.approx(math.sin(angle), abs=1e-6)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    torch.manual_seed(2)
    q, k = torch.randn(2, 8)
    scores = scores_everywhere(q, k, *rotary(12, 8))
    for distance in range(-11, 12):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)
    assert float(scores[0].std()) > 0.1  # and it does depend on it


@DTYPES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("n_head", "n_kv_head", "qk_norm", "project"),
    [(1, 1, None, True), (3, 3, 1e-6, True), (4, 2, 1e-6, True), (3, 1, None, False)],
)
@pytest.mark.parametrize("shape", [(2, 5, 6), (1, 1, 6), (5, 6)])
def test_attention_with_rotary_positions(
    shape: tuple[int, ...],
    n_head: int,
    n_kv_head: int,
    qk_norm: float | None,
    project: bool,
    causal: bool,
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(
        6, 6, n_head, n_kv_head=n_kv_head, head_dim=4, qk_norm=qk_norm, project=project, qkv_bias=True
    ).to(dtype)
    x = random(*shape, dtype=dtype)
    cos, sin = rotary(shape[-2], 4)
    assert_close(
        attend_with_rotary(attention, x, cos, sin, causal=causal), attention(x, causal=causal, rotary=(cos, sin))
    )


@DTYPES
@pytest.mark.parametrize("length", [1, 2, 9])
def test_whole_gpt_of_each_family(length: int, dtype: torch.dtype) -> None:
    ids = torch.randint(11, (2, length), generator=torch.Generator().manual_seed(3))
    classic = tiny("classic", dtype)
    x = embed(ids, classic.token_embedding, classic.position_embedding)
    for block in classic.blocks:
        x = run_block(block, x)
    assert_close(classic.head(apply_norm(classic.norm, x)), classic(ids))

    modern = tiny("modern", dtype)
    assert modern.cos is not None
    assert modern.sin is not None
    cos, sin = modern.cos[:length], modern.sin[:length]
    x = embed(ids, modern.token_embedding)
    for block in modern.blocks:
        x = run_block(block, x, partial(attend_with_rotary, block.attention, cos=cos, sin=sin, causal=True))
    assert_close(modern.head(apply_norm(modern.norm, x)), modern(ids))
