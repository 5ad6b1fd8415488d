"""Hangul syllables and particles.

A modern syllable consists of a lead consonant, a vowel and an optional tail consonant. Unicode numbers all
19 × 21 × 28 syllables in that order from U+AC00 (The Unicode Standard, section 3.12, "Conjoining Jamo Behavior"), so
two divisions decompose a syllable. This module uses compatibility jamo (ㅎ, ㅏ, ㄴ: the letters that people type), not
the conjoining jamo of NFD.
"""

from __future__ import annotations

import unicodedata

from jumok.errors import ConfigError

LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
TAILS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")

_FIRST, _LAST = 0xAC00, 0xD7A3

# The final consonants of the digits when read aloud: 영 (or 십, 백, 천, 만), 일, 이, 삼, 사, 오, 육, 칠, 팔, 구.
_DIGIT_TAILS = ("ㅇ", "ㄹ", "", "ㅁ", "", "", "ㄱ", "ㄹ", "ㄹ", "")
# The final consonants of letter names: 엘, 엠, 엔, 알.
_CAPITAL_TAILS = {"L": "ㄹ", "M": "ㅁ", "N": "ㄴ", "R": "ㄹ"}

_SWAPPED = {"는/은", "가/이", "를/을", "와/과", "로/으로", "야/아", "였/이었", "라는/이라는"}


def nfc(text: str) -> str:
    """Return `text` in NFC: each syllable is one character."""
    return unicodedata.normalize("NFC", text)


def nfd(text: str) -> str:
    """Return `text` in NFD: syllables are decomposed to conjoining jamo, as in file names on macOS."""
    return unicodedata.normalize("NFD", text)


def is_syllable(char: str) -> bool:
    """Return whether `char` is one of the 11,172 modern syllables."""
    return len(char) == 1 and _FIRST <= ord(char) <= _LAST


def split(syllable: str) -> tuple[str, str, str]:
    """Return the lead, vowel and tail of one syllable; the tail of an open syllable is "".

    >>> split("한"), split("글"), split("이")
    (('ㅎ', 'ㅏ', 'ㄴ'), ('ㄱ', 'ㅡ', 'ㄹ'), ('ㅇ', 'ㅣ', ''))

    Raises `ConfigError` (a `ValueError`) for anything but one modern syllable, NFC or NFD.
    """
    composed = nfc(syllable)
    if not is_syllable(composed):
        raise ConfigError(
            "{syllable!r} is not one modern Hangul syllable; give one between '가' and '힣'", syllable=syllable
        )
    rest, tail = divmod(ord(composed) - _FIRST, len(TAILS))
    lead, vowel = divmod(rest, len(VOWELS))
    return LEADS[lead], VOWELS[vowel], TAILS[tail]


def join(lead: str, vowel: str, tail: str = "") -> str:
    """Return the syllable of a lead, a vowel and a tail, as `split` returns them; "" is no tail."""
    number = (LEADS.index(lead) * len(VOWELS) + VOWELS.index(vowel)) * len(TAILS) + TAILS.index(tail)
    return chr(_FIRST + number)


def josa(word: str, pair: str) -> str:
    """Return `word` with the matching particle of a pair "after a consonant/after a vowel".

    >>> josa("숲", "은/는"), josa("토끼", "이/가"), josa("서울", "으로/로"), josa("다솜", "이/")
    ('숲은', '토끼가', '서울로', '다솜이')

    Any such pair works: 을/를, 과/와, 아/야, 이라는/라는, 이었/였. If the first form is 으 and the second form
    (으로/로, 으로서/로서, 으면/면), a final ㄹ counts as a vowel.

    The last syllable, letter or digit of `word` decides; quotes, brackets and punctuation after it are ignored. Digits
    have their Sino-Korean reading (일, 이; a final 0 is 영, 십, 백, 천 or 만), Latin capitals the name of the letter
    (엘, 엠, 엔, 알 end in a consonant). Of small letters l, m, n and ng count as consonants; this is a guess.

    Raises `ConfigError` for a pair without exactly one slash or in the opposite order, and for a word
    that cannot be read.
    """
    closed, slash, opened = pair.partition("/")
    if not slash or "/" in opened or pair in _SWAPPED:
        raise ConfigError(
            "{pair!r} is not a pair of particles; write the form after a consonant, a slash, and the "
            "form after a vowel, like '은/는', '이/가', '을/를', '으로/로'",
            pair=pair,
        )
    final = _final(word)
    takes_open = final == "" or (final == "ㄹ" and closed == "으" + opened)
    return word + (opened if takes_open else closed)


def modern_syllables() -> str:
    """Return all 11,172 modern syllables, 가 to 힣, in Unicode order."""
    return "".join(map(chr, range(_FIRST, _LAST + 1)))


def _final(word: str) -> str:
    """Return the final consonant of `word`, or "" after a vowel; a single consonant letter is read by its name."""
    read = nfc(word)
    while read and not _is_read(read[-1]):
        read = read[:-1]
    if not read:
        raise ConfigError("{word!r} has no Hangul, digit or Latin letter that would decide its particle", word=word)
    last = read[-1]
    if is_syllable(last):
        return split(last)[2]
    if last in VOWELS:
        return ""
    if last in TAILS or last in LEADS:
        return "ㄹ" if last == "ㄹ" else "ㄱ"  # 리을; any other consonant would do for the other names
    if last in "0123456789":
        return _DIGIT_TAILS[int(last)]
    if last.isupper():
        return _CAPITAL_TAILS.get(last, "")
    if read.endswith("ng"):
        return "ㅇ"
    return {"l": "ㄹ", "m": "ㅁ", "n": "ㄴ"}.get(last, "")


def _is_read(char: str) -> bool:
    return is_syllable(char) or char in LEADS or char in VOWELS or char in TAILS or (char.isascii() and char.isalnum())
