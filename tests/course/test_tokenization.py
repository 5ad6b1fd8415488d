"""Chapter 12: its characters, merges and bigrams are those of the production tokenizers, or computed by hand."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter

import pytest

from jumok import train_tokenizer
from jumok.corpora import stories
from jumok.course.chapters import tokenization
from jumok.course.chapters.tokenization import Merge

TALES = "".join(stories.write(12_000))


@pytest.mark.parametrize("text", ["뷁과 쀍", "😀 é\0\n", "", unicodedata.normalize("NFD", "토끼와 뷁")], ids=ascii)
def test_characters_with_a_fallback_are_the_production_ids(text: str) -> None:
    own, production = tokenization.Characters(TALES), train_tokenizer(TALES, "char")
    ids = own.encode(text)
    assert ids == production.encode(text).tolist()
    assert own.decode(ids) == production.decode(ids) == unicodedata.normalize("NFC", text)
    assert own.vocab_size == production.vocab_size


def test_no_text_fails_in_characters() -> None:
    characters = tokenization.Characters("가나다가나다")
    assert characters.decode(characters.encode("half \udcb0 of a pair")) == "half ? of a pair"
    assert characters.decode(characters.encode("나뷁")[:2]) == "나\ufffd"


def symbols(letters: str) -> tuple[bytes, ...]:
    return tuple(letter.encode() for letter in letters)


def test_pairs_are_merged_from_left_to_right_within_words() -> None:
    for given, merged in (("aab", "a ab"), ("ba", "b a"), ("", ""), ("xabab", "x ab ab")):
        assert tokenization.merge_pair(symbols(given), b"a", b"b") == tuple(merged.encode().split())
    assert tokenization.merge_pair(symbols("aaaaa"), b"a", b"a") == (b"aa", b"aa", b"a")
    counts = tokenization.count_neighbours({symbols("aba"): 2, symbols("ab"): 1, symbols("b"): 9})
    assert counts == {(b"a", b"b"): 3, (b"b", b"a"): 2}


def test_merging_stops_and_breaks_ties() -> None:
    words = {symbols("abc"): 5}
    assert tokenization.learn_merges(words, 1, symbols("abc")) == [Merge(b"a", b"b", 5)]
    assert tokenization.learn_merges(words, 9, symbols("abc")) == [Merge(b"a", b"b", 5), Merge(b"ab", b"c", 5)]
    assert tokenization.learn_merges({symbols("abc"): 1}, 9, symbols("abc")) == []
    ties = {symbols("ab"): 2, symbols("cd"): 2}
    assert tokenization.learn_merges(ties, 1, symbols("abcd"))[0][:2] == (b"a", b"b")
    assert tokenization.learn_merges(ties, 1, symbols("cdab"))[0][:2] == (b"c", b"d")


@pytest.mark.parametrize(
    ("text", "number"), [(TALES[:4000], 150), ("aaaa aaa aa aaaaaaa " * 3, 10)], ids=["tales", "a"]
)
def test_merges_are_those_of_the_production_tokenizer(text: str, number: int) -> None:
    words = Counter(tokenization.single_bytes(piece) for piece in tokenization.pieces(text))
    merges = tokenization.learn_merges(words, number, tokenization.byte_alphabet())
    production = train_tokenizer(text, "bpe", vocab_size=256 + number)
    assert [merge.left + merge.right for merge in merges] == production.bytes_of(range(256, production.vocab_size))
    given = TALES[6000:8000]
    divided = [
        tokenization.apply_merges(tokenization.single_bytes(piece), merges) for piece in tokenization.pieces(given)
    ]
    assert [symbol for piece in divided for symbol in piece] == production.bytes_of(production.encode(given))


def test_the_bigram_loss_by_hand() -> None:
    """After 0 came 1 twice and 0 once: n(0) = 3, d(0) = 2. Token 2 never came."""
    train = [0, 1, 0, 0, 1]
    p_1 = (2 + 2 * (2 + 1) / (4 + 3)) / (3 + 2)
    assert tokenization.token_bigram_loss(train, [0, 1], 3) == pytest.approx(-math.log(p_1))
    assert tokenization.token_bigram_loss(train, [2, 1], 3) == pytest.approx(-math.log((2 + 1) / (4 + 3)))
