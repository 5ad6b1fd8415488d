"""Chapter 9: attention in tiles and with a cache equals attention without, and what is counted is what is done."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from equality import DTYPES, assert_close, random
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from jumok.config import GPTConfig
from jumok.course.chapters import speed
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention, attention_weights
from jumok.nn.cache import LayerCache
from jumok.nn.positions import rotary

FAMILIES: dict[str, dict[str, Any]] = {
    "modern": {"family": "modern", "n_kv_head": 2},
    "classic": {"family": "classic", "head_dim": 6},
}
SHAPES = pytest.mark.parametrize("shape", FAMILIES.values(), ids=FAMILIES)


def tiny(dtype: torch.dtype = torch.float64, **changes: Any) -> GPT:
    """A model whose every parameter is random, those that begin as zero or one too."""
    torch.manual_seed(3)
    shape = {"vocab_size": 29, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16, **changes}
    model = GPT(GPTConfig(**shape)).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


# --- attention in tiles ----------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "t", "s"),
    [(2, 4, 2, 7, 7), (1, 3, 1, 5, 11), (1, 2, 1, 17, 40)],
)
def test_tiles_equal_the_production_seam(
    dtype: torch.dtype, causal: bool, size: int, batch: int, heads: int, kv_heads: int, t: int, s: int
):
    q = random(batch, heads, t, 6, dtype=dtype)
    k, v = (random(batch, kv_heads, s, 6, dtype=dtype, seed=n) for n in (1, 2))
    expected = ScaledDotProductAttention()(q, k, v, causal=causal)
    found = speed.tiled_attention(q, k, v, size=size, causal=causal)
    assert_close(found, expected)


def test_scores_of_any_size_do_not_overflow():
    """exp(1000) is infinite: only the running maximum keeps the sums finite, whether it comes first or last."""
    values = torch.eye(3, dtype=torch.float64)
    for scores in ([1000.0, 0.0, 999.0], [-1000.0, 1000.0, 1001.0]):
        row = torch.tensor([scores], dtype=torch.float64)
        seen = speed.nothing_seen(torch.zeros(1, 3, dtype=torch.float64))
        for s in range(3):
            seen = speed.see(seen, row[:, s : s + 1], values[s : s + 1])
        torch.testing.assert_close(speed.result(seen), row.softmax(-1), rtol=0, atol=1e-12)
        assert float(seen.largest) == max(scores)


def test_tiles_cover_what_is_allowed_and_nothing_that_is_not():
    for t, s, size in [(7, 7, 3), (3, 8, 2), (8, 3, 2), (1, 1, 5), (6, 6, 1)]:
        visited = torch.zeros(t, s, dtype=torch.int64)
        for queries, key_tiles in speed.tiles(t, s, size, causal=True):
            for keys in key_tiles:
                visited[queries.start : queries.stop, keys.start : keys.stop] += 1
                assert keys.start <= s - t + queries[-1], "a tile of the future"
        allowed = torch.ones(t, s, dtype=torch.bool).tril(s - t)
        assert visited.max() <= 1
        assert bool((visited.bool() | ~allowed).all())
    whole = speed.tiles(7, 5, 3)
    assert sum(len(a) * len(b) for a, many in whole for b in many) == 35


def test_the_fused_kernel_keeps_no_square_for_the_backward_pass():
    t = 64
    q, k, v = (random(1, 1, t, 4, dtype=torch.float32, seed=n).requires_grad_() for n in range(3))
    plain = speed.saved_shapes(lambda: attention_weights(q, k) @ v)
    fused = speed.saved_shapes(lambda: F.scaled_dot_product_attention(q, k, v))
    assert max(math.prod(shape) for shape in plain) == t * t
    assert 0 < max(math.prod(shape) for shape in fused) <= t * 4


# --- the cache --------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(
    "options",
    [{}, {"qkv_bias": True, "project": False}, {"n_kv_head": 1, "head_dim": 6, "qk_norm": 1e-6}],
    ids=["plain", "biases", "grouped"],
)
@torch.no_grad()
def test_attention_step_by_step_equals_production(dtype: torch.dtype, length: int, options: dict[str, Any]):
    torch.manual_seed(0)
    attention = MultiHeadAttention(10, 8, 2, **options).to(dtype)
    x = random(length, 10, dtype=dtype)
    for angles in (None, tuple(part.to(dtype) for part in rotary(length, attention.head_dim))):
        expected = attention(x, causal=True, rotary=angles)
        found = speed.attend_step_by_step(attention, x, angles)
        assert_close(found, expected)


@DTYPES
@SHAPES
@pytest.mark.parametrize("sizes", [(13,), (1,) * 13, (7, *(1,) * 6), (3, 5, 5)], ids=["whole", "ones", "prompt", "odd"])
@torch.no_grad()
def test_logits_with_a_cache_equal_those_without(dtype: torch.dtype, shape: dict[str, Any], sizes: tuple[int, ...]):
    model = tiny(dtype, **shape)
    ids = torch.randint(29, (3, 13), generator=torch.Generator().manual_seed(1))
    found = speed.logits_step_by_step(model, ids, sizes)
    assert_close(found, model(ids))


def test_step_by_step_leaves_the_mode_of_the_model_alone():
    model = tiny(dropout=0.5).train()
    ids = torch.arange(6)[None]
    first, second = (speed.logits_step_by_step(model, ids, (6,)) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


# --- what is counted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("prompt", "new"), [(1, 1), (1, 7), (5, 1), (6, 4), (11, 13)])
def test_the_formula_counts_what_the_loop_counts_and_what_the_model_does(prompt: int, new: int, cached: bool):
    expected = speed.work_by_loop(prompt, new, cached=cached)
    assert speed.work(prompt, new, cached=cached) == expected
    model = tiny(family="modern")
    assert speed.watched_work(model, list(range(prompt)), new, cached=cached) == expected


@SHAPES
@torch.no_grad()
def test_multiplications_are_those_that_torch_counts(shape: dict[str, Any]):
    """Up to 15 keys the production seam takes two plain products, which the counter knows; it counts additions too."""
    model = tiny(**shape)
    t = 11
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, t, dtype=torch.long))
    assert counter.get_total_flops() == 2 * speed.multiplications(model.config, speed.Work(t, t * t, t))


@SHAPES
@torch.no_grad()
def test_bytes_of_a_cache_are_those_it_holds(shape: dict[str, Any]):
    model = tiny(torch.bfloat16, **shape)
    cache = model.new_cache(3)
    model(torch.zeros(3, 7, dtype=torch.long), cache)

    def held(layer: LayerCache) -> int:
        nothing = torch.empty(3, model.config.n_kv_head, 0, model.config.head_dim, dtype=torch.bfloat16)
        return sum(part.numel() * part.element_size() for part in layer.append(nothing, nothing))

    total = sum(held(layer) for layer in cache.layers)
    assert total == speed.cache_bytes(model.config, 7, batch=3, dtype=torch.bfloat16)
