"""The classes that the chapters build compute what those of jumok compute, with the same parameters, in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import jumok
import jumok.nn as production
from jumok.config import BERTConfig, BlockConfig, EncoderDecoderConfig, GPTConfig
from jumok.course.chapters.bert import BERT
from jumok.course.chapters.block import MLP, Block, LayerNorm, RMSNorm, SwiGLU
from jumok.course.chapters.cross import CrossAttention
from jumok.course.chapters.encoder_decoder import EncoderDecoder
from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.head import Head, causal_mask
from jumok.course.chapters.multi_head import MultiHeadAttention, StackedHeads
from jumok.course.chapters.positions import RotaryAttention, rotary
from jumok.course.chapters.writing import generate


@pytest.fixture(autouse=True)
def same_parameters() -> None:
    torch.manual_seed(0)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_one_head() -> None:
    own, theirs = Head(6, 4).double(), production.MultiHeadAttention(6, 4, 1, project=False).double()
    theirs.load_state_dict(own.state_dict())
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    same(own(x), theirs(x, causal=True))


@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention(bias: bool) -> None:
    own = MultiHeadAttention(8, 8, 4, qkv_bias=bias).double()
    theirs = production.MultiHeadAttention(8, 8, 4, qkv_bias=bias).double()
    theirs.load_state_dict(own.state_dict())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    same(own(x, causal_mask(5)), theirs(x, causal=True))
    same(own(x), theirs(x))


def test_attention_with_rotary_positions() -> None:
    own, theirs = RotaryAttention(8, 8, 2).double(), production.MultiHeadAttention(8, 8, 2).double()
    theirs.load_state_dict(own.state_dict())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    same(own(x, causal_mask(5)), theirs(x, causal=True, rotary=rotary(5, 4)))
    same(own(x), theirs(x, rotary=rotary(5, 4)))


def test_stacked_heads_are_split_heads() -> None:
    stacked, split = StackedHeads(8, 8, 4).double(), MultiHeadAttention(8, 8, 4).double()
    parts = {name: [getattr(head, name).weight for head in stacked.heads] for name in ("q_proj", "k_proj", "v_proj")}
    state = {f"{name}.weight": torch.cat(weights) for name, weights in parts.items()}
    split.load_state_dict({**state, "o_proj.weight": stacked.o_proj.weight, "o_proj.bias": stacked.o_proj.bias})
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    same(stacked(x), split(x, causal_mask(5)))


def test_layer_norm_and_mlp() -> None:
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    own, theirs = LayerNorm(8).double(), torch.nn.LayerNorm(8).double()
    torch.nn.init.normal_(own.weight)
    theirs.load_state_dict(own.state_dict())
    same(own(x), theirs(x))
    mlp, reference = MLP(8).double(), production.MLP(8, 32, "gelu_tanh").double()
    reference.load_state_dict(mlp.state_dict())
    same(mlp(x), reference(x))


def test_rms_norm_and_swiglu() -> None:
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    own, theirs = RMSNorm(8).double(), torch.nn.RMSNorm(8, eps=1e-6).double()
    torch.nn.init.normal_(own.weight)
    theirs.load_state_dict(own.state_dict())
    same(own(x), theirs(x))
    gated, reference = SwiGLU(8, 21).double(), production.SwiGLU(8, 21).double()
    reference.load_state_dict(gated.state_dict())
    same(gated(x), reference(x))


def test_block() -> None:
    config = BlockConfig(width=8, n_head=2, n_kv_head=2, head_dim=4, mlp_width=32, activation="gelu_tanh")
    own, theirs = Block(8, 2).double(), production.Block(config).double()
    theirs.load_state_dict(own.state_dict())
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    same(own(x, causal_mask(5)), theirs(x))


def classic(**options: object) -> GPTConfig:
    return GPTConfig(family="classic", vocab_size=20, context_length=8, n_layer=2, n_head=2, n_embd=8, **options)  # type: ignore[arg-type]


def test_gpt() -> None:
    own, theirs = GPT(20, 8, 2, 2, 8).double(), jumok.GPT(classic()).double()
    theirs.load_state_dict(own.state_dict())
    ids = torch.randint(20, (3, 8))
    same(own(ids), theirs(ids))


def test_gpt_begins_with_the_parameters_of_gpt2() -> None:
    own, theirs = (
        GPT(500, 64, 2, 2, 64),
        jumok.GPT(GPTConfig(family="classic", vocab_size=500, context_length=64, n_layer=2, n_head=2, n_embd=64)),
    )
    deviations = {name: value.std().item() for name, value in theirs.named_parameters() if value.dim() == 2}
    for name, value in own.named_parameters():
        if value.dim() == 2:
            assert value.std().item() == pytest.approx(deviations[name], rel=0.1)


def test_generate_continues_greedily_as_jumok_does() -> None:
    own, theirs = GPT(20, 8, 2, 2, 8).double().eval(), jumok.GPT(classic()).double().eval()
    theirs.load_state_dict(own.state_dict())
    ids = [3, 1]
    for _ in range(12):  # beyond the context
        ids.append(int(theirs(torch.tensor([ids[-8:]]))[0, -1].argmax()))
    assert generate(own, [3, 1], 12, temperature=0) == ids[2:]


def test_cross_attention() -> None:
    own = CrossAttention(8, 8, 2, qkv_bias=True).double()
    theirs = production.MultiHeadAttention(8, 8, 2, qkv_bias=True).double()
    theirs.load_state_dict(own.state_dict())
    x, context = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None, :]
    same(own(x, context, mask), theirs(x, context, mask=mask))


def test_bert() -> None:
    own = BERT(20, 8, 2, 2, 8).double()
    theirs = (
        jumok.BERT(
            BERTConfig(vocab_size=20, context_length=8, n_layer=2, n_head=2, n_embd=8, head="mlm", norm_eps=1e-5)
        )
        .double()
        .eval()
    )
    theirs.load_state_dict(own.state_dict())
    ids, segments = torch.randint(20, (2, 6)), torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    padding = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    hidden = own(ids, padding, segments)
    same(hidden[0], theirs(ids, padding, segments)[0])
    same(hidden[1, :4], theirs(ids, padding, segments)[1, :4])
    same(own.logits(hidden)[0], theirs.mlm_logits(hidden)[0])


def test_encoder_decoder() -> None:
    own = EncoderDecoder(20, 2, 2, 8).double()
    config = EncoderDecoderConfig(family="original", vocab_size=20, context_length=8, n_layer=2, n_head=2, n_embd=8)
    theirs = jumok.EncoderDecoder(config).double().eval()
    missing = theirs.load_state_dict(own.state_dict(), strict=False)
    assert (missing.missing_keys, missing.unexpected_keys) == (["output_bias"], [])
    source, target = torch.randint(20, (2, 6)), torch.randint(20, (2, 5))
    padding = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    torch.testing.assert_close(own(source, target, padding), theirs(source, target, padding), rtol=0, atol=1e-12)


def test_activations() -> None:
    x = torch.randn(10, dtype=torch.float64)
    same(MLP(8).activation(x), F.gelu(x, approximate="tanh"))
