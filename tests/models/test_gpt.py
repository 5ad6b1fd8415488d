"""GPT compared with `transformers` with the same random parameters, with and without a cache; initialisation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from jumok.config import GPTConfig, count_constants
from jumok.interop.huggingface.convert import from_stock, our_config, to_stock
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


def stock_model(config: GPTConfig) -> GPT2LMHeadModel | Qwen3ForCausalLM:
    """The same architecture in `transformers`, written by hand, independent of the export."""
    common = {
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if config.family == "classic":
        activation = {"gelu": "gelu_new", "relu": "relu"}[config.activation]
        model = GPT2LMHeadModel(
            GPT2Config(
                n_positions=config.context_length,
                n_embd=config.n_embd,
                n_layer=config.n_layer,
                n_head=config.n_head,
                n_inner=config.mlp_width,
                activation_function=activation,
                layer_norm_epsilon=config.norm_eps,
                **common,
            )
        )
    else:
        model = Qwen3ForCausalLM(
            Qwen3Config(
                max_position_embeddings=config.context_length,
                hidden_size=config.n_embd,
                intermediate_size=config.mlp_width,
                num_hidden_layers=config.n_layer,
                num_attention_heads=config.n_head,
                num_key_value_heads=config.n_kv_head,
                head_dim=config.head_dim,
                rms_norm_eps=config.norm_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                **common,
            )
        )
    return model.double().eval()


# --- parity -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_our_weights_in_the_stock_class_give_the_same_logits(shape: dict[str, Any]):
    model = tiny(**shape)
    stock = stock_model(model.config)
    missing, unexpected = stock.load_state_dict(to_stock(model.config, model.state_dict()), strict=False)
    assert unexpected == []
    assert missing == (["lm_head.weight"] if model.config.tie_embeddings else [])
    torch.testing.assert_close(model(some_ids()), stock(some_ids()).logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_stock_weights_in_our_class_give_the_same_logits(shape: dict[str, Any]):
    config = tiny(**shape).config
    torch.manual_seed(1)
    stock = stock_model(config)
    for parameter in stock.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert our_config(stock.config.to_dict() | {"architectures": [type(stock).__name__]}, "here") == GPTConfig(
        **{f.name: getattr(config, f.name) for f in dataclasses.fields(config) if "dropout" not in f.name},
        dropout=0.1 if config.family == "classic" else 0.0,  # what GPT2Config has by default
        attention_dropout=0.1 if config.family == "classic" else 0.0,
    )
    model = GPT(config).double().eval()
    model.load_state_dict(from_stock(config, stock.state_dict(), "here"))
    torch.testing.assert_close(model(some_ids()), stock(some_ids()).logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_gradients_equal_those_of_the_stock_class(family: str):
    """Chunked attention, which is used in training, has the gradients of the fused kernel."""
    model = tiny(family=family, tie_embeddings=False)
    stock = stock_model(model.config)
    stock.load_state_dict(to_stock(model.config, model.state_dict()))
    ids = some_ids()
    token_losses(model.hidden(ids[:, :-1]), model.head.weight, ids[:, 1:]).mean().backward()
    logits = stock(ids).logits[:, :-1]  # its own loss would round them to float32
    nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    ours = to_stock(model.config, {name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    for name, parameter in stock.named_parameters():
        torch.testing.assert_close(
            ours[name], parameter.grad, rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}"
        )


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


@torch.no_grad()
def test_a_cleared_cache_is_a_new_one():
    model = tiny()
    cache = model.new_cache(3)
    model(some_ids(length=7) + 1, cache)
    cache.clear()
    torch.testing.assert_close(model(some_ids(), cache), model(some_ids()), rtol=0, atol=1e-10)


@torch.no_grad()
def test_two_caches_are_independent():
    """A model has no cache of its own, so two texts can be generated alternately."""
    model = tiny()
    first, second = model.new_cache(), model.new_cache()
    a, b = some_ids(1), some_ids(1).flip(1)
    for t in range(12):
        out_a, out_b = model(a[:, t : t + 1], first), model(b[:, t : t + 1], second)
    torch.testing.assert_close(out_a[:, -1], model(a)[:, -1], rtol=0, atol=1e-10)
    torch.testing.assert_close(out_b[:, -1], model(b)[:, -1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_more_tokens_than_the_context_are_refused(family: str):
    model = tiny(family=family)
    with pytest.raises(ValueError, match="13 tokens exceed the context of 12"):
        model(some_ids(length=13))
    cache = model.new_cache(3)
    with torch.no_grad():
        model(some_ids(), cache)
        with pytest.raises(ValueError, match="13 tokens exceed the context of 12"):
            model(some_ids(length=1), cache)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 37]]), "ids hold 37, and this model has 0 to 36"),
        (torch.tensor([[-1, 1]]), "ids hold -1, and this model has 0 to 36"),
        (torch.zeros(5, dtype=torch.long), r"ids have the shape \(5,\); give \(B, T\)"),
        (torch.zeros(1, 5), "ids are of type torch.float32; give whole numbers"),
    ],
)
def test_invalid_ids_are_named(ids: Tensor, message: str):
    """An id of another tokenizer used to be PyTorch's "index out of range in self"."""
    with pytest.raises(ValueError, match=message):
        tiny()(ids)


@torch.no_grad()
def test_ids_may_be_of_any_whole_type():
    """A tokenizer returns the smallest type for its ids, which PyTorch's embedding does not accept."""
    model = tiny()
    for dtype in (torch.uint8, torch.uint16, torch.int32):
        assert torch.equal(model(some_ids().to(dtype)), model(some_ids()))


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


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_the_seed_decides_the_weights(family: str):
    config = GPTConfig(vocab_size=20, family=family, n_embd=16, context_length=8)

    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in GPT(config).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_parameter_count_is_that_of_the_stock_class(shape: dict[str, Any]):
    model = tiny(**shape)
    assert model.parameter_count() == stock_model(model.config).num_parameters()


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


def test_token_losses_are_float32_for_a_half_precision_model():
    model = tiny().bfloat16()
    ids = some_ids()
    losses = token_losses(model.hidden(ids[:, :-1]), model.head.weight, ids[:, 1:])
    assert losses.dtype == torch.float32
    assert losses.shape == (3, 11)


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
