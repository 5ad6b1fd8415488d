"""Chapter 15, two sequences and padding: cross-attention, batches of different lengths, encoder and decoder blocks.

In cross-attention the queries come from one sequence, and keys and values from another; nothing else changes. Padding
fills a batch up to its longest sequence, and a mask keeps it out of the result. Chapter 7
(`jumok.course.chapters.block_parts`) covers the parts of a block and how they are combined.

Shapes use the legend of `jumok.nn.attention`.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, sections 3.1 and 3.2.3; the first attention of
this kind: https://arxiv.org/abs/1409.0473.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from jumok.course.chapters.block_parts import run_block
from jumok.course.chapters.dot_product import attend_by_loop
from jumok.course.chapters.heads import attend_by_heads, key_head, split
from jumok.nn import Block, MultiHeadAttention


def cross_attention_by_loop(attention: MultiHeadAttention, x: Tensor, context: Tensor) -> Tensor:
    """Cross-attention by the loop of chapter 3, one pair of a query and a key at a time.

    Args:
        attention: any layer without norms on q and k. x: (B, T, d_in), or (T, d_in). context: (B, S, d_context), or
            (S, d_context), with at least one position.

    Returns:
        (B, T, d_out), or (T, d_out); equal to `attention(x, context)` without dropout.

    Raises:
        ValueError: the layer has norms on q and k.
    """
    if attention.q_norm is not None:
        raise ValueError("this lesson has no norms on q and k; make the layer without qk_norm")
    q = split(attention.q_proj(x), attention.n_head) / math.sqrt(attention.head_dim)  # (B, H, T, D)
    k = split(attention.k_proj(context), attention.n_kv_head)  # (B, G, S, D)
    v = split(attention.v_proj(context), attention.n_kv_head)  # (B, G, S, D)
    heads = []
    for h in range(attention.n_head):
        g = key_head(h, attention.n_head, attention.n_kv_head)
        heads.append(attend_by_loop(q[..., h, :, :], k[..., g, :, :], v[..., g, :, :]))  # (B, T, D)
    merged = torch.cat(heads, dim=-1)  # (B, T, H*D)
    return merged if attention.o_proj is None else attention.o_proj(merged)


def padding_mask(lengths: Sequence[int], s: int) -> Tensor:
    """A mask of the positions that are words, not padding, for each sequence of a batch.

    Args:
        lengths: of the B sequences, each from 0 to s. s: length of the batch, S.

    Returns:
        (B, 1, 1, S), bool, True for words: the same for all heads and all queries.

    Raises:
        ValueError: a length is out of range.
    """
    mask = torch.zeros(len(lengths), 1, 1, s, dtype=torch.bool)
    for b, length in enumerate(lengths):
        if not 0 <= length <= s:
            raise ValueError(f"length {length} of sequence {b} is out of range: it must be from 0 to {s}")
        mask[b, ..., :length] = True
    return mask


def pad(sequences: Sequence[Tensor], value: float = 0.0) -> tuple[Tensor, Tensor]:
    """A batch of sequences of different lengths.

    Args:
        sequences: B tensors, (S_b, C) each. value: the value of the padding.

    Returns:
        The batch, (B, S, C) with S the longest of the lengths, and its `padding_mask`, (B, 1, 1, S).

    Raises:
        ValueError: there are no sequences, or their widths differ.
    """
    widths = sorted({sequence.shape[-1] for sequence in sequences})
    if len(widths) != 1:
        raise ValueError(f"a batch needs at least one sequence, all of one width; the widths given are {widths}")
    longest = max(sequence.shape[0] for sequence in sequences)
    batch = sequences[0].new_full((len(sequences), longest, widths[0]), value)
    for b, sequence in enumerate(sequences):
        batch[b, : sequence.shape[0]] = sequence
    return batch, padding_mask([sequence.shape[0] for sequence in sequences], longest)


def encoder_block(block: Block, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """An encoder block: every position attends to all positions before and after it.

    Args:
        block: made with causal=False, cross=False. x: (B, S, C).
        mask: broadcastable to (B, H, S, S), as from `pad`.

    Returns:
        (B, S, C); equal to `block(x, mask=mask)` without dropout.

    Raises:
        ValueError: the block is causal or has cross-attention.
    """
    if block.causal or block.cross_attention is not None:
        raise ValueError("this is a block of a decoder; an encoder's is made with Block(config, causal=False)")
    return run_block(block, x, partial(attend_by_heads, block.attention, mask=mask))


def decoder_block(block: Block, x: Tensor, context: Tensor, *, context_mask: Tensor | None = None) -> Tensor:
    """A decoder block: causal self-attention over the target, cross-attention over the source, MLP.

    Args:
        block: made with causal=True, cross=True. x: (B, T, C), the target so far. context: (B, S, C), the encoded
            source. context_mask: broadcastable to (B, H, T, S), as from `pad`.

    Returns:
        (B, T, C); equal to `block(x, context=context, context_mask=context_mask)` without dropout.

    Raises:
        ValueError: the block is not causal or has no cross-attention.
    """
    if block.cross_attention is None or not block.causal:
        raise ValueError("this is no block of a decoder that looks across; make it with Block(config, cross=True)")
    return run_block(block, x, context=context, context_mask=context_mask)
