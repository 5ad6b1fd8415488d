"""The requests of a text and of an answer: where they begin, and where they end."""

from __future__ import annotations

import unicodedata

import torch

from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.inference.requests import answer_request, text_request
from jumok.inference.sampling import Sampling
from jumok.models import build
from jumok.models.special_ids import start_ids
from jumok.tokenizers import train_tokenizer

TEXT = "나는 학교에 갔다.\n" * 5
SIZES = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 16}


def test_a_text_begins_with_its_prompt_and_ends_where_the_model_ends_one() -> None:
    tokenizer = train_tokenizer(TEXT)
    torch.manual_seed(0)
    model = build(GPTConfig(**SIZES, vocab_size=tokenizer.vocab_size, eos_ids=(7, 8)))
    model.tokenizer = tokenizer
    request = text_request(model, "나는", Sampling(), tokens=5, seed=3, stop=[unicodedata.normalize("NFD", "갔다")])
    assert request.prompt == tokenizer.encode("나는").tolist()
    assert (request.stop_ids, request.stop, request.tokens, request.seed) == (frozenset({7, 8}), ("갔다",), 5, 3)
    assert list(text_request(model, [5, 6], Sampling(), tokens=1).prompt) == [5, 6]
    for empty in ("", []):
        assert list(text_request(model, empty, Sampling(), tokens=1).prompt) == list(start_ids(model.config, tokenizer))


def test_an_answer_begins_and_ends_with_its_ids() -> None:
    tokenizer = train_tokenizer(TEXT, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids = {"pad_id": 0, "decoder_start_id": 1, "eos_id": 2}
    model = build(EncoderDecoderConfig(**SIZES, vocab_size=tokenizer.vocab_size, **ids))
    model.tokenizer = tokenizer
    request = answer_request(model, [5, 6], Sampling(), tokens=4)
    assert (request.prompt, request.source, request.stop_ids) == ([1], [5, 6], frozenset({2}))
    assert request.special_ids >= {0, 1, 2}
