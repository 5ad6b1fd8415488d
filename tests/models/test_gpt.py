"""GPT compared with `transformers` with the same random parameters, with and without a cache; initialisation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import GPTConfig, count_constants
from jumok.models.gpt import GPT, token_losses

SHAPES: dict[str, dict[str, Any]] = {
    "modern": {"family": "modern"},
    "modern grouped": {"family": "modern", "n_kv_head": 2},
    "modern one kv head": {"family": "modern", "n_kv_head": 1, "head_dim": 6, "tie_embeddings": False},
    "modern other base": {"family": "modern", "rope_theta": 500.0, "norm_eps": 1e-4, "mlp_width": 10},
    "classic": {"family": "classic"},
    "classic untied": {"family": "classic", "tie_embeddings": False, "activation": "relu"},
    "classic other norm": {"family": "classic", "norm_eps": 1e-3, "mlp_width": 24},
}


def tiny(seed: int = 0, **changes: Any) -> GPT:
    """A small float64 model with random parameters, also those that are initialised to zero or one."""
    torch.manual_seed(seed)
    shape = {"vocab_size": 37, "context_length": 12, "n_layer": 2, "n_head": 4, "n_embd": 16, **changes}
    model = GPT(GPTConfig(**shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def some_ids(batch: int = 3, length: int = 12, vocab: int = 37) -> Tensor:
    return torch.randint(vocab, (batch, length), generator=torch.Generator().manual_seed(11))


# --- parity -----------------------------------------------------------------------------------------------------------


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[12], [1] * 12, [5, 1, 1, 5]], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_cached_equals_uncached(shape: dict[str, Any], steps: list[int]):
    model = tiny(**shape)
    ids = some_ids()
    cache = model.new_cache(batch=3)
    parts = [model(part, cache) for part in ids.split(steps, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=0, atol=1e-10)
    assert cache.length == 12


# --- what a language model must be ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_the_future_has_no_influence(shape: dict[str, Any]):
    model = tiny(**shape)
    ids = some_ids()
    changed = ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 37
    assert torch.equal(model(ids)[:, :7], model(changed)[:, :7])
    assert not torch.allclose(model(ids)[:, 7:], model(changed)[:, 7:])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_order_matters(shape: dict[str, Any]):
    """Without positions, a single causal layer would ignore the order of the past."""
    model = tiny(**{**shape, "n_layer": 1})
    ids = some_ids(1, 4)
    swapped = ids[:, [1, 0, 2, 3]]
    assert not torch.allclose(model(ids)[:, -1], model(swapped)[:, -1])


@torch.no_grad()
def test_rotary_attention_depends_on_the_distance_alone():
    """The modern family has no absolute positions: the same four tokens at 0 to 3 and at 20 to 23 come out alike."""
    model = tiny(context_length=40)
    assert model.cos is not None
    assert model.sin is not None
    x = model.token_embedding(some_ids(1, 4))
    near = model.blocks[0](x, (model.cos[:4], model.sin[:4]))
    far = model.blocks[0](x, (model.cos[20:24], model.sin[20:24]))
    torch.testing.assert_close(near, far, rtol=0, atol=1e-6)  # the angles are products of float32 numbers


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_the_first_loss_is_that_of_guessing(family: str):
    """It is close to ln V; a wrong scale of the initialisation would increase it."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=200, family=family, n_embd=64, context_length=32))
    ids = some_ids(4, 33, 200)
    with torch.no_grad():
        loss = token_losses(model.hidden(ids[:, :-1]), model.head.weight, ids[:, 1:]).mean()
    assert abs(float(loss) - math.log(200)) < 0.15


def test_each_block_of_a_new_modern_model_is_the_identity():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=20, n_embd=16, context_length=8))
    x = torch.randn(1, 8, 16)
    assert model.cos is not None
    assert model.sin is not None
    assert torch.equal(model.blocks[0](x, (model.cos, model.sin)), x)


def test_tied_embeddings_stay_one_matrix():
    """After a change of dtype and after loading, both of which could separate them."""
    model = tiny().float()
    assert model.head.weight is model.token_embedding.weight
    model.load_state_dict(tiny(seed=1).state_dict())
    assert model.head.weight is model.token_embedding.weight
    assert tiny(tie_embeddings=False).head.weight is not tiny().token_embedding.weight


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_one_token_of_context_is_enough(family: str):
    model = tiny(family=family, context_length=1)
    assert model(some_ids(2, 1)).shape == (2, 1, 37)


@pytest.mark.parametrize("rows", [None, [3, 7]], ids=["in step", "of different lengths"])
@torch.no_grad()
def test_angles_beyond_the_table_are_computed(rows: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 131,072 positions has 134 MB."""
    shape = GPTConfig(vocab_size=19, context_length=16, n_layer=2, n_head=2, n_embd=16)
    torch.manual_seed(0)
    whole = GPT(shape).eval()
    monkeypatch.setattr("jumok.config._gpt.LONGEST_TABLE", 6)
    torch.manual_seed(0)
    part = GPT(shape).eval()
    assert part.cos is not None
    assert whole.cos is not None
    assert (len(part.cos), len(whole.cos)) == (6, 16)
    ids = torch.arange(24).view(2, 12) % 19
    found = []
    for model in (part, whole):
        cache = model.new_cache(2)
        first = model(ids[:, :7], cache)
        if rows is not None:
            cache.begin_at(rows, 5)
        found.append((first, model(ids[:, 7:], cache)))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    assert count_constants(GPTConfig(vocab_size=9, context_length=131_072, head_dim=128)) == 2 * 6 * 128
