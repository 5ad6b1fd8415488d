"""Classes and embeddings that the C++ step computes are those of PyTorch, whatever the pooling, length and batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from jumok.config import Frame, GPTConfig
from jumok.errors import JumokError, TextError
from jumok.inference.classify import predict, predict_whole
from jumok.inference.embed import embed
from jumok.inference.native import whole_texts
from jumok.inference.native.parameters import NativeModel
from jumok.inference.native.whole_texts import BATCH_IDS, hidden_states
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer

LABELS = ("나쁨", "보통", "좋음")
SENTENCE = "그리고 친구와 집에 왔다! 정말 재미있게 봤어요, 시간이 아까워요. "
TEXTS = ["봤어요", "그냥 그래요", SENTENCE * 30, "집", "", SENTENCE, *[SENTENCE[n:] * 3 for n in range(9)], " "]


pytestmark = pytest.mark.compile


@pytest.fixture(scope="module", autouse=True)
def built(native_cache: str) -> Iterator[None]:
    """The C++ step, built once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", native_cache)
        patch.delenv("JUMOK_NATIVE", raising=False)
        yield


def make(family: str = "modern", **given: Any) -> GPT:
    """A small random GPT; with labels a classifier."""
    special = ["[PAD]", "[CLS]", "[SEP]"]
    tokenizer = train_tokenizer(SENTENCE * 3, "char", special_tokens=special)
    torch.manual_seed(1)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 300, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**sizes, family=family, **{"labels": LABELS, **given})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def native(model: GPT, kind: Any = "float32") -> NativeModel:
    tensors = {name: one.detach().numpy() for name, one in model.named_parameters()}
    return NativeModel(model.config, tensors, model.tokenizer, kind)


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_classes_are_those_of_pytorch(family: str, pooling: str) -> None:
    model = make(family, pooling=pooling)
    wanted, found = predict_whole(model, TEXTS), predict_whole(native(model), TEXTS)
    assert [one is None for one in found] == [one is None for one in wanted]
    assert sum(one is None for one in found) == 2
    for one, other in zip(found, wanted, strict=True):
        if one is not None and other is not None:
            assert (one.label, one.cut) == (other.label, other.cut)
            assert one.probabilities == pytest.approx(other.probabilities, abs=2e-6)
    assert found[2] is not None
    assert found[2].cut
    assert len({tuple(one.probabilities.values()) for one in found if one is not None}) > 8  # they differ


@pytest.mark.parametrize("given", [{"labels": ()}, {}, {"labels": (), "family": "classic"}])
def test_embeddings_are_those_of_pytorch(given: dict[str, Any]) -> None:
    model, texts = make(**given), [text for text in TEXTS if 0 < len(text) <= 300]
    np.testing.assert_allclose(embed(native(model), texts), embed(model, texts), atol=1e-5, rtol=1e-5)
    assert embed(native(model), []).shape == (0, 32)
    with pytest.raises(TextError, match="text 1 has 1,"):
        embed(native(model), [TEXTS[2]])


def test_ids_before_a_text_are_read_and_not_counted() -> None:
    model = make(labels=())
    assert model.tokenizer is not None
    model.config = dataclasses.replace(model.config, frame=Frame(before=(5,)))
    np.testing.assert_allclose(embed(native(model), ["봤어요"]), embed(model, ["봤어요"]), atol=1e-5, rtol=1e-5)
    ids = torch.tensor([[5, *model.tokenizer.encode("봤어요").tolist()]])
    with torch.no_grad():
        np.testing.assert_allclose(embed(native(model), ["봤어요"])[0], model.hidden(ids)[0, 1:].mean(0), atol=1e-5)


def test_a_row_does_not_depend_on_the_others() -> None:
    """Bit for bit: in batches of any number of ids, and for rows that are longer than a batch or a chunk."""
    model = native(make())
    random = np.random.default_rng(0)
    sizes = [1, 300, 257, 256, 255, 40, *random.integers(1, 60, 60).tolist(), 300, 300, 300, 300, 300]
    rows = [random.integers(0, model.config.vocab_size, n).astype(np.uint32) for n in sizes]
    assert sum(sizes) > 3 * BATCH_IDS
    for row, hidden in zip(rows, hidden_states(model, rows), strict=True):
        [alone] = hidden_states(model, [row])
        assert hidden.shape == (len(row), 32)
        assert np.array_equal(hidden, alone)


def test_few_texts_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slots: list[int] = []

    class Counted(whole_texts.NativeSlots):
        def __init__(self, model: NativeModel, count: int) -> None:
            slots.append(count)
            super().__init__(model, count)

    monkeypatch.setattr(whole_texts, "NativeSlots", Counted)
    rows = [np.ones(100, np.uint32)] * 95
    states: Iterator[Any] = hidden_states(native(make()), rows)
    next(states)
    assert slots == [BATCH_IDS // 100]  # nothing is read before it is asked for
    assert len(list(states)) == 94
    assert max(slots) == BATCH_IDS // 100


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_what_is_not_finite_fails_alone(pooling: str) -> None:
    model = make(pooling=pooling)
    assert model.tokenizer is not None
    with torch.no_grad():
        model.token_embedding.weight[int(model.tokenizer.encode("봤")[0])] = math.nan
    found = predict(native(model), ["집에", "봤어요", "왔다"])
    assert [one.label is None for one in found] == [False, True, False]
    with pytest.raises(JumokError, match="not finite"):
        predict(native(model), ["봤"])
    with pytest.raises(JumokError, match="not finite"):
        embed(native(model), ["봤"])


@pytest.mark.parametrize("number", [math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_damaged_parameters_are_told_once(pooling: str, number: float) -> None:
    """NumPy warned besides, on standard error and as an exception of programs that make warnings errors."""
    model = make(pooling=pooling)
    with torch.no_grad():
        model.norm.weight.fill_(number)
    for task in (predict, embed):
        with pytest.raises(JumokError, match="not finite"):
            task(native(model), ["집에 왔다"])


def test_large_logits_do_not_overflow() -> None:
    model = make()
    with torch.no_grad():
        model.classifier.weight.mul_(1e4)  # type: ignore[union-attr]
    [found] = predict(native(model), ["집에 왔다"])
    assert sum(found.probabilities.values()) == pytest.approx(1)


def test_a_model_without_labels_is_told_by_its_name() -> None:
    with pytest.raises(JumokError, match="this GPT is not a classifier"):
        predict(native(make(labels=())), ["집"])


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_quantised_classes_are_close(kind: str) -> None:
    model = make(pooling="mean")
    for one, other in zip(predict(native(model, kind), TEXTS[:2]), predict(model, TEXTS[:2]), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=0.2)
