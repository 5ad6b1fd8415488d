"""Chapter 15: tokens by hand are those of the production tokenizers, and the loss is that of a counted model."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter

import pytest

from jumok.corpora import stories
from jumok.course.chapters import tokenization
from jumok.course.chapters.tokenization import BYTES, PIECE, Merge
from jumok.evaluation.bigram import Bigram
from jumok.tokenizers import train_tokenizer

TALES = "".join(stories.write(12_000))


@pytest.mark.parametrize(
    "text", ["토끼가 웃었어요.", "뷁과 쀍", "😀 é\0\n", "", unicodedata.normalize("NFD", "토끼와 뷁")], ids=ascii
)
def test_characters_with_a_fallback_are_the_production_ids(text: str) -> None:
    production = train_tokenizer(TALES, "char")
    known = sorted(character for character, count in Counter(TALES).items() if count >= 2)
    ids = {character: 256 + place for place, character in enumerate(known)}
    assert tokenization.encode_characters(text, ids, range(256)) == production.encode(text).tolist()


@pytest.mark.parametrize(
    ("symbols", "merged"),
    [("abab", "ab ab"), ("aab", "a ab"), ("ba", "b a"), ("", ""), ("abb", "ab b"), ("xab", "x ab")],
)
def test_a_pair_is_merged_from_left_to_right(symbols: str, merged: str) -> None:
    assert tokenization.merge_pair(tuple(symbols), "a", "b") == tuple(merged.split())


@pytest.mark.parametrize(("length", "merged"), [(2, "aa"), (3, "aa a"), (4, "aa aa"), (5, "aa aa a")])
def test_a_pair_of_the_same_symbol_does_not_overlap(length: int, merged: str) -> None:
    assert tokenization.merge_pair(("a",) * length, "a", "a") == tuple(merged.split())


def test_pairs_are_counted_within_words() -> None:
    counts = tokenization.count_pairs({("가", "나", "가"): 2, ("가", "나"): 1, ("나",): 9})
    assert counts == {("가", "나"): 3, ("나", "가"): 2}


def test_merging_stops_at_the_number_and_at_the_frequency() -> None:
    words = {("a", "b", "c"): 5}
    assert tokenization.learn_merges(words, 1) == [Merge("a", "b", 5)]
    assert tokenization.learn_merges(words, 9) == [Merge("a", "b", 5), Merge("ab", "c", 5)]
    assert tokenization.learn_merges(words, 9, min_count=6) == []
    assert tokenization.learn_merges({("a",): 5}, 9) == []


def test_the_order_of_the_alphabet_decides_between_equal_pairs() -> None:
    words = {("a", "b"): 2, ("c", "d"): 2}
    assert tokenization.learn_merges(words, 1)[0][:2] == ("a", "b")
    assert tokenization.learn_merges(words, 1, alphabet=("c", "d", "a", "b"))[0][:2] == ("c", "d")


@pytest.mark.parametrize(
    ("text", "number"), [(TALES[:4000], 150), ("aaaa aaa aa aaaaaaa " * 3, 10), ("한한한한한 한한 하하하", 20)]
)
def test_merges_are_those_of_the_production_tokenizer(text: str, number: int) -> None:
    merges = tokenization.learn_merges(tokenization.in_bytes(tokenization.pieces(text)), number, alphabet=BYTES)
    production = train_tokenizer(text, "bpe", vocab_size=256 + number)
    assert [merge.left + merge.right for merge in merges] == production.bytes_of(range(256, production.vocab_size))
    for given in (text, TALES[6000:8000]):
        by_hand = [
            symbol
            for piece in PIECE.findall(given)
            for symbol in tokenization.apply_merges(tokenization.single_bytes(piece), merges)
        ]
        assert by_hand == production.bytes_of(production.encode(given))


def test_the_bigram_loss_of_characters_is_near_the_production_baseline() -> None:
    """It differs in p(b) and in the newline before the text."""
    train, test = TALES[:9000], TALES[9000:]
    tokenizer = train_tokenizer(TALES, "char", min_count=1)
    ids = tokenizer.encode(train).tolist(), tokenizer.encode(test).tolist()
    loss = tokenization.bigram_loss(*ids, tokenizer.vocab_size)
    assert loss == pytest.approx(Bigram([train]).nats_per_char([test]), abs=0.1)


def test_the_bigram_loss_by_hand() -> None:
    """After 0 came 1 twice and 0 once: n(0) = 3, d(0) = 2. Token 2 never came."""
    train = [0, 1, 0, 0, 1]
    p_1 = (2 + 2 * (2 + 1) / (4 + 3)) / (3 + 2)
    p_2 = (0 + 2 * (0 + 1) / (4 + 3)) / (3 + 2)
    assert tokenization.bigram_loss(train, [0, 1], 3) == pytest.approx(-math.log(p_1))
    assert tokenization.bigram_loss(train, [0, 2], 3) == pytest.approx(-math.log(p_2))
    assert tokenization.bigram_loss(train, [2, 1], 3) == pytest.approx(-math.log((2 + 1) / (4 + 3))), "p(b) alone"
