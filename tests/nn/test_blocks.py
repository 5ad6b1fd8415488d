"""All forms of the block, compared with the layers of PyTorch with the same parameters, in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import BlockConfig
from jumok.nn.blocks import Block

C, HEADS, HIDDEN = 16, 4, 24
PLAIN = BlockConfig(width=C, n_head=HEADS, n_kv_head=HEADS, head_dim=4, mlp_width=HIDDEN, activation="relu")
NORMS = pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "gelu"])


def random_block(config: BlockConfig, **kinds: Any) -> Block:
    """A float64 block with random parameters, also in the norms."""
    torch.manual_seed(0)
    block = Block(config, **kinds).double().eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block


@torch.no_grad()
def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    """Copy the parameters; the layer of PyTorch has q, k and v in one matrix."""
    theirs.in_proj_weight.copy_(torch.cat([getattr(ours, f"{name}_proj").weight for name in "qkv"]))
    theirs.in_proj_bias.copy_(torch.cat([getattr(ours, f"{name}_proj").bias for name in "qkv"]))
    theirs.out_proj.load_state_dict(ours.o_proj.state_dict())


def stock_layer(block: Block, activation: str) -> nn.Module:
    """The same block as nn.TransformerEncoderLayer, or as nn.TransformerDecoderLayer if it has cross-attention."""
    cross = block.cross_attention is not None
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(C, HEADS, HIDDEN, 0.0, activation, norm_first=block.pre_norm, batch_first=True, dtype=torch.float64)
    copy_attention(block.attention, layer.self_attn)
    norms = [block.attention_norm, *([block.cross_norm] if cross else []), block.mlp_norm]
    pairs = [(norm, getattr(layer, f"norm{i}")) for i, norm in enumerate(norms, 1)]
    pairs += [(block.mlp.up_proj, layer.linear1), (block.mlp.down_proj, layer.linear2)]
    if cross:
        copy_attention(block.cross_attention, layer.multihead_attn)
    for ours, theirs in pairs:
        theirs.load_state_dict(ours.state_dict())
    return layer.train()  # its eval mode may take a path of its own; there is no dropout


def inputs(length: int = 6, context: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, length, C, generator=generator, dtype=torch.float64)
    return x, torch.randn(2, context, C, generator=generator, dtype=torch.float64)


def padding(length: int) -> Tensor:
    """(B, S), True where there is a token."""
    return torch.arange(length) < torch.tensor([[length], [length // 2]])


def assert_equal(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


# --- against PyTorch --------------------------------------------------------------------------------------------------


@NORMS
@ACTIVATIONS
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_an_encoder_block_is_that_of_pytorch(pre_norm: bool, activation: str, masked: bool):
    block = random_block(dataclasses.replace(PLAIN, pre_norm=pre_norm, activation=activation), causal=False)
    x, _ = inputs()
    there = padding(6)
    wanted = stock_layer(block, activation)(x, src_key_padding_mask=~there if masked else None)
    found = block(x, mask=there[:, None, None, :] if masked else None)
    assert_equal(found[there] if masked else found, wanted[there] if masked else wanted)


@NORMS
@ACTIVATIONS
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_a_decoder_block_is_that_of_pytorch(pre_norm: bool, activation: str, masked: bool):
    """Causal self-attention, then cross-attention with a mask for the padding of the context."""
    block = random_block(dataclasses.replace(PLAIN, pre_norm=pre_norm, activation=activation), cross=True)
    x, context = inputs()
    there = padding(9)
    triangle = torch.ones(6, 6, dtype=torch.bool).triu(1)  # True there means "may not"
    wanted = stock_layer(block, activation)(
        x, context, tgt_mask=triangle, memory_key_padding_mask=~there if masked else None
    )
    assert_equal(block(x, context=context, context_mask=there[:, None, None, :] if masked else None), wanted)


@NORMS
@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
def test_gradients_are_those_of_pytorch(pre_norm: bool, cross: bool):
    block = random_block(dataclasses.replace(PLAIN, pre_norm=pre_norm), causal=cross, cross=cross)
    layer = stock_layer(block, "relu")
    x, context = inputs()
    triangle = torch.ones(6, 6, dtype=torch.bool).triu(1)
    (block(x, context=context) if cross else block(x)).square().sum().backward()
    (layer(x, context, tgt_mask=triangle) if cross else layer(x)).square().sum().backward()
    scale = float(layer.linear1.weight.grad.abs().max())
    for ours, theirs in ((block.mlp.up_proj, layer.linear1), (block.attention.o_proj, layer.self_attn.out_proj)):
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=0, atol=1e-12 * max(1, scale))


# --- its parts --------------------------------------------------------------------------------------------------------


@NORMS
@torch.no_grad()
def test_a_block_without_a_residual_replaces(pre_norm: bool):
    block = random_block(dataclasses.replace(PLAIN, pre_norm=pre_norm, residual=False))
    x, _ = inputs()
    y = x
    for norm, part in ((block.attention_norm, lambda z: block.attention(z, causal=True)), (block.mlp_norm, block.mlp)):
        y = part(norm(y)) if pre_norm else norm(part(y))
    assert_equal(block(x), y)


@torch.no_grad()
def test_a_block_without_an_mlp_or_a_norm():
    x, _ = inputs()
    block = random_block(dataclasses.replace(PLAIN, mlp_width=0))
    assert block.mlp is None
    assert_equal(block(x), x + block.attention(block.attention_norm(x), causal=True))
    bare = random_block(dataclasses.replace(PLAIN, norm="none", mlp_width=0))
    assert not any("norm" in name for name, _ in bare.named_parameters())
    assert_equal(bare(x), x + bare.attention(x, causal=True))


@torch.no_grad()
def test_the_mask_comes_on_top_of_the_causal_one():
    block = random_block(PLAIN)
    x, _ = inputs()
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[4, 1] = False
    changed = x.clone()
    changed[:, 1] *= -1  # a constant would vanish in the norm
    assert torch.equal(block(changed, mask=mask)[:, 0], block(x, mask=mask)[:, 0])  # the past does not see position 1
    assert torch.equal(block(changed, mask=mask)[:, 4], block(x, mask=mask)[:, 4])  # nor does position 4
    assert not torch.allclose(block(changed, mask=mask)[:, 5], block(x, mask=mask)[:, 5])


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_a_context_is_needed_where_there_is_cross_attention_and_nowhere_else():
    """Otherwise a block would silently attend to itself, or ignore the context."""
    x, context = inputs()
    with pytest.raises(ValueError, match="has cross-attention and needs a context"):
        random_block(PLAIN, cross=True)(x)
    with pytest.raises(ValueError, match="has no cross-attention and takes no context; create it with cross=True"):
        random_block(PLAIN)(x, context=context)
