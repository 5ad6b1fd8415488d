"""Chapter 10: GPT, encoder and decoder out of production parameters, what they see, and what they predict."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from equality import DTYPES, assert_close, random, randomise
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BERTConfig, BlockConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig
from jumok.course.chapters import three_models
from jumok.course.chapters.cross_attention import padding_mask
from jumok.course.chapters.masked_attention import influence
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn.blocks import Block

SHAPES: dict[str, dict[str, Any]] = {
    "modern": {"family": "modern", "n_kv_head": 2},
    "modern, one kv head": {"family": "modern", "n_kv_head": 1, "head_dim": 6, "tie_embeddings": False},
    "classic": {"family": "classic"},
    "classic, narrow heads": {"family": "classic", "head_dim": 3, "activation": "relu", "tie_embeddings": False},
}
ALL_SHAPES = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
KINDS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "layer"},
    "post-norm": {"norm": "layer", "pre_norm": False},
    "modern": {"norm": "rms", "gated": True, "mlp_bias": False, "qk_norm": True, "n_kv_head": 1},
}
ALL_KINDS = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def tiny(dtype: torch.dtype = torch.float64, **changes: Any) -> GPT:
    shape = {"vocab_size": 23, "context_length": 12, "n_layer": 2, "n_head": 4, "n_embd": 16, **changes}
    model = GPT(GPTConfig(**shape)).eval()
    randomise(model, dtype)
    return model


@pytest.mark.parametrize(
    "parts",
    [
        {"qkv_bias": True, "mlp_bias": True},
        {"parallel": True, "norm": "layer", "gated": False, "activation": "gelu", "rotary_dim": 2},
    ],
    ids=["biases", "GPT-NeoX"],
)
@torch.no_grad()
def test_a_variant_equals_production(parts: dict[str, Any]) -> None:
    model = GPT(GPTVariantConfig(vocab_size=23, context_length=12, n_layer=2, n_head=4, n_embd=16, **parts)).eval()
    randomise(model)
    ids = some_ids(2, 9)
    torch.testing.assert_close(three_models.gpt_logits(model, ids), model(ids), rtol=0, atol=1e-12)


def some_ids(*shape: int) -> Tensor:
    return torch.randint(23, shape, generator=torch.Generator().manual_seed(1))


def make_stack(dtype: torch.dtype, *, causal: bool, cross: bool, **changes: Any) -> nn.ModuleList:
    """Three blocks, as production makes them."""
    shape = {"width": 8, "n_head": 2, "n_kv_head": 2, "head_dim": 4, "mlp_width": 12, "activation": "gelu", **changes}
    config = BlockConfig(**shape)
    blocks = nn.ModuleList(Block(config, causal=causal, cross=cross) for _ in range(3)).eval()
    randomise(blocks, dtype)
    return blocks


# --- the models -------------------------------------------------------------------------------------------------------


@DTYPES
@ALL_SHAPES
@pytest.mark.parametrize(("batch", "t"), [(1, 1), (2, 5), (3, 12)])
@torch.no_grad()
def test_a_gpt_by_hand_equals_the_production_model(dtype: torch.dtype, shape: dict[str, Any], batch: int, t: int):
    model, ids = tiny(dtype, **shape), some_ids(batch, t)
    assert_close(three_models.gpt_logits(model, ids), model(ids))


@DTYPES
@ALL_KINDS
@pytest.mark.parametrize("s", [1, 7])
@torch.no_grad()
def test_an_encoder_equals_production_blocks(dtype: torch.dtype, kind: dict[str, Any], s: int):
    blocks = make_stack(dtype, causal=False, cross=False, **kind)
    x = random(2, s, 8, dtype=dtype)
    for mask in (None, padding_mask([s, max(1, s - 3)], s)):
        expected = x
        for block in blocks:
            expected = block(expected, mask=mask)
        found = three_models.encode(blocks, x, mask=mask)
        assert_close(found, expected)


@DTYPES
@ALL_KINDS
@pytest.mark.parametrize(("t", "s"), [(1, 1), (4, 7), (6, 3)])
@torch.no_grad()
def test_a_decoder_equals_production_blocks(dtype: torch.dtype, kind: dict[str, Any], t: int, s: int):
    blocks = make_stack(dtype, causal=True, cross=True, **kind)
    x, encoded = random(2, t, 8, dtype=dtype), random(2, s, 8, dtype=dtype, seed=1)
    for mask in (None, padding_mask([s, max(1, s - 2)], s)):
        expected = x
        for block in blocks:
            expected = block(expected, context=encoded, context_mask=mask)
        found = three_models.decode(blocks, x, encoded, encoded_mask=mask)
        assert_close(found, expected)


@DTYPES
@pytest.mark.parametrize("t", [1, 9])
@torch.no_grad()
def test_a_bert_by_hand_equals_the_production_model(dtype: torch.dtype, t: int):
    config = BERTConfig(vocab_size=23, context_length=12, n_layer=2, n_head=4, n_embd=16, head="mlm")
    model = BERT(config).eval()
    randomise(model, dtype)
    ids = some_ids(3, t)
    assert_close(three_models.bert_logits(model, ids), model.mlm_logits(model(ids)))


@DTYPES
@pytest.mark.parametrize("family", ["classic", "original"])
@pytest.mark.parametrize(("s", "t"), [(1, 1), (7, 4), (3, 9)])
@torch.no_grad()
def test_an_encoder_decoder_by_hand_equals_the_production_model(dtype: torch.dtype, family: Any, s: int, t: int):
    config = EncoderDecoderConfig(
        vocab_size=23, context_length=12, n_layer=2, n_decoder_layer=3, n_head=4, n_embd=16, family=family
    )
    model = EncoderDecoder(config).eval()
    randomise(model, dtype)
    nn.init.normal_(model.output_bias)
    source, target = some_ids(2, s), some_ids(2, t)
    found = three_models.encoder_decoder_logits(model, source, target)
    assert_close(found, model(source, target))


# --- who looks at whom ------------------------------------------------------------------------------------------------


def test_masks_are_what_the_models_really_see():
    """The pictures of the chapter, against the effect of changing each input."""
    s, t = 4, 3
    encoder = make_stack(torch.float64, causal=False, cross=False)
    decoder = make_stack(torch.float64, causal=True, cross=True)
    gpt = make_stack(torch.float64, causal=True, cross=False)

    def encoder_decoder(x: Tensor) -> Tensor:
        encoded = three_models.encode(encoder, x[:, :s])
        return torch.cat((encoded, three_models.decode(decoder, x[:, s:], encoded)), dim=1)

    x = random(2, s + t, 8)
    assert torch.equal(influence(nn.Sequential(*gpt), x), three_models.gpt_mask(s + t))
    assert torch.equal(influence(lambda z: three_models.encode(encoder, z), x), three_models.bert_mask(s + t))
    assert torch.equal(influence(encoder_decoder, x), three_models.encoder_decoder_mask(s, t))


# --- what is to be predicted ------------------------------------------------------------------------------------------


def test_what_each_model_predicts():
    ids = torch.tensor([[5, 6, 7, 8]])
    inputs, targets = three_models.next_tokens(ids)
    assert (inputs.tolist(), targets.tolist()) == ([[5, 6, 7]], [[6, 7, 8]])
    inputs, targets = three_models.masked_tokens(ids, [1, 3], mask_id=2)
    assert (inputs.tolist(), targets.tolist()) == ([[5, 2, 7, 2]], [[-100, 6, -100, 8]])
    inputs, targets = three_models.shifted_target(ids, start_id=0, end_id=1)
    assert (inputs.tolist(), targets.tolist()) == ([[0, 5, 6, 7, 8]], [[5, 6, 7, 8, 1]])
    assert ids.tolist() == [[5, 6, 7, 8]]


@DTYPES
def test_the_loss_is_cross_entropy_over_what_counts(dtype: torch.dtype):
    logits, targets = random(2, 5, 23, dtype=dtype) * 3, some_ids(2, 5)
    targets[0, 1:4] = three_models.NO_TARGET
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    assert_close(three_models.mean_loss(logits, targets), expected)


# --- how many numbers -------------------------------------------------------------------------------------------------


@ALL_SHAPES
def test_parameters_by_formula_are_those_of_the_model(shape: dict[str, Any]):
    model = tiny(**shape)
    table = three_models.parameter_table(model.config)
    assert sum(table.values()) == model.parameter_count()
    parts = {"attention": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("up_proj", "gate_proj", "down_proj")}
    for part, layers in parts.items():
        named = [p for name, p in model.named_parameters() if name.split(".")[-2] in layers]
        assert table[part] == sum(p.numel() for p in named)


PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "GPT-2 small": (
        {"family": "classic", "vocab_size": 50_257, "context_length": 1024, "n_layer": 12, "n_head": 12, "n_embd": 768},
        124_439_808,
    ),
    "Qwen3-0.6B": (
        {
            "vocab_size": 151_936, "context_length": 40_960, "n_layer": 28, "n_head": 16, "n_kv_head": 8,
            "head_dim": 128, "n_embd": 1024, "mlp_width": 3072,
        },
        596_049_920,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "count"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_models_have_as_many_numbers_as_the_formula_says(shape: dict[str, Any], count: int):
    """Without building them."""
    assert sum(three_models.parameter_table(GPTConfig(**shape)).values()) == count
