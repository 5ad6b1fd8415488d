"""Heads of a new model attend to neighbouring tokens, whatever these are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.interpret.record import Recording, record
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT

SIZES: dict[str, Any] = {"vocab_size": 500, "n_layer": 2, "n_head": 4, "n_embd": 128, "context_length": 48}


def look(model: Any, *ids: Tensor) -> Recording:
    with record(model.eval()) as recording:
        model(*ids)
    return recording


def there(weights: Tensor, head: int, back: int) -> float:
    """Return the share of queries in the middle of a text whose largest weight is `distance` tokens back."""
    places = torch.arange(20, 40)
    return float((places - weights[:, head, 20:40].argmax(-1) == back).double().mean())


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_most_heads_of_a_modern_gpt_look_back_and_fewer_above(kv_heads: int) -> None:
    model = GPT(GPTConfig(**SIZES, n_kv_head=kv_heads, head_dim=64))
    recording = look(model, torch.randint(500, (8, 48)))
    for block, looking in ((0, 3), (1, 2)):
        weights = recording.attentions[block].weights()  # (B, H, T, T)
        for head in range(4):
            share = there(weights, head, head + 1)
            assert share > 0.9 if head < looking else share < 0.3, (block, head, share)


def test_heads_of_a_bert_look_to_both_sides() -> None:
    recording = look(BERT(BERTConfig(**SIZES)), torch.randint(500, (8, 48)))
    weights = recording.attentions[0].weights()  # (B, H, T, T)
    for head, back in enumerate((1, -1, 2, -2)):
        assert there(weights, head, back) > 0.6, head


def test_an_encoder_looks_to_both_sides_and_a_decoder_back() -> None:
    model = EncoderDecoder(EncoderDecoderConfig(**SIZES))
    ids = torch.randint(500, (8, 48))
    recording = look(model, ids, ids)
    for block, sides in (("encoder", (1, -1, 2, -2)), ("decoder", (1, 2, 3))):
        weights = recording.attention(block, 0).weights()  # (B, H, T, T)
        for head, back in enumerate(sides):
            assert there(weights, head, back) > 0.6, (block, head)


def test_other_families_are_initialised_as_in_their_papers() -> None:
    """GPT-2 and the Transformer of 2017 are references, so their initialisation is not changed."""
    ids = torch.randint(500, (8, 48))
    gpt = look(GPT(GPTConfig(**SIZES, family="classic")), ids).attentions[0].weights()
    paper = look(EncoderDecoder(EncoderDecoderConfig(**SIZES, family="original")), ids, ids)
    encoder = paper.attention("encoder", 0).weights()
    for head in range(4):
        assert there(gpt, head, head + 1) < 0.3
        assert there(encoder, head, (1, -1, 2, -2)[head]) < 0.3


def test_heads_too_narrow_for_an_angle_are_not_changed() -> None:
    model = BERT(BERTConfig(**{**SIZES, "n_embd": 4}))
    assert model.position_embedding.weight.detach().std() < 0.03
