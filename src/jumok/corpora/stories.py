"""The built-in corpus: short Korean tales without end, and exactly how much information they carry.

It is the text to train on offline, and a ruler. Each tale is a derivation of the grammar in `stories_grammar.py`,
which is unambiguous and chooses uniformly, so the nats of a tale are known exactly, and no model can average fewer
nats per character over this corpus than its `floor`, beyond sampling noise. One that comes close has learned all
there is to learn: spelling, spacing, particles, and what is recalled, agreed with or caused in each tale.

The same seed gives the same tales on every platform and Python version. Only `random.Random(seed).random()` is
drawn from, since Python promises to keep that sequence, and not the sequences of `choice` or `shuffle`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

from jumok.corpora import stories_grammar
from jumok.corpora.grammar import Grammar
from jumok.errors import ConfigError, CorpusError

SEPARATOR = "\n\n"
"""What follows each tale: certain, so it adds characters but no nats."""


class Tale(NamedTuple):
    """A tale in one line, without the separator, and its information content, -log p."""

    text: str
    nats: float


def tales(seed: int = 0) -> Iterator[Tale]:
    """Independent tales without end, determined by `seed` (0 or more, else `ConfigError`)."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError("seed={seed!r} is not a whole number of 0 or more", seed=seed)
    return _tales(Random(seed))


def write(chars: int, seed: int = 0) -> Iterator[str]:
    """The text of `tales(seed)`, tale by tale, each with its separator, as a stream of chunks.

    It stops after the first tale that brings the text to `chars` characters or more: only whole tales are written,
    and a longer text begins with each shorter one. Raises `ConfigError` if `chars` is negative.
    """
    if isinstance(chars, bool) or not isinstance(chars, int) or chars < 0:
        raise ConfigError("chars={chars!r} is not a whole number of 0 or more", chars=chars)
    return _write(chars, tales(seed))


def score(tale_text: str) -> float:
    """The nats of one tale, without its separator. Raises `CorpusError` if the grammar cannot write this text."""
    for derivation in grammar().derive(range, tale_text):
        return math.log(derivation.ways)
    raise CorpusError("this is not a tale of the corpus 'stories': {excerpt}", excerpt=_excerpt(tale_text))


def floor(text: str) -> float:
    """The nats per character of `text`, a stretch of this corpus: what a perfect model of it would average.

    The text may be cut anywhere, as the held-out tail of a corpus is. Tales are told apart by their blank lines. What
    stands before the first and after the last blank line counts if it is a whole tale and is left out if it is a
    fragment. The result is the nats of the whole tales over their characters, two for each one's separator included.

    `text` is NFC with newlines as "\\n", as `jumok.text` reads it. Raises `CorpusError` if there is no whole tale in
    it, or if anything but its two ends is not a tale.
    """
    pieces = text.strip("\n").split(SEPARATOR)
    nats, chars = [], 0
    for index, piece in enumerate(pieces):
        try:
            nats.append(score(piece))
        except CorpusError:
            if 0 < index < len(pieces) - 1:
                raise
        else:
            chars += len(piece) + len(SEPARATOR)
    if not nats:
        raise CorpusError(
            "there is no whole tale of the corpus 'stories' in this text of {count} characters: "
            "{excerpt}; write one with `jumok corpus write stories --chars 2000000`",
            count=len(text),
            excerpt=_excerpt(text),
        )
    return math.fsum(nats) / chars


def count() -> int:
    """The exact number of distinct tales."""
    return grammar().measure()[0]


def entropy() -> float:
    """The exact mean of the nats of a tale."""
    return grammar().measure()[1]


@cache
def grammar() -> Grammar:
    """The grammar of the tales, parsed once."""
    return Grammar(stories_grammar.WORDS, stories_grammar.PHRASES, stories_grammar.START)


def _tales(random: Random) -> Iterator[Tale]:
    draw = random.random
    while True:
        for text, ways in grammar().derive(lambda size: (int(draw() * size),)):
            yield Tale(text, math.log(ways))


def _write(chars: int, stream: Iterator[Tale]) -> Iterator[str]:
    written = 0
    while written < chars:
        chunk = next(stream).text + SEPARATOR
        written += len(chunk)
        yield chunk


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
