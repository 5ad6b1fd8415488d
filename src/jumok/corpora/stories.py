"""The built-in corpus `stories`: an unlimited number of short Korean tales with a known entropy.

Each tale is a derivation of the grammar in `stories_grammar.py`. The grammar is unambiguous and its choices are
uniform, so the information content of a tale is known exactly. Except for sampling noise, no model can have fewer nats
per character on this corpus than `floor`. A model close to it has learned spelling, spacing, particles, and the
dependencies within a tale.

The same seed gives the same tales on every platform and Python version. Only `random.Random(seed).random()` is used,
because Python guarantees its sequence, but not those of `choice` and `shuffle`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

from jumok.config import require_count
from jumok.corpora import stories_grammar
from jumok.corpora.grammar import Grammar
from jumok.errors import CorpusError

SEPARATOR = "\n\n"
"""The text after each tale. It is certain, so it adds characters but no nats."""


class Tale(NamedTuple):
    """A tale in one line, without the separator, and its information content, -log p, in nats."""

    text: str
    nats: float


def tales(seed: int = 0) -> Iterator[Tale]:
    """Yield independent tales without end. Raises `ConfigError` if `seed` is negative."""
    require_count("seed", seed, 0)
    draw = Random(seed).random
    while True:
        for text, ways in grammar().derive(lambda size: (int(draw() * size),)):
            yield Tale(text, math.log(ways))


def write(chars: int, seed: int = 0) -> Iterator[str]:
    """Yield the tales of `tales(seed)`, each with its separator, until the text has at least `chars` characters.

    Only whole tales are yielded. A longer text begins with each shorter one. Raises `ConfigError` if `chars` is
    negative.
    """
    require_count("chars", chars, 0)
    stream, written = tales(seed), 0
    while written < chars:
        chunk = next(stream).text + SEPARATOR
        written += len(chunk)
        yield chunk


def score(tale_text: str) -> float:
    """Return the nats of one tale without its separator. Raises `CorpusError` if the text is not a tale."""
    for derivation in grammar().derive(range, tale_text):
        return math.log(derivation.ways)
    raise CorpusError("this is not a tale of the corpus 'stories': {excerpt}", excerpt=_excerpt(tale_text))


def floor(text: str) -> float:
    """Return the nats per character of a part of this corpus: the loss of a perfect model.

    The text can begin and end inside a tale, as a held-out part does; such fragments are ignored. The result is the
    nats of the whole tales divided by their characters, including the two of each separator.

    Args:
        text: in NFC with "\\n" for newlines, as `jumok.text` reads it.

    Raises:
        CorpusError: the text contains no whole tale, or something other than tales between its ends.
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


@cache
def grammar() -> Grammar:
    """Return the grammar of the tales."""
    return Grammar(stories_grammar.WORDS, stories_grammar.PHRASES, stories_grammar.START)


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
