"""The encoder–decoder compared with `transformers` with the same random parameters; caches; initialisation."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

from jumok.config import EncoderDecoderConfig, from_dict, to_dict
from jumok.config.huggingface import our_config
from jumok.errors import ConfigError, RunError
from jumok.interop.huggingface.convert import from_stock, to_stock
from jumok.models import build
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.runs.load import load, save
from jumok.tokenizers import train_tokenizer

V, LENGTH = 37, 12
SHAPES: dict[str, dict[str, Any]] = {
    "classic": {},
    "classic scaled": {"scale_embedding": True, "activation": "relu"},
    "classic uneven": {
        "n_layer": 1, "n_decoder_layer": 3, "n_decoder_head": 2, "mlp_width": 10, "decoder_mlp_width": 14,
        "activation": "silu",
    },
    "original": {"family": "original"},
    "original unscaled": {"family": "original", "scale_embedding": False, "activation": "silu", "n_decoder_layer": 1},
}  # fmt: skip
ALL_SHAPES = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
FAMILIES = pytest.mark.parametrize("family", ["classic", "original"])
IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 2, "forced_eos_id": 2}


def config_of(**changes: Any) -> EncoderDecoderConfig:
    sizes = {"vocab_size": V, "context_length": LENGTH, "n_layer": 2, "n_head": 4, "n_embd": 16, **IDS}
    return EncoderDecoderConfig(**{**sizes, **changes})


def tiny(seed: int = 0, **changes: Any) -> EncoderDecoder:
    """A small float64 model with random parameters and output bias."""
    torch.manual_seed(seed)
    model = EncoderDecoder(config_of(**changes)).double().eval()
    for parameter in (*model.parameters(), model.output_bias):
        nn.init.normal_(parameter, std=0.5)
    return model


def stock_model(config: EncoderDecoderConfig) -> Any:
    """The same architecture in `transformers`, written by hand, independent of the export."""
    common = {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "d_model": config.n_embd,
        "encoder_layers": config.n_layer,
        "decoder_layers": config.n_decoder_layer,
        "encoder_attention_heads": config.n_head,
        "decoder_attention_heads": config.n_decoder_head,
        "encoder_ffn_dim": config.mlp_width,
        "decoder_ffn_dim": config.decoder_mlp_width,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embedding,
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.decoder_start_id,
        "forced_eos_token_id": config.forced_eos_id,
    }
    kind, settings = (
        (BartForConditionalGeneration, BartConfig) if config.family == "classic" else (MarianMTModel, MarianConfig)
    )
    return kind(settings(**common)).double().eval()


def batch(vocab: int = V) -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, their mask, target ids; the sources have different lengths; the first one has no padding."""
    generator = torch.Generator().manual_seed(11)
    source = torch.randint(vocab, (3, LENGTH), generator=generator)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [7], [1]])
    return source, mask, torch.randint(vocab, (3, 9), generator=generator)


def stock_logits(model: Any, source: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    mask = None if mask is None else mask.long()
    return model(source, attention_mask=mask, decoder_input_ids=target).logits


# --- parity -----------------------------------------------------------------------------------------------------------


@ALL_SHAPES
@torch.no_grad()
def test_our_weights_in_the_stock_class_give_the_same_logits(shape: dict[str, Any]):
    model = tiny(**shape)
    stock = stock_model(model.config)
    missing, unexpected = stock.load_state_dict(to_stock(model.config, model.state_dict()), strict=False)
    assert unexpected == []
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in missing} <= {
        "lm_head",
        "embed_tokens",
        "embed_positions",
    }  # shared with the embedding, and what is computed
    source, mask, target = batch()
    torch.testing.assert_close(
        model(source, target, mask), stock_logits(stock, source, target, mask), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(model(source, target), stock_logits(stock, source, target), rtol=0, atol=1e-9)
    encoded = stock.model.encoder(source, attention_mask=mask.long()).last_hidden_state
    if shape.get("family") != "original":  # whose coordinates are in another order there
        torch.testing.assert_close(model.encode(source, mask)[mask], encoded[mask], rtol=0, atol=1e-9)


@ALL_SHAPES
@torch.no_grad()
def test_stock_weights_in_our_class_give_the_same_logits(shape: dict[str, Any]):
    torch.manual_seed(1)
    stock = stock_model(config_of(**shape))
    for name, parameter in stock.named_parameters():
        if "embed_positions" not in name or shape.get("family") != "original":
            nn.init.normal_(parameter, std=0.5)
    stock.final_logits_bias.normal_()
    settings = json.loads(stock.config.to_json_string()) | {"architectures": [type(stock).__name__]}
    config = our_config(settings, "here")
    assert config == config_of(**shape)
    model = EncoderDecoder(config).double().eval()
    model.load_state_dict(from_stock(config, stock.state_dict(), "here"))
    source, mask, target = batch()
    torch.testing.assert_close(
        model(source, target, mask), stock_logits(stock, source, target, mask), rtol=0, atol=1e-9
    )


@FAMILIES
def test_gradients_equal_those_of_the_stock_class(family: str):
    """Through both stacks, and into the embedding from all three of its ends."""
    model = tiny(family=family)
    stock = stock_model(model.config)
    stock.load_state_dict(to_stock(model.config, model.state_dict()), strict=False)
    source, mask, target = batch()
    model(source, target, mask).square().mean().backward()
    stock_logits(stock, source, target, mask).square().mean().backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    found = to_stock(model.config, {**found, "output_bias": torch.zeros(V)})
    for name, parameter in stock.named_parameters():
        if parameter.grad is None:
            assert "embed_positions" in name  # of the original family
            continue
        if name == "model.shared.weight":  # the stock class takes none from the row of its pad id
            parameter.grad[0] = found[name][0]
        torch.testing.assert_close(
            found[name], parameter.grad, rtol=1e-9, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_the_paper_of_2017_in_numbers():
    """Table 3 says 65 million for the base model and 213 million for the big one; a sum by hand says it exactly.

    d = 512, d_ff = 2048, 6 + 6 blocks, 37,000 shared pieces: four d×d projections with biases an attention, two
    matrices with biases an MLP, two numbers a coordinate a norm.
    """
    with torch.device("meta"):  # shapes without the memory for them
        sizes: dict[str, Any] = {"vocab_size": 37_000, "context_length": 512, "family": "original", "n_layer": 6}
        base = EncoderDecoder(EncoderDecoderConfig(**sizes, n_head=8, n_embd=512))
        big = EncoderDecoder(EncoderDecoderConfig(**sizes, n_head=16, n_embd=1024, mlp_width=4096, dropout=0.3))
    for model, d, hidden, told in ((base, 512, 2048, 65e6), (big, 1024, 4096, 213e6)):
        attention, mlp, norm = 4 * (d * d + d), 2 * d * hidden + hidden + d, 2 * d
        encoder_block, decoder_block = attention + mlp + 2 * norm, 2 * attention + mlp + 3 * norm
        assert model.parameter_count() == 37_000 * d + 6 * encoder_block + 6 * decoder_block
        assert abs(model.parameter_count() / told - 1) < 0.05
    assert (base.config.dropout, base.config.activation, base.config.family) == (0.1, "relu", "original")


@FAMILIES
def test_parameter_count_is_that_of_the_stock_class(family: str):
    """Except the tables of positions: those of BART begin with two unused rows, and Marian counts its sinusoids."""
    model = tiny(family=family)
    stock = stock_model(model.config)
    tables = sum(p.numel() for name, p in stock.named_parameters() if "embed_positions" in name)
    learned = 2 * LENGTH * 16 if family == "classic" else 0
    assert model.parameter_count() == stock.num_parameters() - tables + learned


# --- what it must be ----------------------------------------------------------------------------------------------


@ALL_SHAPES
@torch.no_grad()
def test_the_future_of_the_target_has_no_influence(shape: dict[str, Any]):
    model = tiny(**shape)
    source, mask, target = batch()
    changed = target.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % V
    before, after = model(source, target, mask), model(source, changed, mask)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.isclose(before[:, 5:], after[:, 5:]).all(dim=-1).any()


@ALL_SHAPES
@torch.no_grad()
def test_the_whole_source_has_influence_but_for_what_is_masked(shape: dict[str, Any]):
    model = tiny(**shape)
    source, mask, target = batch()
    before = model(source, target, mask)
    for position in range(LENGTH):
        changed = source.clone()
        changed[:, position] = (changed[:, position] + 1) % V
        same = torch.isclose(model(changed, target, mask), before, rtol=0, atol=0).all(dim=-1).all(dim=-1)
        assert same.tolist() == (~mask[:, position]).tolist()


@FAMILIES
@torch.no_grad()
def test_order_matters(family: str):
    """In the source and in the target: attention without positions ignores the order."""
    model = tiny(family=family, n_layer=1)
    source, _, target = batch()
    before = model(source, target)[:, -1]
    swapped = [1, 0, *range(2, LENGTH)]
    assert not torch.allclose(model(source[:, swapped], target)[:, -1], before)
    assert not torch.allclose(model(source, target[:, swapped[:9]])[:, -1], before)


@torch.no_grad()
def test_a_mask_of_zeros_and_ones_is_a_mask():
    model = tiny()
    source, mask, target = batch()
    assert torch.equal(model(source, target, mask.long()), model(source, target, mask))


# --- the caches ---------------------------------------------------------------------------------------------------


@ALL_SHAPES
@pytest.mark.parametrize("steps", [[9], [1] * 9, [4, 1, 1, 3]], ids=str)
@torch.no_grad()
def test_cached_equals_uncached(shape: dict[str, Any], steps: list[int]):
    model = tiny(**shape)
    source, mask, target = batch()
    encoded, cache = model.encode(source, mask), model.new_cache(batch=3)
    parts = [model.decode(part, encoded, mask, cache) for part in target.split(steps, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(source, target, mask), rtol=0, atol=1e-10)
    assert cache.length == 9
    assert {layer.length for layer in cache.source.layers} == {LENGTH}


@torch.no_grad()
def test_keys_and_values_of_the_source_are_computed_once():
    """Its keys and values are computed in the first step; later steps do not use the encoded source."""
    model = tiny()
    source, mask, target = batch()
    encoded, cache = model.encode(source, mask), model.new_cache(batch=3)
    calls: list[str] = []
    for block in model.decoder:
        block.cross_attention.k_proj.register_forward_hook(lambda *_: calls.append("k"))
    parts = [model.decode(target[:, :1], encoded, mask, cache)]
    parts += [model.decode(target[:, t : t + 1], torch.full_like(encoded, math.nan), mask, cache) for t in range(1, 9)]
    assert len(calls) == len(model.decoder)
    torch.testing.assert_close(torch.cat(parts, dim=1), model(source, target, mask), rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_cleared_cache_is_a_new_one():
    model = tiny()
    source, mask, target = batch()
    cache = model.new_cache(3)
    model.decode(target[:, :4], model.encode(source.flip(1)), None, cache)
    cache.clear()
    again = model.decode(target, model.encode(source, mask), mask, cache)
    torch.testing.assert_close(again, model(source, target, mask), rtol=0, atol=1e-10)


@torch.no_grad()
def test_two_caches_are_independent():
    """A model has no cache of its own, so two texts can be generated alternately."""
    model = tiny()
    source, _, target = batch()
    one, two = model.encode(source[:1]), model.encode(source[1:2])
    first, second = model.new_cache(), model.new_cache()
    for t in range(9):
        a = model.decode(target[:1, t : t + 1], one, None, first)
        b = model.decode(target[1:2, t : t + 1], two, None, second)
    torch.testing.assert_close(a[:, -1], model(source[:1], target[:1])[:, -1], rtol=0, atol=1e-10)
    torch.testing.assert_close(b[:, -1], model(source[1:2], target[1:2])[:, -1], rtol=0, atol=1e-10)


# --- what cannot be -----------------------------------------------------------------------------------------------


@FAMILIES
@torch.no_grad()
def test_invalid_ids_are_named(family: str):
    model = tiny(family=family)
    source, mask, target = batch()
    with pytest.raises(ValueError, match="source ids hold 37, and this model has 0 to 36"):
        model(torch.full_like(source, V), target)
    with pytest.raises(ValueError, match="target ids hold -1, and this model has 0 to 36"):
        model(source, torch.full_like(target, -1))
    with pytest.raises(ValueError, match="13 tokens exceed the context of 12; cut the source ids"):
        model.encode(torch.zeros(1, LENGTH + 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"source_mask has the shape \(3, 11\); .* \(3, 12\)"):
        model(source, target, mask[:, 1:])
    encoded, cache = model.encode(source), model.new_cache(3)
    model.decode(target, encoded, None, cache)
    with pytest.raises(ValueError, match="13 tokens exceed the context of 12; the cache holds 9 of them"):
        model.decode(target[:, :4], encoded, None, cache)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_embd": 250, "n_head": 6}, "n_embd=250 is not divisible by n_head=6; use n_embd=246 or 252"),
        ({"n_decoder_head": 3}, "n_embd=16 is not divisible by n_decoder_head=3; use n_embd=15 or 18"),
        ({"family": "modern"}, "family='modern' is not known; choose from classic, original"),
        ({"activation": "tanh"}, "activation='tanh' is not known; choose from silu, gelu, relu"),
        ({"n_decoder_layer": 0}, "n_decoder_layer=0 is out of range"),
        ({"decoder_mlp_width": -1}, "decoder_mlp_width=-1 is out of range"),
        ({"dropout": 1.5}, "dropout=1.5 is out of range"),
        ({"attention_dropout": -0.1}, "attention_dropout=-0.1 is out of range"),
        ({"eos_id": 37}, "eos_id=37 is out of range: it must be between 0 and 36"),
        ({"forced_bos_id": "2"}, "forced_bos_id='2' is of type str"),
        ({"scale_embedding": 1}, "scale_embedding=1 is of type int; it must be of type bool"),
    ],
)
def test_invalid_configurations_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        config_of(**changes)


# --- as it begins -------------------------------------------------------------------------------------------------


@FAMILIES
def test_initialisation(family: str):
    """N(0, 0.02) for BART, Xavier's uniform for the paper of 2017; zero biases; the first loss is that of guessing.

    The heads of the first blocks of BART are tested in test_initialization.py."""
    torch.manual_seed(0)
    model = EncoderDecoder(config_of(family=family, vocab_size=300, n_embd=64, context_length=50))
    looking = r".*position_embedding.*|(en|de)coder\.0\.attention\.[qk]_proj.*"
    for name, tensor in model.state_dict().items():
        if tensor.dim() == 2:
            if family == "classic" and re.fullmatch(looking, name):
                continue
            bound = math.sqrt(6 / sum(tensor.shape))
            std = 0.02 if family == "classic" else bound / math.sqrt(3)
            assert abs(float(tensor.std()) / std - 1) < 0.1, name
            assert family == "classic" or float(tensor.abs().max()) <= bound, name
        else:
            assert torch.equal(tensor, torch.full_like(tensor, float("norm.weight" in name))), name
    source, mask, target = batch(300)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(source, target, mask)[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    assert abs(float(loss) - math.log(300)) < 0.5


@FAMILIES
def test_every_parameter_learns(family: str):
    model = tiny(family=family)
    source, mask, _ = batch()
    source[0] = torch.arange(LENGTH)
    model(source, torch.arange(LENGTH).expand(3, -1), mask).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@torch.no_grad()
def test_dropout_acts_in_training_only():
    model = tiny(dropout=0.5)
    source, mask, target = batch()
    torch.manual_seed(0)
    assert torch.equal(model(source, target, mask), model(source, target, mask))
    model.train()
    assert not torch.equal(model(source, target, mask), model(source, target, mask))


@FAMILIES
def test_the_seed_decides_the_weights(family: str):
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in EncoderDecoder(config_of(family=family)).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@pytest.mark.slow
@FAMILIES
def test_a_step_of_training_helps(family: str):
    """After a few steps on one pair the loss is far below that of guessing."""
    torch.manual_seed(0)
    model = EncoderDecoder(config_of(family=family, n_embd=32, dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    source, mask, target = batch()
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(source, target[:, :-1], mask).flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.5 * math.log(V)


# --- to and from files --------------------------------------------------------------------------------------------


@FAMILIES
@torch.no_grad()
def test_a_run_folder_there_and_back(family: str, tmp_path: Path):
    tokenizer = train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    model = tiny(family=family, vocab_size=tokenizer.vocab_size).float()
    model.tokenizer = tokenizer
    save(model, tmp_path / "run")
    written = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["model"]
    assert written["type"] == "encoder_decoder"
    back = load(tmp_path / "run", kind=EncoderDecoder)
    assert back.config == model.config
    source, mask, target = batch()
    assert torch.equal(back(source, target, mask), model(source, target, mask))
    assert torch.equal(back.output_bias, model.output_bias)
    with pytest.raises(RunError, match="of the class EncoderDecoder, but BERT is required"):
        load(tmp_path / "run", kind=BERT)


@FAMILIES
def test_a_configuration_comes_back_from_json(family: str):
    config = config_of(family=family)
    assert from_dict(EncoderDecoderConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert isinstance(build(config), EncoderDecoder)
