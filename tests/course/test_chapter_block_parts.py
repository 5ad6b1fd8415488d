"""Chapter 7: norms, MLPs and blocks taken apart are the production ones, and what is said of gradients is measured."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
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
SHAPES = [(2, 5, 6), (1, 1, 6), (5, 6)]


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def same(one: Tensor, other: Tensor) -> None:
    assert one.dtype == other.dtype
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6 if one.dtype == torch.float32 else 1e-12)


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=dtype)


def small_block(dtype: torch.dtype, *, causal: bool = True, cross: bool = False, **settings: Any) -> Block:
    """A block with random parameters throughout: norms that are 1 and biases that are 0 would hide a slip."""
    torch.manual_seed(0)
    block = Block(dataclasses.replace(SMALL, **settings), causal=causal, cross=cross).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(std=0.3)  # small, so that 1e-6 is above the rounding of float32
    return block


# --- norms ---


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_is_torchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, bias = 3 * random(*shape, dtype=dtype) + 2, random(6, dtype=dtype), random(6, dtype=dtype) - 1
    same(layer_norm(x, weight, bias, 1e-5), F.layer_norm(x, (6,), weight, bias, 1e-5))


@pytest.mark.parametrize("shape", SHAPES)
def test_rms_norm_is_that_of_production(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, norm = 3 * random(*shape, dtype=dtype) + 2, RMSNorm(6, eps=1e-6).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(random(6, dtype=dtype))
    same(rms_norm(x, norm.weight, norm.eps), norm(x))


def test_norms_by_hand() -> None:
    """Mean 3, standard deviation 4, root mean square 5."""
    x, one, zero = torch.tensor([-1.0, -1.0, 7.0, 7.0]), torch.ones(4), torch.zeros(4)
    same(layer_norm(x, one, zero, 0.0), torch.tensor([-1.0, -1.0, 1.0, 1.0]))
    same(rms_norm(x, one, 0.0), torch.tensor([-0.2, -0.2, 1.4, 1.4]))
    same(layer_norm(x, 2 * one, one, 0.0), torch.tensor([-1.0, -1.0, 3.0, 3.0]))


def test_norms_of_nothing_are_nothing() -> None:
    """epsilon is what stands between a vector of zeros and 0 / 0."""
    x, one, zero = torch.zeros(2, 4), torch.ones(4), torch.zeros(4)
    assert torch.equal(layer_norm(x, one, zero, 1e-5), x)
    assert torch.equal(rms_norm(x, one, 1e-6), x)


@pytest.mark.parametrize("kind", ["layer", "rms", "none"])
def test_apply_norm_reads_each_norm_that_a_block_can_have(kind: Any, dtype: torch.dtype) -> None:
    norm = make_norm(dataclasses.replace(SMALL, norm=kind)).to(dtype)
    x = 3 * random(2, 5, 6, dtype=dtype)
    same(apply_norm(norm, x), norm(x))


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="BatchNorm1d is no norm of a block"):
        apply_norm(nn.BatchNorm1d(6), torch.zeros(1, 6))
    with pytest.raises(TypeError, match="Linear is no MLP of a block"):
        apply_mlp(nn.Linear(6, 6), torch.zeros(1, 6))


# --- MLPs ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_mlp_by_its_parameters(activation: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = make_mlp(dataclasses.replace(SMALL, activation=activation)).to(dtype)
    assert isinstance(mlp, MLP)
    x = 3 * random(*shape, dtype=dtype)
    same(apply_mlp(mlp, x), mlp(x))


@pytest.mark.parametrize("shape", SHAPES)
def test_swiglu_by_its_parameters(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = make_mlp(dataclasses.replace(SMALL, gated=True, mlp_bias=False)).to(dtype)
    assert isinstance(mlp, SwiGLU)
    x = 3 * random(*shape, dtype=dtype)
    same(apply_mlp(mlp, x), mlp(x))


def test_a_gate_far_below_zero_is_closed() -> None:
    """exp(-z) overflows there; z / inf is 0, as it should be, and not NaN."""
    mlp = SwiGLU(1, 1)
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter.fill_(1.0)
    same(apply_mlp(mlp, torch.tensor([[-200.0]])), torch.zeros(1, 1))


# --- the block ---


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
    same(run_block(block, x), block(x))


@pytest.mark.parametrize(
    "settings",
    [
        {"mlp_width": 0},
        {"gated": True, "mlp_bias": False, "norm": "rms", "qk_norm": True},
        {"gated": True, "parallel": True, "out_bias": False, "qkv_bias": False},
        {"parallel": True, "mlp_bias": False},
        {"n_kv_head": 1, "activation": "relu"},
        {"n_head": 1, "n_kv_head": 1, "head_dim": 5},
    ],
    ids=["no MLP", "modern", "gated, parallel", "parallel", "grouped", "odd head"],
)
def test_blocks_of_other_makes(settings: dict[str, Any], dtype: torch.dtype) -> None:
    block = small_block(dtype, **settings)
    x = random(3, 7, 6, dtype=dtype)
    same(run_block(block, x), block(x))


def test_block_of_each_family(dtype: torch.dtype) -> None:
    """Without rotary positions, which are the next chapter's."""
    for family in ("classic", "modern"):
        config = GPTConfig(vocab_size=9, family=family, n_layer=1, n_head=2, n_embd=8)
        torch.manual_seed(0)
        block = Block(config.block()).to(dtype)
        x = random(2, 5, 8, dtype=dtype)
        same(run_block(block, x), block(x))


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
def test_decoder_block_with_a_context(pre_norm: bool, dtype: torch.dtype) -> None:
    block = small_block(dtype, cross=True, pre_norm=pre_norm)
    x, context = random(2, 3, 6, dtype=dtype), random(2, 4, 6, dtype=dtype).flip(1)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None]  # (B, 1, 1, S)
    same(run_block(block, x, context=context), block(x, context=context))
    masked = run_block(block, x, context=context, context_mask=mask)
    same(masked, block(x, context=context, context_mask=mask))
    assert not torch.allclose(masked, run_block(block, x, context=context))


def test_block_leaves_dropout_out(dtype: torch.dtype) -> None:
    block = small_block(dtype, dropout=0.5)
    x = random(2, 5, 6, dtype=dtype)
    same(run_block(block, x), block.eval()(x))
    assert not torch.allclose(block.train()(x), block.eval()(x))


def test_another_self_attention_can_be_put_in(dtype: torch.dtype) -> None:
    """With attention that returns zeros only the MLP is left."""
    block = small_block(dtype)
    x = random(2, 5, 6, dtype=dtype)
    same(run_block(block, x, torch.zeros_like), x + block.mlp(block.mlp_norm(x)))


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


def measure(**settings: Any) -> tuple[float, float, Tensor]:
    """Gradient at the first and last of twelve blocks, and what comes out at the top."""
    torch.manual_seed(0)
    blocks = stack(dataclasses.replace(DEEP, **settings), 12)
    x = torch.randn(2, 12, 32)
    norms = gradient_norms(blocks, x)
    return norms[0], norms[-1], run_stack(blocks, x)[-1]


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("mlp_width", [0, 128])
def test_with_residuals_and_norms_the_first_block_learns_too(norm: Any, pre_norm: bool, mlp_width: int) -> None:
    first, last, _ = measure(norm=norm, pre_norm=pre_norm, mlp_width=mlp_width)
    assert 0.3 < first / last < 3


def test_without_residuals_the_gradient_dies_on_its_way_down() -> None:
    first, last, _ = measure(residual=False, norm="none")
    assert first / last < 1e-10


def test_without_residuals_norms_save_the_gradient_and_not_the_words() -> None:
    """The gradient is of a healthy size, and yet every position holds the same vector."""
    first, last, top = measure(residual=False)
    assert 0.1 < first / last < 10
    assert similarity(top) > 0.999
    assert similarity(measure()[2]) < 0.8


def test_without_norms_the_stream_grows_with_the_weights() -> None:
    """Three times the weights are 10^10 times the output without norms, and less than thirty times with them."""
    tops = {}
    for norm, gain in itertools.product(("none", "layer"), (1, 3)):
        torch.manual_seed(0)
        blocks = stack(dataclasses.replace(DEEP, norm=norm), 12)
        with torch.no_grad():
            for parameter in nn.ModuleList(blocks).parameters():
                parameter.mul_(gain if parameter.dim() == 2 else 1)
        tops[norm, gain] = rms(run_stack(blocks, torch.randn(2, 12, 32))[-1])
    assert tops["none", 3] / tops["none", 1] > 1e6
    assert tops["layer", 3] / tops["layer", 1] < 30
    assert math.isfinite(tops["none", 3])
