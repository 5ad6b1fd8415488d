"""A tokenizer that loses characters makes figures per character too good: they are left out, or marked as lower bounds.

Three unknown words had 0.0000 bits per byte, and a WordPiece model of which 22% of the tokens were unknown was better
than a byte-level one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok as package
from conftest import Jumok
from jumok.config import GPTConfig
from jumok.evaluation.language_model import evaluate_text
from jumok.models.gpt import GPT
from jumok.text import from_string
from jumok.tokenizers import MOST_LOST, Tokenizer
from lossy_tokenizers import byte_level, sentence_piece, word_piece

pytestmark = pytest.mark.slow

LOST = "뷁쓩 뷁 쓩뷁\n"  # words that none of the tokenizers has seen
TEXT = "나무는 높다. 산이 푸르다, 강은 깊다!\n" * 4


def model_with(tokenizer: Tokenizer, **shape: Any) -> GPT:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"context_length": 16, "n_layer": 1, "n_head": 2, "n_embd": 16, **shape}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **sizes)).eval()
    model.tokenizer = tokenizer
    return model


def learned_unknown() -> GPT:
    """A WordPiece model that is sure of [UNK], whatever stands before it."""
    model = model_with(word_piece(), tie_embeddings=False)
    assert model.tokenizer is not None
    unknown = model.tokenizer.special_tokens["[UNK]"]
    with torch.no_grad():
        model.norm.weight.zero_()[0] = 100.0
        model.token_embedding.weight[:, 0] = 100.0
        for block in model.blocks:
            for name, parameter in block.named_parameters():
                if name.endswith(("o_proj.weight", "down_proj.weight", "out.weight")):
                    parameter.zero_()
        model.head.weight.zero_()[unknown, 0] = 100.0
    return model


def test_unknown_words_have_no_figure_per_character() -> None:
    """They had 0.0000 bits per byte."""
    model = learned_unknown()
    found = evaluate_text(model, LOST)
    assert found.loss_per_token == pytest.approx(0, abs=1e-6)
    assert found.nats_per_char is found.bits_per_char is found.bits_per_byte is None
    assert (found.lost_chars, found.chars) == (6, 8)
    assert found.lost_example == ("뷁쓩 뷁 쓩", "[UNK] ")


@pytest.mark.parametrize("tokenizer", [byte_level(), sentence_piece(byte_fallback=True)], ids=["bytes", "fallback"])
def test_a_tokenizer_that_loses_nothing_has_all_figures(tokenizer: Tokenizer) -> None:
    model = model_with(tokenizer)
    for text in (TEXT + LOST, from_string(TEXT + LOST)):
        found = evaluate_text(model, text)
        assert found.nats_per_char == pytest.approx(found.loss_per_token * found.tokens / found.chars)
        assert found.lost_chars == 0


def test_a_few_lost_characters_are_counted_and_change_nothing() -> None:
    model = model_with(sentence_piece(byte_fallback=False))
    text = TEXT * 20 + "뷁\n"
    found = evaluate_text(model, text)
    assert found.lost_chars == 1
    assert found.lost.share < MOST_LOST
    assert found.nats_per_char is not None


def test_the_public_function_and_the_command(jumok: Jumok, own_folder: Path) -> None:
    model = model_with(word_piece())
    package.save(model, "run")
    Path("글.txt").write_text(TEXT, encoding="utf-8")
    found = package.evaluate(model, Path("글.txt"))
    assert found.nats_per_char is None

    end = jumok("evaluate", "run", "글.txt", "--json")
    assert end.json["nats_per_char"] is end.json["bits_per_char"] is end.json["bits_per_byte"] is None
    assert end.json["loss_per_token"] == pytest.approx(found.loss_per_token, abs=1e-5)
    assert end.json["lost_chars"] == found.lost_chars > 0
    assert "The tokenizer loses" in end.err
    assert "Losses per token compare among models with this tokenizer." in end.err
    plain = jumok("evaluate", "run", "글.txt").out
    assert "loss_per_token" in plain
    assert "lost_chars" in plain
    assert "per_char" not in plain


def test_a_comparison_has_no_figure_of_a_lossy_model(jumok: Jumok, own_folder: Path) -> None:
    """The model that loses a fifth of the text was the best one of the table."""
    package.save(model_with(word_piece()), "lossy")
    package.save(model_with(byte_level()), "whole")
    Path("글.txt").write_text(TEXT, encoding="utf-8")
    end = jumok("evaluate", "lossy", "whole", "글.txt", "--json")
    lossy, whole = end.json["models"]
    assert lossy["nats_per_char"] is None
    assert whole["nats_per_char"] > 0
    assert "lossy: The tokenizer loses" in end.err
    lines = jumok("evaluate", "lossy", "whole", "글.txt").out.splitlines()
    assert lines[1].split()[2:5] == ["–", "–", "–"]
