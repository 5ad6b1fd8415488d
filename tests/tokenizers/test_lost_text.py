"""What tokenizers lose of a text: nothing for those of jumok and byte-level ones, and something for many others."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from jumok import text as reader
from jumok.tokenizers import Tokenizer, lost_text, train_tokenizer
from jumok.tokenizers._lost_text import MOST_COMPARED
from lossy_tokenizers import TEXT, byte_level, foreign, sentence_piece, word_piece
from tokenizers import models, normalizers, trainers

HARD = "뷁 쓩 🐟👨‍👩‍👧 ﬁ ① é ㄱㅏ 한\u1112\u1161\u11ab  두 칸\t탭 [UNK] </s> <0x41> \x00끝\n\n  들여 쓴 줄\n"


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_the_tokenizers_of_jumok_lose_nothing(kind: str) -> None:
    """Nothing is encoded to find that out, because decoding is exact for every text."""
    tokenizer = train_tokenizer(TEXT, kind)
    for text in (TEXT, HARD, ""):
        assert lost_text(tokenizer, text) == (0, len(unicodedata.normalize("NFC", text)), ("", ""))
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize(
    "tokenizer", [byte_level(), byte_level(prefix=True), byte_level(normalizer=normalizers.NFC()),
                  byte_level(normalizer=normalizers.NFD())]
)  # fmt: skip
def test_byte_level_tokenizers_lose_nothing(tokenizer: Tokenizer) -> None:
    """A space that is added before the text is no loss, and neither is a form that NFC composes again."""
    assert tokenizer.kind == "other"
    for text in (TEXT, HARD, HARD * 300):
        assert lost_text(tokenizer, text).lost == 0


def test_byte_fallback_loses_nothing_and_an_unknown_token_what_it_stands_for() -> None:
    text = "나무는 뷁쓩 깊다.\n" * 200
    assert lost_text(sentence_piece(byte_fallback=True), text).lost == 0
    found = lost_text(sentence_piece(byte_fallback=False), text)
    assert found.lost == 2 * 200
    assert found.share == pytest.approx(2 / 11)
    assert found.too_much


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("나무는 높다.", 0),
        (" 나무는 높다. ", 0),
        ("뷁쓩 나무", 2),
        ("나무  높다", 1),
        ("나무\n높다", 1),
        ("나무.높다", 1),
        ("나무 . 높다", 1),
    ],
    ids=repr,
)
def test_characters_that_a_word_piece_tokenizer_loses(text: str, lost: int) -> None:
    """Unknown words, spaces that are collapsed or belong to a sign, line breaks; but no spaces at the ends."""
    assert lost_text(word_piece(), text).lost == lost


def test_no_space_is_lost_where_a_long_line_is_cut() -> None:
    """Spaces at the ends of what is compared at once do not count."""
    assert lost_text(word_piece(), "나무  높다 " * 500).lost == 500


@pytest.mark.parametrize(
    ("normalizer", "text", "lost"),
    [
        (normalizers.Lowercase(), "ABC def", 3),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "é à b", 2),
        (normalizers.NFKC(), "①②③ a", 3),
        (normalizers.Replace("  ", " "), "a  b", 1),
    ],
)
def test_characters_that_a_normalizer_changes(normalizer: Any, text: str, lost: int) -> None:
    """Byte-level tokenizers lose them, too."""
    assert lost_text(byte_level(normalizer=normalizer), text).lost == lost


def test_a_tokenizer_without_an_unknown_token_drops_characters_silently() -> None:
    tokenizer = foreign(models.BPE(), trainers.BpeTrainer(vocab_size=100, show_progress=False))
    assert tokenizer.unknown_token is None
    assert lost_text(tokenizer, "뷁나무") == (1, 3, ("뷁나무", "나무"))


@pytest.mark.slow
def test_a_part_of_a_text_and_a_long_one(tmp_path: Path) -> None:
    """Of a long text evenly spread blocks are compared, and the loss of all of it is estimated."""
    tokenizer = sentence_piece(byte_fallback=False)
    line = "나무는 뷁 깊다.\n"
    text = reader.from_string(line * (2 * MOST_COMPARED // len(line)))
    found = lost_text(tokenizer, text)
    assert found.chars == text.chars > MOST_COMPARED
    assert found.share == pytest.approx(1 / len(line), rel=0.01)
    assert lost_text(tokenizer, text, 0, 3 * len(line)).lost == 3
    assert lost_text(tokenizer, text, 0, 3) == (0, 3, ("", ""))
