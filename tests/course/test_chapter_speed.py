"""Chapter 14: attention in tiles and with a cache is attention, and what is counted is what is computed."""

from __future__ import annotations

import pytest
import torch
from equality import assert_close, random
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from jumok import GPT, GPTConfig
from jumok.course.chapters import speed
from jumok.course.chapters.gpt import GPT as OwnGPT  # of chapter 9
from jumok.nn.attention import ScaledDotProductAttention, attention_weights


@pytest.mark.parametrize("size", [1, 4, 100])
def test_tiles_are_the_attention_of_production(size: int) -> None:
    q, k, v = random(2, 4, 11, 6), random(2, 4, 11, 6, seed=1), random(2, 4, 11, 6, seed=2)
    assert_close(speed.tiled_attention(q, k, v, size), ScaledDotProductAttention()(q, k, v, causal=True))


def test_scores_of_any_size_do_not_overflow() -> None:
    """exp(1000) is infinite: only the running maximum keeps the sums finite, whether it comes first or last."""
    values = torch.eye(3, dtype=torch.float64)
    for scores in ([1000.0, 0.0, 999.0], [-1000.0, 1000.0, 1001.0]):
        row = torch.tensor([scores], dtype=torch.float64)
        seen = speed.nothing_seen(torch.zeros(1, 3, dtype=torch.float64))
        for s in range(3):
            seen = speed.see(seen, row[:, s : s + 1], values[s : s + 1])
        assert_close(seen.gathered / seen.total[..., None], row.softmax(-1))


def test_the_fused_kernel_keeps_no_square_for_the_backward_pass() -> None:
    t = 64
    q, k, v = (random(1, 1, t, 4, dtype=torch.float32, seed=n).requires_grad_() for n in range(3))
    assert speed.largest_saved(lambda: attention_weights(q, k) @ v) == t * t
    assert speed.largest_saved(lambda: F.scaled_dot_product_attention(q, k, v)) <= t * 4


@pytest.mark.parametrize("sizes", [(1,) * 13, (7, *(1,) * 6), (3, 5, 5)], ids=["ones", "prompt", "odd"])
def test_logits_with_a_cache_are_those_without(sizes: tuple[int, ...]) -> None:
    """And those of production, whose cache works in another way."""
    own, ids = OwnGPT(23, 16, n_layer=2, n_head=2, n_embd=8).double(), torch.randint(23, (3, 13))
    production = GPT(GPTConfig(vocab_size=23, context_length=16, n_layer=2, n_head=2, n_embd=8, family="classic"))
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.3)
    production.double().load_state_dict(own.state_dict())
    caches, cache, start = [speed.KVCache(), speed.KVCache()], production.new_cache(3), 0
    for piece in ids.split(list(sizes), dim=1):
        found = speed.logits_with_cache(own, piece, caches, start)
        start += piece.shape[1]
        assert_close(found, own(ids)[:, start - piece.shape[1] : start])
        assert_close(found, production(piece, cache))
    cached, plain = (speed.continue_greedily(own, ids[:, :4], 9, cached) for cached in (True, False))
    assert torch.equal(cached, plain)
    assert cached.shape == (3, 13)


@pytest.mark.parametrize("cached", [True, False])
def test_multiplications_are_those_that_pytorch_counts(cached: bool) -> None:
    """torch counts additions too; the logits of the whole text are computed, of which generation needs the last."""
    own = OwnGPT(23, 16, n_layer=2, n_head=2, n_embd=8)
    with FlopCounterMode(display=False) as counter:
        speed.continue_greedily(own, torch.zeros(1, 4, dtype=torch.long), 3, cached)
    positions, _ = speed.work(4, 3, cached)
    not_needed = (positions - 3) * 8 * 23
    assert counter.get_total_flops() == 2 * (speed.multiplications(2, 8, 23, 4, 3, cached) + not_needed)


def test_the_bytes_of_a_cache_are_counted() -> None:
    own, caches = OwnGPT(23, 16, n_layer=2, n_head=2, n_embd=8), [speed.KVCache(), speed.KVCache()]
    speed.logits_with_cache(own, torch.zeros(1, 7, dtype=torch.long), caches, 0)
    held = sum(part.numel() for cache in caches for part in (*cache.keys, *cache.values))
    assert 4 * held == speed.cache_bytes(2, 2, 4, 7, bytes_each=4)
