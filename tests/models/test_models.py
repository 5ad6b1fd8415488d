"""Properties of all models: names, initialisation, loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.models import Model, build
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import IGNORED, cross_entropies

CONFIGS: dict[str, type[GPTConfig | BERTConfig | EncoderDecoderConfig]] = {
    "gpt": GPTConfig,
    "bert": BERTConfig,
    "encoder_decoder": EncoderDecoderConfig,
}
EACH = pytest.mark.parametrize("kind", CONFIGS)
SIZES: dict[str, Any] = {"vocab_size": 37, "context_length": 12, "n_layer": 1, "n_head": 2, "n_embd": 8}


def tiny(kind: str) -> Model:
    torch.manual_seed(0)
    return build(CONFIGS[kind](**SIZES)).eval()


def hidden_of(model: Model, ids: Tensor, **inputs: Any) -> Tensor:
    """The last hidden states; the source of an encoder–decoder is the same text."""
    if isinstance(model, EncoderDecoder):
        return model.hidden(ids, model.encode(ids[:, :3]), **inputs)
    return model.hidden(ids, **inputs)


@EACH
@torch.no_grad()
def test_hidden_is_what_the_output_layer_reads(kind: str) -> None:
    """`hidden` returns the input of the head of a GPT, the heads of a BERT, and the tied output layer of an
    encoder–decoder."""
    model, ids = tiny(kind), torch.arange(5)[None]
    hidden = hidden_of(model, ids)
    assert hidden.shape == (1, 5, 8)
    if isinstance(model, BERT):
        assert torch.equal(model(ids), hidden)
    elif isinstance(model, EncoderDecoder):
        assert torch.equal(model(ids[:, :3], ids), model.logits(hidden))
    else:
        assert torch.equal(model(ids), model.head(hidden))


@EACH
def test_the_message_for_a_text_that_is_too_long_is_the_same(kind: str) -> None:
    """There were three different messages."""
    model = tiny(kind)
    with pytest.raises(ValueError, match=r"^13 tokens exceed the context of 12; cut the "):
        hidden_of(model, torch.zeros(1, 13, dtype=torch.long))
    if isinstance(model, BERT):
        return  # it has no cache
    cache = model.new_cache()
    with torch.no_grad():
        hidden_of(model, torch.zeros(1, 9, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match=r"^13 tokens exceed the context of 12; the cache holds 9 of them: begin"):
        hidden_of(model, torch.zeros(1, 4, dtype=torch.long), cache=cache)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropies_by_hand(smoothing: float) -> None:
    logits, targets = torch.randn(2, 3, 7, dtype=torch.float64), torch.tensor([[1, IGNORED, 6], [0, 3, 3]])
    surprise = -logits.log_softmax(-1)  # (2, 3, 7)
    right = surprise.gather(2, targets.clamp(min=0)[..., None]).squeeze(2)
    wanted = (1 - smoothing) * right + smoothing * surprise.mean(-1)
    losses = cross_entropies(logits, targets, smoothing)
    assert losses[0, 1] == 0
    torch.testing.assert_close(losses, wanted.where(targets != IGNORED, 0.0))


def test_losses_of_half_precision_are_float32() -> None:
    """A sum over thousands of tokens in bfloat16 has three digits at best."""
    logits, targets = torch.randn(4, 300).bfloat16(), torch.arange(4)
    losses = cross_entropies(logits, targets)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, F.cross_entropy(logits.float(), targets, reduction="none"))
