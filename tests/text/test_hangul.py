"""Hangul syllables and particles, compared with Unicode and with known Korean."""

from __future__ import annotations

import unicodedata

import pytest

from jumok.errors import ConfigError
from jumok.text import hangul
from jumok.text.hangul import LEADS, TAILS, VOWELS, josa


def test_there_are_11172_modern_syllables() -> None:
    syllables = hangul.modern_syllables()
    assert len(syllables) == len(set(syllables)) == 11_172
    assert (syllables[0], syllables[-1]) == ("가", "힣")


def test_split_agrees_with_the_decomposition_of_unicode() -> None:
    """An independent source: NFD gives conjoining jamo, numbered from U+1100, U+1161 and U+11A7."""
    for syllable in hangul.modern_syllables():
        lead, vowel, *tail = map(ord, unicodedata.normalize("NFD", syllable))
        expected = (LEADS[lead - 0x1100], VOWELS[vowel - 0x1161], TAILS[tail[0] - 0x11A7] if tail else "")
        assert hangul.split(syllable) == expected
        assert hangul.join(*expected) == syllable


@pytest.mark.parametrize("bad", ["", "가나", "ㄱ", "a", "漢", "\ud7a4", "1"])
def test_split_refuses_what_is_not_one_syllable(bad: str) -> None:
    assert not hangul.is_syllable(bad)
    with pytest.raises(ConfigError, match="not one modern Hangul syllable"):
        hangul.split(bad)


@pytest.mark.parametrize(
    ("word", "pair", "expected"),
    [
        ("토끼", "은/는", "토끼는"),
        ("곰", "은/는", "곰은"),
        ("바다", "과/와", "바다와"),
        ("집", "으로/로", "집으로"),
        ("서울", "으로/로", "서울로"),  # ㄹ counts as a vowel here ...
        ("서울", "이/가", "서울이"),  # ... and only here
        ("연필", "으로써/로써", "연필로써"),
        ("두리", "아/야", "두리야"),
        ("나래", "이/", "나래"),
        ("오후", "이었/였", "오후였"),
    ],
)
def test_particles(word: str, pair: str, expected: str) -> None:
    assert josa(word, pair) == expected
    assert hangul.nfc(josa(hangul.nfd(word), pair)) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("3", "3으로"),  # 삼
        ("7", "7로"),  # 칠, with ㄹ
        ("CNN", "CNN으로"),  # 시엔엔
        ("URL", "URL로"),  # 유아르엘, with ㄹ
        ("ping", "ping으로"),
        ("ㄹ", "ㄹ로"),  # 리을
        ("ㅏ", "ㅏ로"),
        ("‘숲’", "‘숲’으로"),  # what stands behind the last sound does not count
        ("바다(동해)!", "바다(동해)!로"),
    ],
)
def test_particles_after_what_is_not_a_syllable(word: str, expected: str) -> None:
    assert josa(word, "으로/로") == expected


@pytest.mark.parametrize("bad", ["", "!?", " ", "漢字"])
def test_a_word_without_letters_or_digits_has_no_particle(bad: str) -> None:
    with pytest.raises(ConfigError, match="particle"):
        josa(bad, "은/는")


@pytest.mark.parametrize("bad", ["", "은", "은/는/도", "는/은", "가/이", "로/으로"])
def test_a_pair_in_the_wrong_form_or_order_is_refused(bad: str) -> None:
    """는/은 would give 토끼은 without an error, so the common pairs are refused in the opposite order."""
    with pytest.raises(ConfigError, match="not a pair of particles"):
        josa("토끼", bad)
