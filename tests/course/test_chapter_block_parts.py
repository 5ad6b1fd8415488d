"""Chapter 7: norms, MLPs and blocks taken apart are the production ones, and what is said of gradients is measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from equality import DTYPES, assert_close, random
from torch.nn import functional as F

from jumok.config import BlockConfig, GPTConfig
from jumok.course.chapters.block_parts import (
    apply_mlp,
    apply_norm,
    gradient_norms,
    layer_norm,
    rms,
    rms_norm,
    run_block,
    run_stack,
    similarity,
    stack,
)
from jumok.nn.blocks import MLP, Block, SwiGLU, make_mlp, make_norm
from jumok.nn.layers import RMSNorm

SMALL = BlockConfig(width=6, n_head=3, n_kv_head=3, head_dim=2, mlp_width=10, activation="gelu_tanh")
DEEP = BlockConfig(width=32, n_head=4, n_kv_head=4, head_dim=8, mlp_width=128, activation="gelu_tanh")
SHAPES = [(2, 5, 6), (5, 6)]


def small_block(dtype: torch.dtype, *, causal: bool = True, cross: bool = False, **settings: Any) -> Block:
    """A block with random parameters throughout: norms that are 1 and biases that are 0 would hide a slip."""
    torch.manual_seed(0)
    block = Block(dataclasses.replace(SMALL, **settings), causal=causal, cross=cross).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(std=0.3)  # small, so that 1e-6 is above the rounding of float32
    return block


# --- norms ---


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_is_torchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, bias = 3 * random(*shape, dtype=dtype) + 2, random(6, dtype=dtype), random(6, dtype=dtype) - 1
    assert_close(layer_norm(x, weight, bias, 1e-5), F.layer_norm(x, (6,), weight, bias, 1e-5))


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm_is_that_of_production(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, norm = 3 * random(*shape, dtype=dtype) + 2, RMSNorm(6, eps=1e-6).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(random(6, dtype=dtype))
    assert_close(rms_norm(x, norm.weight, norm.eps), norm(x))


@DTYPES
@pytest.mark.parametrize("kind", ["layer", "rms", "none"])
def test_apply_norm_reads_each_norm_that_a_block_can_have(kind: Any, dtype: torch.dtype) -> None:
    norm = make_norm(dataclasses.replace(SMALL, norm=kind)).to(dtype)
    x = 3 * random(2, 5, 6, dtype=dtype)
    assert_close(apply_norm(norm, x), norm(x))


# --- MLPs ---


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_mlp_by_its_parameters(activation: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = make_mlp(dataclasses.replace(SMALL, activation=activation)).to(dtype)
    assert isinstance(mlp, MLP)
    x = 3 * random(*shape, dtype=dtype)
    assert_close(apply_mlp(mlp, x), mlp(x))


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_swiglu_by_its_parameters(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = make_mlp(dataclasses.replace(SMALL, gated=True, mlp_bias=False)).to(dtype)
    assert isinstance(mlp, SwiGLU)
    x = 3 * random(*shape, dtype=dtype)
    assert_close(apply_mlp(mlp, x), mlp(x))


# --- the block ---


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("residual", [True, False], ids=["residual", "bare"])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
def test_block_by_its_parameters(
    norm: Any, pre_norm: bool, residual: bool, causal: bool, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    block = small_block(dtype, causal=causal, norm=norm, pre_norm=pre_norm, residual=residual)
    x = random(*shape, dtype=dtype)
    assert_close(run_block(block, x), block(x))


@DTYPES
def test_block_of_each_family(dtype: torch.dtype) -> None:
    """Without rotary positions, which are the next chapter's."""
    for family in ("classic", "modern"):
        config = GPTConfig(vocab_size=9, family=family, n_layer=1, n_head=2, n_embd=8)
        torch.manual_seed(0)
        block = Block(config.block()).to(dtype)
        x = random(2, 5, 8, dtype=dtype)
        assert_close(run_block(block, x), block(x))


@DTYPES
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
def test_decoder_block_with_a_context(pre_norm: bool, dtype: torch.dtype) -> None:
    block = small_block(dtype, cross=True, pre_norm=pre_norm)
    x, context = random(2, 3, 6, dtype=dtype), random(2, 4, 6, dtype=dtype).flip(1)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None]  # (B, 1, 1, S)
    assert_close(run_block(block, x, context=context), block(x, context=context))
    masked = run_block(block, x, context=context, context_mask=mask)
    assert_close(masked, block(x, context=context, context_mask=mask))
    assert not torch.allclose(masked, run_block(block, x, context=context))


# --- depth ---


def test_run_stack_is_one_block_after_the_other() -> None:
    torch.manual_seed(0)
    blocks = stack(SMALL, 3)
    x = random(2, 4, 6, dtype=torch.float32)
    outputs = run_stack(blocks, x)
    assert len(outputs) == 4
    assert torch.equal(outputs[0], x)
    assert torch.equal(outputs[3], blocks[2](blocks[1](blocks[0](x))))


def test_gradient_norms_are_those_of_backward() -> None:
    torch.manual_seed(0)
    blocks = [block.double() for block in stack(SMALL, 3)]
    x = random(2, 4, 6, dtype=torch.float64)
    torch.manual_seed(5)
    norms = gradient_norms(blocks, x)
    assert all(parameter.grad is None for block in blocks for parameter in block.parameters())
    torch.manual_seed(5)
    top = run_stack(blocks, x)[-1]
    direction = torch.randn_like(top)
    (top * direction / direction.norm()).sum().backward()
    for block, norm in zip(blocks, norms, strict=True):
        gradients = [parameter.grad for parameter in block.parameters()]
        together = torch.cat([g.flatten() for g in gradients if g is not None])
        assert norm == pytest.approx(float(together.norm()), rel=1e-9)


def test_similarity_and_rms_by_hand() -> None:
    assert similarity(torch.tensor([[1.0, 0.0], [5.0, 0.0], [2.0, 0.0]])) == pytest.approx(1)
    assert similarity(torch.tensor([[1.0, 0.0], [0.0, 2.0]])) == pytest.approx(0)
    assert similarity(torch.tensor([[[1.0, 0.0], [-3.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]]])) == pytest.approx(0, abs=1e-6)
    assert rms(torch.tensor([-1.0, -1.0, 7.0, 7.0])) == pytest.approx(5)
