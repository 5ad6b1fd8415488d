"""TextEvaluation against a double loop that predicts one token at a time."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from jumok.config import GPTConfig
from jumok.errors import ConfigError, JumokError, TextError, TokenizerError
from jumok.evaluation.language_model import evaluate_text, score, windows
from jumok.models.gpt import GPT
from jumok.text import read
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
UNSEEN = "鬼가 웃었다 😀! 나는 갔다.\n" * 4  # Hanja and emoji are spelled in bytes
CONTEXT = 8


def tiny(kind: str = "char", **changes: Any) -> GPT:
    tokenizer = train_tokenizer(TEXT, kind)
    torch.manual_seed(0)
    shape = {"context_length": CONTEXT, "n_layer": 2, "n_head": 2, "n_embd": 16, **changes}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def some_ids(length: int, vocab: int = 40) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, vocab, length).astype(np.uint16)


def by_hand(model: GPT, ids: list[int], stride: int, first: int) -> float:
    """Each token by itself, from the window that the docstring of `evaluate_text` promises.

    `ids` holds what stands before the text as well; tokens from `first` on are predicted.
    """
    context = model.config.context_length
    last = max(0, len(ids) - 1 - context)  # where the last window begins
    nats = 0.0
    for i in range(first, len(ids)):
        reached = i - 1  # the position that token i is predicted at
        moves = max(0, math.ceil((reached - (context - 1)) / stride))
        start = min(moves * stride, last)
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:i]]))[0, -1]
        nats -= float(logits.log_softmax(-1)[ids[i]])
    return nats


# --- bad input --------------------------------------------------------------------------------------------------------


def test_an_empty_text_is_refused():
    with pytest.raises(TextError, match="empty"):
        evaluate_text(tiny(), "")


@pytest.mark.parametrize(("stride", "message"), [(0, "between 1 and 8"), (-3, "between 1"), (9, "between 1 and 8")])
def test_a_stride_out_of_range_is_refused(stride: int, message: str):
    with pytest.raises(ConfigError, match=f"stride={stride} is out of range: it must be {message}"):
        evaluate_text(tiny(), TEXT, stride=stride)


def test_a_model_without_a_tokenizer_is_refused():
    model = tiny()
    model.tokenizer = None
    with pytest.raises(TokenizerError, match="no tokenizer"):
        evaluate_text(model, TEXT)


@pytest.mark.parametrize("length", [0, 1])
def test_ids_that_leave_nothing_to_predict_are_refused(length: int):
    with pytest.raises(TextError, match=f"a text of {length} tokens leaves none to predict"):
        score(tiny(), some_ids(length))


def test_losses_that_are_not_finite_are_an_error():
    model = tiny()
    with torch.no_grad():
        model.norm.weight[3] = math.nan
    with pytest.raises(JumokError, match="not finite"):
        evaluate_text(model, TEXT)


# --- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 3, CONTEXT])
@pytest.mark.parametrize("length", [1, CONTEXT + 1, 50])
@pytest.mark.parametrize("family", ["modern", "classic"])
def test_score_equals_a_double_loop(family: str, length: int, stride: int):
    """Texts shorter than, as long as, and longer than the context, with and without an id before them."""
    model = tiny(family=family)
    ids = some_ids(length)
    nats, tokens = score(model, ids, stride=stride, before=[7])
    assert tokens == length
    assert nats == pytest.approx(by_hand(model, [7, *ids.tolist()], stride, 1), abs=1e-9)
    if length > 1:
        nats, tokens = score(model, ids, stride=stride)
        assert tokens == length - 1
        assert nats == pytest.approx(by_hand(model, ids.tolist(), stride, 1), abs=1e-9)


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
@pytest.mark.parametrize("text", [TEXT, UNSEEN, "가", TEXT[:CONTEXT]], ids=["seen", "unseen", "one", "context"])
def test_every_field_follows_from_the_nats(kind: str, text: str):
    model = tiny(kind)
    assert model.tokenizer is not None
    ids = model.tokenizer.encode("\n" + text).tolist()
    assert ids[1:] == model.tokenizer.encode(text).tolist()
    nats = by_hand(model, ids, CONTEXT // 2, 1)
    result = evaluate_text(model, text)
    tokens, chars, size = len(ids) - 1, len(text), len(text.encode())
    assert (result.tokens, result.chars, result.bytes) == (tokens, chars, size)
    assert result.nats_per_char == pytest.approx(nats / chars, rel=1e-12)
    assert result.bits_per_char == pytest.approx(nats / chars / math.log(2), rel=1e-12)
    assert result.bits_per_byte == pytest.approx(nats / size / math.log(2), rel=1e-12)
    assert result.loss_per_token == pytest.approx(nats / tokens, rel=1e-12)
    assert result.perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-10)


def test_a_model_that_guesses_needs_log2_v_bits():
    """A number known without any model: all logits zero."""
    model = tiny()
    with torch.no_grad():
        model.norm.weight.zero_()
    result = evaluate_text(model, TEXT)
    assert result.bits_per_char == pytest.approx(math.log2(model.config.vocab_size))
    assert result.perplexity == pytest.approx(model.config.vocab_size)
    assert result.bits_per_byte == pytest.approx(result.bits_per_char * result.chars / result.bytes)


def test_a_decomposed_text_has_the_same_numbers():
    """A text in NFD has two to three times the code points; counted are the characters of its NFC."""
    model = tiny()
    decomposed = "\u1102\u1161\u1102\u1173\u11ab \u1100\u1161\u11bb\u1103\u1161."
    assert len(decomposed) == 12
    assert evaluate_text(model, decomposed) == evaluate_text(model, "나는 갔다.")
    assert evaluate_text(model, decomposed).chars == 6


def test_a_perplexity_beyond_all_floats_is_infinite():
    model = tiny()
    with torch.no_grad():
        model.norm.weight.fill_(1e6)
    result = evaluate_text(model, TEXT)
    assert result.loss_per_token > 700
    assert result.perplexity == math.inf


def test_a_text_from_a_file_has_the_same_numbers(tmp_path: Path):
    """It is encoded piece by piece and mapped from a file, since it may be larger than memory."""
    path = tmp_path / "text.txt"
    path.write_text(UNSEEN, encoding="utf-16")
    with read(path) as text:
        assert evaluate_text(tiny(), text) == evaluate_text(tiny(), UNSEEN)


def test_the_size_of_a_batch_has_no_influence(monkeypatch: pytest.MonkeyPatch):
    model = tiny()
    whole = score(model, some_ids(200), stride=2)
    monkeypatch.setattr(sys.modules["jumok.evaluation.language_model"], "LARGEST_BATCH", 3)
    assert score(model, some_ids(200), stride=2).nats == pytest.approx(whole.nats, rel=1e-12)
    monkeypatch.setattr(
        sys.modules["jumok.evaluation.language_model"], "MOST_LOGITS", 1
    )  # a vocabulary too large for two windows
    assert score(model, some_ids(200), stride=2).nats == pytest.approx(whole.nats, rel=1e-12)


def test_it_leaves_the_model_as_it_was():
    model = tiny(dropout=0.5).train()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = evaluate_text(model, TEXT)
    assert evaluate_text(model, TEXT) == first  # no dropout
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


# --- the windows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 8, 9, 100])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_windows_predict_each_token_once_with_context(count: int, stride: int):
    width = min(CONTEXT, count)
    found = windows(count, CONTEXT, stride)
    predicted = [token for start, first in found.tolist() for token in range(first, start + width)]
    assert predicted == list(range(count))
    for start, first in found.tolist():
        assert 0 <= start <= first < start + width <= count
        assert first == 0 or first - start >= CONTEXT - stride  # what stands before it in the window


def test_a_sample_of_windows_is_spread_evenly_and_always_the_same():
    everything = windows(1000, 8, 4)
    some = windows(1000, 8, 4, limit=10)
    assert len(some) == 10
    assert set(map(tuple, some.tolist())) <= set(map(tuple, everything.tolist()))
    gaps = np.diff(some[:, 0])
    assert gaps.max() - gaps.min() <= 4
    assert some[0, 0] < 100
    assert some[-1, 0] > 900
    assert np.array_equal(windows(1000, 8, 4, limit=10), some)
    assert np.array_equal(windows(1000, 8, 4, limit=10_000), everything)


def test_a_sample_is_the_sum_over_its_windows():
    model = tiny()
    ids = some_ids(300)
    chosen = windows(299, CONTEXT, 4, limit=5)
    expected = sum(
        by_hand(model, ids[start : start + CONTEXT + 1].tolist(), CONTEXT, first - start + 1)
        for start, first in chosen.tolist()
    )
    nats, tokens = score(model, ids, stride=4, max_windows=5)
    assert nats == pytest.approx(expected, rel=1e-12)
    assert tokens == sum(start + CONTEXT - first for start, first in chosen.tolist())
