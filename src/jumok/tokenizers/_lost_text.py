"""What a tokenizer loses of a text: characters that `decode(encode(text))` does not give back.

A model need not predict what its tokenizer has lost, such as a word that became [UNK], a capital, or the second of two
spaces. So its loss per character is lower than that of a model which predicts all of the text, and they do not compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from jumok.messages import tr
from jumok.text import Text
from jumok.text.hangul import nfc
from jumok.tokenizers._tokenizer import Tokenizer

# A model that predicts all characters pays at most ln(1,114,112) = 13.9 nats for one that it has never seen. So up to
# this share of lost ones makes a figure at most 0.014 nats per character too good, about as much as another seed does.
MOST_LOST = 0.001
MOST_COMPARED = 1 << 20  # characters; of a longer text evenly spread blocks
BLOCK = 1 << 14
EXAMPLE = 12  # characters
# What is encoded, decoded and compared at once: up to 1,024 characters that end after a line, or before a single space,
# so that none of several spaces is at an end, where spaces do not count; only a text without either is cut elsewhere.
_PASSAGE = re.compile(r"(?s).{1,1024}(?:(?<=\n)|(?<=\S)(?= \S)|\Z)|.{1,1024}")
_UNKNOWN = "\uffff"  # stands for the unknown token, as one character that no text has


class LostText(NamedTuple):
    """How much of a text a tokenizer loses.

    lost: characters that are left out, changed or added; of a long text estimated. chars: of the text. example: a few
    characters around the first difference, and what is decoded instead; "" where nothing is lost.
    """

    lost: int = 0
    chars: int = 0
    example: tuple[str, str] = ("", "")

    @property
    def share(self) -> float:
        """The share of the characters that are lost."""
        return self.lost / max(1, self.chars)

    @property
    def too_much(self) -> bool:
        """Whether figures per character would be too good."""
        return self.share > MOST_LOST

    def describe(self) -> str:
        """Say how much is lost, with the example."""
        before, after = map(repr, self.example)
        return tr(
            "The tokenizer loses {lost:,} of the {chars:,} characters of this text ({share:.2%}): from {before}, for "
            "example, it makes {after}.",
            lost=self.lost,
            chars=self.chars,
            share=self.share,
            before=before,
            after=after,
        )


def lost_text(tokenizer: Tokenizer, text: str | Text, start: int = 0, stop: int | None = None) -> LostText:
    """Count the characters of text[start:stop], in NFC, that decoding its ids does not give back.

    Spaces at both ends of a passage do not count, because tokenizers add one there and take it away. `char`, `jamo` and
    `bpe` lose nothing, whatever the text, so nothing is encoded for them.

    Raises:
        TokenizerError: the tokenizer cannot encode the text.
    """
    if isinstance(text, str):
        text = nfc(text)
    start, stop, _ = slice(start, stop).indices(text.chars if isinstance(text, Text) else len(text))
    if tokenizer.kind != "other":
        return LostText(chars=stop - start)
    lost = compared = 0
    example = ("", "")
    for passage in _passages(text, start, stop):
        compared += len(passage)
        kept, decoded = (part.strip(" ") for part in (passage, nfc(tokenizer.decode(tokenizer.encode(passage)))))
        if kept == decoded:
            continue
        example = example if lost else _first_difference(kept, decoded)
        lost += _count_differences(kept, decoded.replace(tokenizer.unknown_token or _UNKNOWN, _UNKNOWN))
    return LostText(
        lost if compared == stop - start else round(lost / compared * (stop - start)), stop - start, example
    )


def _passages(text: str | Text, start: int, stop: int) -> Iterator[str]:
    """Yield a text, or evenly spread blocks of a long one, in passages that end after a line or a word."""
    blocks = [(start, stop)]
    if stop - start > MOST_COMPARED:
        count = MOST_COMPARED // BLOCK
        firsts = (start + i * (stop - start - BLOCK) // (count - 1) for i in range(count))
        blocks = [(first, first + BLOCK) for first in firsts]
    for first, end in blocks:
        block = text.read(first, end) if isinstance(text, Text) else text[first:end]
        yield from _PASSAGE.findall(block)


def _count_differences(text: str, decoded: str) -> int:
    """Return the length of the longer string less that of their longest common subsequence.

    Source: the bit-parallel algorithm of Hyyrö, "Bit-parallel LCS-length computation revisited" (2004): one machine
    operation compares a character with 64 others.
    """
    places: dict[str, int] = {}
    for place, character in enumerate(text):
        places[character] = places.get(character, 0) | 1 << place
    every = left = (1 << len(text)) - 1  # bits of `left` are 0 where the common subsequence grows
    for character in decoded:
        matched = left & places.get(character, 0)
        left = ((left + matched) | (left - matched)) & every
    return max(len(text), len(decoded)) - (len(text) - left.bit_count())


def _first_difference(text: str, decoded: str) -> tuple[str, str]:
    """Return a few characters of both strings around the first place where they differ."""
    place = next(
        (i for i, (a, b) in enumerate(zip(text, decoded, strict=False)) if a != b), min(len(text), len(decoded))
    )
    around = slice(max(0, place - EXAMPLE // 2), place + EXAMPLE // 2)
    return text[around], decoded[around]
