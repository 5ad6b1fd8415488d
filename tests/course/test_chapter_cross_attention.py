"""Chapter 6: cross-attention by loops, padding without influence, encoder and decoder blocks taken apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from equality import DTYPES, assert_close
from torch import Tensor

from jumok.config import BlockConfig
from jumok.course.chapters.cross_attention import (
    cross_attention_by_loop,
    decoder_block,
    encoder_block,
    pad,
)
from jumok.course.chapters.heads import attend_by_heads
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import Block

KINDS: dict[str, dict[str, Any]] = {
    "paper": {"activation": "relu", "pre_norm": False},
    "classic": {"activation": "gelu_tanh"},
    "modern": {"activation": "silu", "gated": True, "norm": "rms", "qk_norm": True, "qkv_bias": False, "n_kv_head": 1},
    "bare": {"activation": "relu", "norm": "none", "residual": False, "mlp_width": 0},
}


def make_block(kind: str, dtype: torch.dtype, *, causal: bool, cross: bool, **changes: Any) -> Block:
    torch.manual_seed(0)
    fields = {"width": 6, "n_head": 3, "n_kv_head": 3, "head_dim": 2, "mlp_width": 10, **KINDS[kind], **changes}
    return Block(BlockConfig(**fields), causal=causal, cross=cross).to(dtype)


def sequences(*lengths: int, width: int = 6, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(length, width, dtype=dtype) for length in lengths]


# --- cross-attention ---


@DTYPES
@pytest.mark.parametrize(("t", "s"), [(3, 5), (5, 3), (1, 1)])
@pytest.mark.parametrize(("n_head", "n_kv_head"), [(1, 1), (4, 4), (4, 2)])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "project": False}, {"head_dim": 3}])
def test_cross_attention_by_loop_equals_the_layer(
    t: int, s: int, n_head: int, n_kv_head: int, options: dict[str, Any], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(5, 8, n_head, n_kv_head=n_kv_head, d_context=7, **options).to(dtype)
    x, context = torch.randn(t, 5, dtype=dtype), torch.randn(s, 7, dtype=dtype)
    expected = attention(x, context)
    assert_close(cross_attention_by_loop(attention, x, context), expected)
    assert_close(attend_by_heads(attention, x, context), expected)
    batch, contexts = torch.stack((x, x + 1)), torch.stack((context, context - 1))
    for way in (attend_by_heads, cross_attention_by_loop):
        assert_close(way(attention, batch, contexts), attention(batch, contexts))


# --- padding ---


def test_pad_fills_up_and_tells_what_is_real() -> None:
    batch, mask = pad([torch.ones(1, 2), torch.ones(3, 2)], value=9.0)
    assert batch.tolist() == [[[1, 1], [9, 9], [9, 9]], [[1, 1], [1, 1], [1, 1]]]
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[True, False, False], [True, True, True]]


@DTYPES
@pytest.mark.parametrize("filling", [0.0, 100.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(2, 5), (1, 1), (4, 1, 7), (20, 3)])
def test_padded_equals_alone(lengths: tuple[int, ...], causal: bool, filling: float, dtype: torch.dtype) -> None:
    """Whatever the padding holds: self-attention, in the layer and head by head."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 6, 2).to(dtype)
    alone = sequences(*lengths, dtype=dtype)
    batch, mask = pad(alone, filling)
    for together in (
        attention(batch, mask=mask, causal=causal),
        attend_by_heads(attention, batch, mask=mask, causal=causal),
    ):
        for row, sequence in zip(together, alone, strict=True):
            assert_close(row[: sequence.shape[0]], attention(sequence, causal=causal))


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_padded_source_and_target_equal_the_pair_alone(kind: str, dtype: torch.dtype) -> None:
    """A whole encoder and decoder block: each pair of a batch comes out as if it were the only one."""
    encoder = make_block(kind, dtype, causal=False, cross=False)
    decoder = make_block(kind, dtype, causal=True, cross=True)
    sources, targets = sequences(4, 2, 7, dtype=dtype), sequences(3, 6, 1, dtype=dtype)
    source, source_mask = pad(sources)
    target, _ = pad(targets)  # the causal mask already hides what comes after the last word
    together = decoder(target, context=encoder(source, mask=source_mask), context_mask=source_mask)
    for row, one, other in zip(together, sources, targets, strict=True):
        alone = decoder(other[None], context=encoder(one[None]))[0]
        assert_close(row[: other.shape[0]], alone)


# --- blocks ---


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_blocks_by_steps_equal_the_blocks(masked: bool, kind: str, dtype: torch.dtype) -> None:
    encoder = make_block(kind, dtype, causal=False, cross=False)
    decoder = make_block(kind, dtype, causal=True, cross=True)
    source, mask = pad(sequences(5, 3, dtype=dtype))
    target = torch.stack(sequences(4, 4, dtype=dtype))
    chosen = mask if masked else None
    encoded = encoder(source, mask=chosen)
    assert_close(encoder_block(encoder, source, mask=chosen), encoded)
    expected = decoder(target, context=encoded, context_mask=chosen)
    assert_close(decoder_block(decoder, target, encoded, context_mask=chosen), expected)
