"""Embeddings of texts, and the log-probabilities of given texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, JumokError, TextError
from jumok.inference.embed import embed, embed_ids
from jumok.inference.generate import score_ids
from jumok.inference.slots import window_start
from jumok.models import build
from jumok.tokenizers import train_tokenizer

TEXTS = ["나는 학교에 갔다", "집", "그리고 친구와 집에", "학교"]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]"]


def model_of(config: Any, **given: Any) -> Any:
    tokenizer = train_tokenizer("나는 학교에 갔다. 그리고 친구와 집에 왔다. " * 3, special_tokens=SPECIAL)
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 12, "vocab_size": tokenizer.vocab_size}
    model = build(config(**sizes, **given)).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.5)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("kind", ["gpt", "classifier", "bert"])
def test_an_embedding_is_the_mean_of_the_states_of_the_text(kind: str) -> None:
    model = {
        "gpt": lambda: model_of(GPTConfig),
        "classifier": lambda: model_of(GPTConfig, labels=("가", "나"), family="classic"),
        "bert": lambda: model_of(BERTConfig, head="mlm"),
    }[kind]()
    found = embed(model, TEXTS)
    assert found.shape == (4, 16)
    assert found.dtype == np.float32
    for text, row in zip(TEXTS, found, strict=True):
        ids = model.tokenizer.encode(text).tolist()
        if kind == "bert":
            ids = [model.tokenizer.special_tokens["[CLS]"], *ids, model.tokenizer.special_tokens["[SEP]"]]
        hidden = model.hidden(torch.tensor([ids]))[0]  # (T, C)
        mean = (hidden[1:-1] if kind == "bert" else hidden).mean(dim=0).float()
        np.testing.assert_allclose(row, mean.detach(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(embed_ids(model, [model.tokenizer.encode(TEXTS[1])])[0], found[1], atol=1e-6, rtol=1e-6)
    assert embed(model, []).shape == (0, 16)


def test_what_has_no_embedding() -> None:
    bert = model_of(BERTConfig)
    with pytest.raises(TextError, match="text 2 has 0 tokens"):
        embed(bert, ["가", ""])
    with pytest.raises(TextError, match="text 1 has 11 tokens; a text to embed has 1 to 10"):
        embed(bert, ["나는 학교에 갔다. 집"[:11]])
    gpt = model_of(GPTConfig)
    assert embed(gpt, ["나는 학교에 갔다. 집"[:11]]).shape == (1, 16)
    with pytest.raises(ConfigError, match="EncoderDecoder"):
        embed(model_of(EncoderDecoderConfig, pad_id=0, bos_id=4, eos_id=5, decoder_start_id=4), ["나는"])
    with torch.no_grad():
        gpt.norm.weight.fill_(torch.nan)
    with pytest.raises(JumokError, match="not finite"):
        embed(gpt, ["나는"])


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_a_score_is_what_the_model_gives_when_it_writes(family: str) -> None:
    """Over several windows: each id after the ids that the model sees when it writes."""
    model = model_of(GPTConfig, family=family)
    ids = np.random.default_rng(1).integers(0, model.tokenizer.vocab_size, 40).tolist()
    found = score_ids(model, ids, top=3)
    assert [one.id for one in found] == ids
    assert (found[0].log_probability, found[0].top) == (None, ())
    for place in range(1, len(ids)):
        seen = ids[window_start(place, 12) : place]
        exact = model(torch.tensor([seen]))[0, -1].detach().log_softmax(dim=-1)  # (V,)
        assert found[place].log_probability == pytest.approx(float(exact[ids[place]]), abs=1e-5)
        best = exact.topk(3)
        assert [token for token, _ in found[place].top] == best.indices.tolist()
        assert [value for _, value in found[place].top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_the_score_of_little() -> None:
    model = model_of(GPTConfig)
    assert score_ids(model, []) == []
    assert [one.log_probability for one in score_ids(model, [5])] == [None]
    assert score_ids(model, [5, 6], top=0)[1].top == ()
