"""Chapters 7 to 9: blocks, positions, fast attention and whole models by hand are those of production."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest
import torch
from equality import assert_close, random, randomise
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BERTConfig, BlockConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig
from jumok.course.chapters import block_parts, positions, three_models
from jumok.course.chapters.cross_attention import padding_mask
from jumok.course.chapters.masked_attention import influence
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import Block, make_mlp, make_norm
from jumok.nn.positions import rotary, rotate, sinusoidal

SMALL = BlockConfig(width=6, n_head=3, n_kv_head=3, head_dim=2, mlp_width=10, activation="gelu_tanh")
SIZES: dict[str, Any] = {"vocab_size": 23, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "modern": {"family": "modern", "n_kv_head": 2},
    "classic": {"family": "classic", "head_dim": 6, "activation": "relu", "tie_embeddings": False},
}
ALL_SHAPES = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
KINDS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "layer"},
    "post-norm": {"norm": "layer", "pre_norm": False},
    "modern": {"norm": "rms", "gated": True, "mlp_bias": False, "qk_norm": True, "n_kv_head": 1},
}
ALL_KINDS = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def tiny(dtype: torch.dtype = torch.float64, **changes: Any) -> GPT:
    """A model with random parameters throughout: norms that are 1 and biases that are 0 would hide a slip."""
    model = GPT(GPTConfig(**{**SIZES, **changes})).eval()
    randomise(model, dtype)
    return model


def small_block(*, causal: bool = True, cross: bool = False, **settings: Any) -> Block:
    block = Block(dataclasses.replace(SMALL, **settings), causal=causal, cross=cross)
    randomise(block)
    return block


def some_ids(*shape: int) -> Tensor:
    return torch.randint(23, shape, generator=torch.Generator().manual_seed(1))


# --- 7: the block ---


@pytest.mark.parametrize("kind", ["layer", "rms", "none"])
def test_norms_by_hand(kind: Any) -> None:
    norm = make_norm(dataclasses.replace(SMALL, norm=kind))
    if norm is not None:
        randomise(norm)
    x = 3 * random(2, 5, 6) + 2
    assert_close(block_parts.apply_norm(norm, x), x if norm is None else norm(x))


@pytest.mark.parametrize(
    "settings", [*({"activation": a} for a in ("gelu", "relu")), {"gated": True, "mlp_bias": False}]
)
def test_mlps_by_hand(settings: dict[str, Any]) -> None:
    mlp, x = make_mlp(dataclasses.replace(SMALL, **settings)).double(), 3 * random(2, 5, 6)
    assert_close(block_parts.apply_mlp(mlp, x), mlp(x))


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("residual", [True, False], ids=["residual", "bare"])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_a_block_by_hand(norm: Any, pre_norm: bool, residual: bool, causal: bool) -> None:
    block = small_block(causal=causal, norm=norm, pre_norm=pre_norm, residual=residual)
    x = random(2, 5, 6)
    assert_close(block_parts.run_block(block, x), block(x))


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
def test_a_decoder_block_with_a_context(pre_norm: bool) -> None:
    block = small_block(cross=True, pre_norm=pre_norm)
    x, context, mask = random(2, 3, 6), random(2, 4, 6, seed=1), padding_mask([4, 2], 4)
    found = block_parts.run_block(block, x, context=context, context_mask=mask)
    assert_close(found, block(x, context=context, context_mask=mask))


def test_gradient_norms_are_those_of_backward() -> None:
    torch.manual_seed(0)
    blocks = [block.double() for block in block_parts.stack(SMALL, 3)]
    x = random(2, 4, 6)
    outputs = block_parts.run_stack(blocks, x)
    assert_close(outputs[3], blocks[2](blocks[1](blocks[0](x))))
    torch.manual_seed(5)
    norms = block_parts.gradient_norms(blocks, x)
    assert all(parameter.grad is None for block in blocks for parameter in block.parameters())
    torch.manual_seed(5)
    direction = torch.randn_like(outputs[-1])
    (outputs[-1] * direction / direction.norm()).sum().backward()
    for block, norm in zip(blocks, norms, strict=True):
        together = torch.cat([p.grad.flatten() for p in block.parameters() if p.grad is not None])
        assert norm == pytest.approx(float(together.norm()), rel=1e-9)


def test_similarity_and_rms_by_hand() -> None:
    assert block_parts.similarity(torch.tensor([[1.0, 0.0], [5.0, 0.0], [2.0, 0.0]])) == pytest.approx(1)
    both = torch.tensor([[[1.0, 0.0], [-3.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]]])
    assert block_parts.similarity(both) == pytest.approx(0, abs=1e-6)
    assert block_parts.rms(torch.tensor([-1.0, -1.0, 7.0, 7.0])) == pytest.approx(5)


# --- 8: positions ---


@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_the_tables_of_positions(base: float) -> None:
    assert torch.equal(positions.sinusoidal(500, 16, base), sinusoidal(500, 16, base=base))
    for own, theirs in zip(positions.rotary(50, 6, base), rotary(50, 6, base=base), strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=1e-5)


def test_rotation() -> None:
    x, (cos, sin) = random(2, 3, 5, 6), positions.rotary(5, 6, 100.0)
    assert_close(positions.rotate(x, cos, sin), rotate(x, cos, sin))


@pytest.mark.parametrize("family", ["classic", "modern"])
@torch.no_grad()
def test_embedding_is_what_the_first_block_gets(family: str) -> None:
    model, ids = tiny(family=family), some_ids(2, 7)
    caught: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda block, inputs: caught.append(inputs[0]))
    model(ids)
    assert_close(positions.embed(ids, model.token_embedding, model.position_embedding), caught[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"n_kv_head": 2, "qk_norm": 1e-6}, {"n_kv_head": 1, "project": False}])
def test_attention_with_rotary_positions(options: dict[str, Any], causal: bool) -> None:
    attention = MultiHeadAttention(6, 6, 4, head_dim=4, qkv_bias=True, **options).double()
    x, (cos, sin) = random(2, 5, 6), rotary(5, 4)
    found = positions.attend_with_rotary(attention, x, cos, sin, causal=causal)
    assert_close(found, attention(x, causal=causal, rotary=(cos, sin)))


@ALL_SHAPES
def test_a_whole_gpt_of_the_parts_of_these_chapters(shape: dict[str, Any]) -> None:
    model, ids = tiny(**shape), some_ids(2, 9)
    x = positions.embed(ids, model.token_embedding, model.position_embedding)
    for block in model.blocks:
        attend = None
        if model.cos is not None and model.sin is not None:
            cos, sin = model.cos[:9], model.sin[:9]
            attend = partial(positions.attend_with_rotary, block.attention, cos=cos, sin=sin, causal=True)
        x = block_parts.run_block(block, x, attend)
    assert_close(model.head(block_parts.apply_norm(model.norm, x)), model(ids))


# --- 10: three models ---


@pytest.mark.parametrize(
    "parts",
    [
        *SHAPES.values(),
        {"qkv_bias": True, "mlp_bias": True},
        {"parallel": True, "norm": "layer", "gated": False, "activation": "gelu", "rotary_dim": 2},
    ],
    ids=[*SHAPES, "biases", "GPT-NeoX"],
)
@torch.no_grad()
def test_a_gpt_by_hand(parts: dict[str, Any]) -> None:
    model = GPT((GPTConfig if "family" in parts else GPTVariantConfig)(**SIZES, **parts)).eval()
    randomise(model)
    assert_close(three_models.gpt_logits(model, some_ids(2, 9)), model(some_ids(2, 9)))


def make_stack(*, causal: bool, cross: bool, **changes: Any) -> nn.ModuleList:
    blocks = nn.ModuleList(small_block(causal=causal, cross=cross, **changes) for _ in range(3)).eval()
    randomise(blocks)
    return blocks


@ALL_KINDS
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_an_encoder_and_a_decoder_by_hand(kind: dict[str, Any], masked: bool) -> None:
    mask = padding_mask([7, 4], 7) if masked else None
    expected = x = random(2, 7, 6)
    encoder = make_stack(causal=False, cross=False, **kind)
    for block in encoder:
        expected = block(expected, mask=mask)
    assert_close(three_models.encode(encoder, x, mask=mask), expected)
    encoded, decoder = expected, make_stack(causal=True, cross=True, **kind)
    expected = y = random(2, 4, 6, seed=1)
    for block in decoder:
        expected = block(expected, context=encoded, context_mask=mask)
    assert_close(three_models.decode(decoder, y, encoded, encoded_mask=mask), expected)


@torch.no_grad()
def test_a_bert_by_hand() -> None:
    model, ids = BERT(BERTConfig(**SIZES, head="mlm")).eval(), some_ids(3, 9)
    randomise(model)
    assert_close(three_models.bert_logits(model, ids), model.mlm_logits(model(ids)))


@pytest.mark.parametrize("family", ["classic", "original"])
@torch.no_grad()
def test_an_encoder_decoder_by_hand(family: Any) -> None:
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES, n_decoder_layer=3, family=family)).eval()
    randomise(model)
    nn.init.normal_(model.output_bias)
    source, target = some_ids(2, 7), some_ids(2, 4)
    assert_close(three_models.encoder_decoder_logits(model, source, target), model(source, target))


def test_masks_are_what_the_models_really_see() -> None:
    """The pictures of the chapter, against the effect of changing each input."""
    s, t = 4, 3
    encoder, decoder = make_stack(causal=False, cross=False), make_stack(causal=True, cross=True)

    def encoder_decoder(x: Tensor) -> Tensor:
        encoded = three_models.encode(encoder, x[:, :s])
        return torch.cat((encoded, three_models.decode(decoder, x[:, s:], encoded)), dim=1)

    x = random(2, s + t, 6)
    gpt = nn.Sequential(*make_stack(causal=True, cross=False))
    assert torch.equal(influence(gpt, x), three_models.gpt_mask(s + t))
    assert torch.equal(influence(lambda z: three_models.encode(encoder, z), x), three_models.bert_mask(s + t))
    assert torch.equal(influence(encoder_decoder, x), three_models.encoder_decoder_mask(s, t))


def test_what_each_model_predicts() -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    inputs, targets = three_models.next_tokens(ids)
    assert (inputs.tolist(), targets.tolist()) == ([[5, 6, 7]], [[6, 7, 8]])
    inputs, targets = three_models.masked_tokens(ids, [1, 3], mask_id=2)
    assert (inputs.tolist(), targets.tolist()) == ([[5, 2, 7, 2]], [[-100, 6, -100, 8]])
    inputs, targets = three_models.shifted_target(ids, start_id=0, end_id=1)
    assert (inputs.tolist(), targets.tolist()) == ([[0, 5, 6, 7, 8]], [[5, 6, 7, 8, 1]])
    assert ids.tolist() == [[5, 6, 7, 8]]


def test_the_loss_is_cross_entropy_over_what_counts() -> None:
    logits, targets = random(2, 5, 23) * 3, some_ids(2, 5)
    targets[0, 1:4] = three_models.NO_TARGET
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    assert_close(three_models.mean_loss(logits, targets), expected)


@ALL_SHAPES
def test_parameters_by_formula_are_those_of_the_model(shape: dict[str, Any]) -> None:
    model = tiny(**shape)
    assert sum(three_models.parameter_table(model.config).values()) == model.parameter_count()


def test_published_models_have_as_many_numbers_as_the_formula_says() -> None:
    """Without building them."""
    gpt2 = GPTConfig(
        family="classic", vocab_size=50_257, context_length=1024, n_layer=12, n_head=12, n_embd=768
    )  # fmt: skip
    qwen3 = GPTConfig(
        vocab_size=151_936, context_length=40_960, n_layer=28, n_head=16, n_kv_head=8, head_dim=128, n_embd=1024,
        mlp_width=3072,
    )  # fmt: skip
    counts = [sum(three_models.parameter_table(config).values()) for config in (gpt2, qwen3)]
    assert counts == [124_439_808, 596_049_920]
