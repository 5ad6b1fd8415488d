"""Chapter 18: the formulas of the paper are those of the production modules, and the costs are counted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from equality import random

from jumok.config import EncoderDecoderConfig, TrainConfig
from jumok.course.chapters import transformer_2017 as paper
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import cross_entropies
from jumok.nn.attention import attention_weights
from jumok.training.optim import rate

# --- training and search ---


@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 25_000, 100_000])
def test_the_learning_rate_is_that_of_the_trainer(step: int) -> None:
    config = TrainConfig(schedule="invsqrt", warmup=0.04)
    relative = paper.learning_rate(step) / paper.learning_rate(4000)
    assert rate(config, step / 100_000) == pytest.approx(relative)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_that_of_the_loss(smoothing: float) -> None:
    logits, targets = 3 * random(6, 11), torch.tensor([0, 3, 10, 5, 5, 1])
    expected = cross_entropies(logits, targets, smoothing)
    torch.testing.assert_close(paper.smoothed_cross_entropy(logits, targets, smoothing), expected, rtol=0, atol=1e-12)


def test_the_length_penalty() -> None:
    assert paper.length_penalty(1) == 1
    assert paper.length_penalty(7, alpha=1.0) == 2
    assert paper.length_penalty(7) == pytest.approx(2**0.6)
    assert paper.length_penalty(30, alpha=0.0) == 1


# --- parameters ---


@pytest.mark.parametrize(
    "changes", [{}, {"n_decoder_layer": 3}, {"mlp_width": 20, "decoder_mlp_width": 12}, {"n_head": 1}], ids=str
)
def test_parameters_are_those_of_the_model(changes: dict[str, Any]) -> None:
    shape = {"vocab_size": 50, "context_length": 8, "n_layer": 2, "n_head": 2, "n_embd": 8, **changes}
    config = EncoderDecoderConfig(**shape, family="original")
    assert sum(paper.parameter_table(config).values()) == EncoderDecoder(config).parameter_count()


def test_the_base_model_has_63_million_parameters() -> None:
    config = EncoderDecoderConfig(vocab_size=37_000, n_layer=6, n_head=8, n_embd=512, family="original")
    assert sum(paper.parameter_table(config).values()) == 63_082_496


# --- the cost of layers ---


def test_self_attention_is_that_of_production() -> None:
    x = random(7, 4)
    expected = attention_weights(x[None], x[None])[0] @ x
    torch.testing.assert_close(paper.self_attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reach", [1, 3, 7, 9])
def test_restricted_attention_is_a_mask(reach: int) -> None:
    x = random(7, 4)
    apart = torch.arange(7)[:, None] - torch.arange(7)
    expected = attention_weights(x[None], x[None], mask=(apart >= 0) & (apart < reach))[0] @ x
    torch.testing.assert_close(paper.restricted_attention(x, reach), expected, rtol=0, atol=1e-12)


def test_a_recurrent_layer() -> None:
    x, w, u = random(3, 4), random(4, 4, seed=1), random(4, 4, seed=2)
    first = torch.tanh(w @ x[0])
    second = torch.tanh(w @ x[1] + u @ first)
    torch.testing.assert_close(paper.recurrent(x, w, u)[:2], torch.stack((first, second)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_convolution_is_causal(dilation: int) -> None:
    x, kernel = random(7, 4), random(4, 4, 3, seed=1)
    y = paper.convolution(x, kernel, dilation)
    taps = [x[5 - (2 - j) * dilation] for j in range(3)]
    expected = torch.stack([kernel[..., j] @ taps[j] for j in range(3)]).sum(dim=0)
    torch.testing.assert_close(y[5], expected, rtol=0, atol=1e-12)
    assert y.shape == (7, 4)


def test_multiplications_are_counted() -> None:
    x, w = random(7, 4), random(4, 4)
    assert paper.count_multiplications(lambda: x @ w) == 7 * 4 * 4
    assert paper.count_multiplications(lambda: paper.self_attention(x)) == 2 * 7 * 7 * 4
    assert paper.count_multiplications(lambda: paper.recurrent(x, w, w)) == 2 * 7 * 4 * 4
    assert paper.count_multiplications(lambda: paper.convolution(x, random(4, 4, 3))) == 3 * 7 * 4 * 4
    assert paper.count_multiplications(lambda: paper.restricted_attention(x, 3)) == 2 * 3 * 7 * 4


def test_layers_until_the_ends_are_connected() -> None:
    kernel = random(4, 4, 3)
    assert paper.layers_until_connected(lambda x, number: paper.self_attention(x), 9) == 1
    for t in (8, 9, 10):
        dilated = paper.layers_until_connected(lambda x, number: paper.convolution(x, kernel, 3**number), t)
        assert dilated == math.ceil(math.log(t, 3) - 1e-9)
        narrow = paper.layers_until_connected(lambda x, number: paper.restricted_attention(x, 4), t)
        assert narrow == math.ceil((t - 1) / 3)
    with pytest.raises(ValueError, match="5 layers do not connect 5 positions"):
        paper.layers_until_connected(lambda x, number: x * 2, 5)
