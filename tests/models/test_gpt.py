"""GPT with a cache, with several texts in a row, and as it begins; tests/interop compares it with `transformers`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import GPTConfig, count_constants
from jumok.config import GPTVariantConfig as Variant
from jumok.models.gpt import GPT, token_losses
from jumok.nn.attention import Implementation, train_attention_by
from jumok.nn.positions import positions_in

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


# --- several texts in a row -------------------------------------------------------------------------------------------

TEXTS = [[9, 7, 2, 22], [1, 30, 9]]  # the lengths of the texts of two rows, 40 tokens each
WINDOW = {"vocab_size": 37, "context_length": 40, "n_layer": 2, "n_head": 4, "n_embd": 16, "sliding_window": 5}


def segments_of(rows: list[list[int]], longest: int) -> Tensor:
    """The numbers of texts of these lengths; -1 for padding after them."""
    found = torch.full((len(rows), longest), -1)
    for row, lengths in enumerate(rows):
        numbers = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        found[row, : len(numbers)] = numbers
    return found


def packed_model(shape: dict[str, Any]) -> GPT:
    if "sliding_window" not in shape:
        return tiny(**{"context_length": 40, **shape})
    model = GPT(Variant(**shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("kernel", ["chunked", "fused"])
@pytest.mark.parametrize("rate", [0.0, 0.2], ids=["", "plain formula"])
@pytest.mark.parametrize("shape", [*SHAPES.values(), WINDOW, {**WINDOW, "sliding_layers": (1,)}], ids=str)
def test_texts_in_one_row_are_as_one_by_one(shape: dict[str, Any], rate: float, kernel: Implementation):
    """Loss and gradients in float64: no token sees another text, and positions begin at 0 in each.

    With a rate of dropout on the weights, attention is computed by the plain formula; in eval mode nothing is dropped.
    """
    torch.manual_seed(0)
    model = packed_model(shape | {"attention_dropout": rate})
    train_attention_by(model, kernel)
    ids, targets = (some_ids(2, 40).roll(by, 0) for by in (0, 1))

    def gradients(loss: Tensor) -> list[Tensor]:
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    hidden = model.hidden(ids, segments=segments_of(TEXTS, 40))
    alone = []
    for row, lengths in enumerate(TEXTS):
        start = 0
        for length in lengths:
            alone.append(model.hidden(ids[row : row + 1, start : start + length]))
            start += length
    packed = gradients(token_losses(hidden, model.head.weight, targets).sum())
    single = gradients(token_losses(torch.cat(alone, 1), model.head.weight, targets.view(1, -1)).sum())
    for mine, expected in zip(packed, single, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_padding_after_the_texts_changes_nothing():
    model, ids = tiny(context_length=40), some_ids(2, 40)
    segments = segments_of([[9, 20], [30]], 40)
    changed = torch.where(segments < 0, (ids + 1) % 37, ids)
    one, other = (model.hidden(given, segments=segments)[segments >= 0] for given in (ids, changed))
    assert torch.equal(one, other)


def test_positions_begin_anew_in_each_text():
    """Also where two rows hold texts of the same number, and where a number comes after a larger one."""
    found = positions_in(torch.tensor([[4, 4, 4, 1, 1, 7], [0, 1, 1, 1, 1, -1]]))
    assert found.tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 3, 0]]


def test_segments_are_refused_where_they_could_not_be_right():
    """A cache continues one text."""
    model, ids = tiny(), some_ids(1, 4)
    with pytest.raises(ValueError, match="segments and a cache"):
        model.hidden(ids, model.new_cache(), segments=torch.zeros_like(ids))


# --- what a language model must be ------------------------------------------------------------------------------------


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
