"""The figures of answers: against sacrebleu, the stock loss, and by hand; and what bad pairs are told."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, JumokError, TextError
from jumok.evaluation.seq2seq import (
    corpus_scores,
    encode_pair,
    evaluate_pairs,
    whole_pairs,
)
from jumok.inference.answer import answer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.text import from_rows
from jumok.text.hangul import nfd
from jumok.tokenizers import train_tokenizer

PAIRS = [("3마리", "세 마리"), ("고양이 3마리", "고양이 세 마리"), ("3", "삼"), ("6월 5일", "유월 오일")]


@pytest.fixture
def model() -> EncoderDecoder:
    """Small, random, in float64."""
    tokenizer = train_tokenizer("".join(map("".join, PAIRS)) * 2, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    torch.manual_seed(0)
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    config = EncoderDecoderConfig(
        vocab_size=tokenizer.vocab_size, context_length=10, n_layer=1, n_head=2, n_embd=16, dropout=0.5, **ids
    )
    made = EncoderDecoder(config).double()
    made.tokenizer = tokenizer
    return made


def perfect(model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[str, str]]) -> None:
    """Let `model` answer each of the sources with its target, whatever its weights."""
    assert model.tokenizer is not None
    real = answer(model, [source for source, _ in pairs])
    found = [[dataclasses.replace(one[0], text=target)] for one, (_, target) in zip(real, pairs, strict=True)]
    monkeypatch.setattr("jumok.evaluation.seq2seq.answer_ids", lambda *_, **__: found)


# --- figures ---


def test_the_loss_by_hand(model: EncoderDecoder) -> None:
    """One pair at a time, without padding: the mean over all tokens, not over pairs."""
    nats, tokens, right = 0.0, 0, 0
    with torch.inference_mode():
        for pair in PAIRS:
            assert model.tokenizer is not None
            coded = encode_pair(model.tokenizer, model.config, pair)
            seen = torch.tensor([[1, *coded.target[:-1].tolist()]])
            logits = model.eval()(torch.from_numpy(coded.source)[None], seen)[0]
            nats += float(F.cross_entropy(logits, torch.from_numpy(coded.target), reduction="sum"))
            right += int((logits.argmax(dim=-1).numpy() == coded.target).sum())
            tokens += len(coded.target)
    model.train()
    found = evaluate_pairs(model, PAIRS)
    assert found.loss_per_token == pytest.approx(nats / tokens, rel=1e-12)
    assert found.token_accuracy == pytest.approx(right / tokens, rel=1e-12)
    assert model.training, "dropout is off meanwhile, and the mode is as before"


def test_right_answers_are_right(model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    perfect(model, monkeypatch, PAIRS)
    found = evaluate_pairs(model, PAIRS)
    assert (found.exact_match, found.rows, found.left_out, found.cut) == (1.0, 4, 0, 0)
    assert found.chrf == pytest.approx(100)
    assert found.bleu == pytest.approx(100)


def test_the_same_text_in_another_normal_form_is_the_same(
    model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with a char tokenizer may write letters one by one, which nobody can tell from syllables."""
    perfect(model, monkeypatch, [("3", nfd("삼"))])
    assert evaluate_pairs(model, [("3", "삼")]).exact_match == 1.0


def test_scores_are_those_of_sacrebleu() -> None:
    answers = ["고양이 세 마리가 집에 있다", "유월 오일", "나는 학교에 간다"]
    targets = ["고양이 네 마리가 집에 있다", "유월 육일", "나는 학교에 갔다"]
    chrf, bleu = corpus_scores(answers, targets)
    assert chrf == sacrebleu.CHRF().corpus_score(answers, [targets]).score
    assert bleu == sacrebleu.BLEU().corpus_score(answers, [targets]).score
    assert 0 < bleu < chrf < 100


def test_bleu_of_short_texts_is_not_zero() -> None:
    """No text has four words, so sacrebleu used to give 0 even to answers that were all right."""
    assert corpus_scores(["세 마리"], ["세 마리"])[1] == pytest.approx(100)


def test_beams_reach_the_search(model: EncoderDecoder) -> None:
    pairs = [(source, answer(model, [source], beam=3, max_tokens=4)[0][0].text) for source, _ in PAIRS]
    pairs = whole_pairs(pairs)
    assert pairs
    assert evaluate_pairs(model, pairs, beam=3, max_tokens=4).exact_match == 1.0


def test_cut_and_empty_rows_are_counted(model: EncoderDecoder) -> None:
    table = from_rows(("source", "target"), [*PAIRS, ("3" * 11, "삼"), ("3", " "), ("", "삼")])
    found = evaluate_pairs(model, table, max_tokens=3)
    assert (found.rows, found.left_out, found.cut) == (5, 2, 1)
    assert math.isfinite(found.loss_per_token)
    sizes = [len(text) + 1 for pair in (*PAIRS, ("3" * 9, "삼")) for text in pair]
    assert found.tokens == sum(sizes)


def test_a_cut_target_has_no_end(model: EncoderDecoder) -> None:
    assert model.tokenizer is not None
    coded = encode_pair(model.tokenizer, model.config, ("3" * 10, "삼" * 10))
    assert coded.source.tolist() == [*model.tokenizer.encode("3" * 9).tolist(), 2]
    assert coded.target.tolist() == model.tokenizer.encode("삼" * 10).tolist()
    assert (coded.is_cut, coded.longest) == (True, 11)
    whole = encode_pair(model.tokenizer, model.config, ("3" * 9, "삼" * 9))
    assert (whole.is_cut, len(whole.source), int(whole.target[-1])) == (False, 10, 2)
    assert whole.source.dtype == np.int64


# --- bad input ---


def test_other_columns_are_not_needed_and_missing_ones_named(model: EncoderDecoder) -> None:
    wide = from_rows(("id", "target", "source"), [("7", target, source) for source, target in PAIRS])
    assert evaluate_pairs(model, wide) == evaluate_pairs(model, PAIRS)
    with pytest.raises(TextError, match="no column 'source'"):
        evaluate_pairs(model, from_rows(("question", "target"), PAIRS))


@pytest.mark.parametrize("pairs", [[], [("", "삼")], [("3", "\n")]])
def test_no_rows_left(model: EncoderDecoder, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(TextError, match=f"none of the {len(pairs)} rows"):
        evaluate_pairs(model, pairs)


def test_another_model(model: EncoderDecoder) -> None:
    gpt: Any = GPT(GPTConfig(vocab_size=300, context_length=8, n_layer=1, n_head=1, n_embd=8))
    with pytest.raises(ConfigError, match="only an EncoderDecoder answers"):
        evaluate_pairs(gpt, PAIRS)


def test_without_sacrebleu(model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.evaluation.seq2seq.has_sacrebleu", lambda: False)
    with pytest.raises(JumokError, match=r"pip install 'jumok\[metrics\]'"):
        evaluate_pairs(model, PAIRS)
    found = evaluate_pairs(model, PAIRS, metrics=False)
    assert (found.chrf, found.bleu) == (None, None)
    assert math.isfinite(found.loss_per_token)


def test_a_diverged_model(model: EncoderDecoder) -> None:
    with torch.no_grad():
        model.token_embedding.weight.fill_(math.nan)
    with pytest.raises(JumokError, match="numbers are not finite"):
        evaluate_pairs(model, PAIRS)
