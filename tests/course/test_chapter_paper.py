"""Chapter 17: what the paper of 2017 computes is what PyTorch and jumok compute, and its blocks are those of jumok."""

from __future__ import annotations

import math

import pytest
import torch
from equality import assert_close, random, randomise
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig, TrainConfig
from jumok.course.chapters import transformer_2017 as paper
from jumok.course.chapters.dot_product import attend
from jumok.course.chapters.head import causal_mask
from jumok.course.chapters.post_norm import DecoderBlock, PostNormBlock
from jumok.nn import Block
from jumok.nn.attention import attention_weights
from jumok.training import optim

CONFIG = EncoderDecoderConfig(vocab_size=50, context_length=8, n_layer=2, n_head=2, n_embd=8, family="original")
PADDING = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None, :]  # (B, 1, 1, S)


def test_the_block_of_the_encoder() -> None:
    own, theirs = PostNormBlock(8, 2, activation=F.relu), Block(CONFIG.encoder_block(), causal=False).double().eval()
    randomise(own)
    theirs.load_state_dict(own.state_dict())
    x = random(2, 5, 8)
    assert_close(own(x, PADDING), theirs(x, mask=PADDING))


def test_the_block_of_the_decoder() -> None:
    own, theirs = DecoderBlock(8, 2), Block(CONFIG.decoder_block(), cross=True).double().eval()
    randomise(own)
    theirs.load_state_dict(own.state_dict())
    x, context = random(2, 4, 8), random(2, 5, 8, seed=1)
    expected = theirs(x, context=context, context_mask=PADDING)
    assert_close(own(x, context, causal_mask(4), PADDING), expected)


def test_the_learning_rate_of_the_paper_is_that_of_the_trainer() -> None:
    config = TrainConfig(schedule="invsqrt", warmup=0.04)
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        relative = paper.paper_learning_rate(step) / paper.paper_learning_rate(4000)
        assert optim.rate(config, step / 100_000) == pytest.approx(relative)


def test_label_smoothing_is_that_of_pytorch() -> None:
    logits, targets = 3 * random(6, 11), torch.tensor([0, 3, 10, 5, 5, 1])
    expected = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")
    assert_close(paper.smoothed_cross_entropy(logits, targets, 0.1), expected)


def test_the_length_penalty() -> None:
    assert paper.paper_length_penalty(7, alpha=1.0) == 2
    assert paper.paper_length_penalty(7) == pytest.approx(2**0.6)


def test_layers_of_the_paper() -> None:
    x, kernel = random(7, 4), random(4, 4, 3)
    apart = torch.arange(7)[:, None] - torch.arange(7)
    near = attention_weights(x[None], x[None], mask=(apart >= 0) & (apart < 3))[0] @ x
    assert_close(paper.restricted_attention(x, 3), near)
    for dilation in (1, 2):
        taps = [x[5 - (2 - j) * dilation] for j in range(3)]
        expected = torch.stack([kernel[..., j] @ taps[j] for j in range(3)]).sum(dim=0)
        assert_close(paper.convolution(x, kernel, dilation)[5], expected)


def test_multiplications_are_counted() -> None:
    x = random(7, 4)
    assert paper.count_multiplications(lambda: attend(x, x, x)) == 2 * 7 * 7 * 4
    assert paper.count_multiplications(lambda: paper.convolution(x, random(4, 4, 3))) == 3 * 7 * 4 * 4
    assert paper.count_multiplications(lambda: paper.restricted_attention(x, 3)) == 2 * 3 * 7 * 4


def test_layers_until_the_ends_are_connected() -> None:
    kernel = random(4, 4, 3)
    assert paper.layers_until_connected(lambda x, number: attend(x, x, x), 9) == 1
    for t in (8, 9, 10):
        dilated = paper.layers_until_connected(lambda x, number: paper.convolution(x, kernel, 3**number), t)
        assert dilated == math.ceil(math.log(t, 3) - 1e-9)
        narrow = paper.layers_until_connected(lambda x, number: paper.restricted_attention(x, 4), t)
        assert narrow == math.ceil((t - 1) / 3)
    with pytest.raises(ValueError, match="5 layers do not connect 5 positions"):
        paper.layers_until_connected(lambda x, number: x * 2, 5)
