"""The loss by position against a double loop that predicts one token at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from jumok.config import GPTConfig
from jumok.errors import JumokError, TextError
from jumok.evaluation.by_position import loss_by_position
from jumok.evaluation.language_model import evaluate_text
from jumok.models.gpt import GPT
from jumok.models.special_ids import start_ids
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
CONTEXT = 8


def tiny(kind: str = "char") -> GPT:
    tokenizer = train_tokenizer(TEXT, kind)
    torch.manual_seed(0)
    shape = {"context_length": CONTEXT, "n_layer": 1, "n_head": 2, "n_embd": 16}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def losses_by_hand(model: GPT, ids: list[int]) -> np.ndarray:
    """Each position of each whole window by itself: (windows, CONTEXT)."""
    assert model.tokenizer is not None
    given = [*start_ids(model.config, model.tokenizer), *ids]
    found = []
    for start in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        for i in range(CONTEXT):
            with torch.no_grad():
                logits = model(torch.tensor([given[start : start + i + 1]]))[0, -1]
            found.append(-float(logits.log_softmax(-1)[given[start + i + 1]]))
    return np.array(found).reshape(-1, CONTEXT)


@pytest.mark.parametrize("kind", ["char", "jamo"])
def test_each_position_of_each_window(kind: str) -> None:
    model = tiny(kind)
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(TEXT).tolist()
    assert len(ids) % CONTEXT  # the rest of the text is no whole window
    means, per_char = losses_by_hand(model, ids).mean(axis=0), len(ids) / len(TEXT)
    found = loss_by_position(model, TEXT)
    bins = [(0, 1), (1, 2), (2, 3), (3, 5), (5, 7), (7, 8)]  # of positions
    np.testing.assert_allclose(found.nats_per_char, [means[a:b].mean() * per_char for a, b in bins])
    np.testing.assert_allclose(found.context_chars, [np.arange(a + 1, b + 1).mean() / per_char for a, b in bins])
    assert found.tokens == len(ids) // CONTEXT * CONTEXT


def test_a_text_shorter_than_the_context() -> None:
    """Its only window predicts what `evaluate_text` predicts."""
    model, text = tiny(), "나는 갔다"
    found = loss_by_position(model, text)
    weights = [1, 1, 1, 2]  # positions in each bin
    assert found.context_chars == (1.0, 2.0, 3.0, 4.5)
    mean = np.average(found.nats_per_char, weights=weights)
    assert math.isclose(mean, evaluate_text(model, text).nats_per_char, rel_tol=1e-9)


def test_windows_of_a_long_text_are_sampled() -> None:
    model = tiny()
    found = loss_by_position(model, TEXT, most_tokens=3 * CONTEXT)
    assert found.tokens == 3 * CONTEXT
    assert len(found.nats_per_char) == 6


def test_what_has_no_losses() -> None:
    model = tiny()
    with pytest.raises(TextError, match="empty"):
        loss_by_position(model, "")
    with torch.no_grad():
        model.norm.weight.fill_(math.nan)
    with pytest.raises(JumokError, match="not finite"):
        loss_by_position(model, TEXT)
