"""The encoder–decoder: caches, what is refused, how it begins; tests/interop compares it with `transformers`."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import EncoderDecoderConfig
from jumok.errors import ConfigError
from jumok.models.encoder_decoder import EncoderDecoder

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


def batch(vocab: int = V) -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, their mask, target ids; the sources have different lengths; the first one has no padding."""
    generator = torch.Generator().manual_seed(11)
    source = torch.randint(vocab, (3, LENGTH), generator=generator)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [7], [1]])
    return source, mask, torch.randint(vocab, (3, 9), generator=generator)


# --- parity -----------------------------------------------------------------------------------------------------------


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


# --- what cannot be -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_target_and_the_mask_of_the_source_are_checked_too():
    model = tiny()
    source, mask, target = batch()
    with pytest.raises(ValueError, match="target ids hold -1, and this model has 0 to 36"):
        model(source, torch.full_like(target, -1))
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
        ({"activation": "tanh"}, "activation='tanh' is not known; choose from silu, gelu, gelu_tanh, relu"),
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
