"""Chapter 12, tokenizers: characters with a fallback to bytes, byte pair encoding step by step, and its loss.

Source: byte pair encoding of words https://arxiv.org/abs/1508.07909, of bytes
https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf; the smoothing of
`token_bigram_loss`: https://doi.org/10.1109/18.87000 (method C).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple


class Characters:
    """A tokenizer of characters that never fails: ids 0 to 255 are bytes, the others the characters of a text.

    Args:
        text: the training text. min_count: a character that occurs less often gets no id, and becomes its bytes.
    """

    def __init__(self, text: str, min_count: int = 2) -> None:
        counts = Counter(unicodedata.normalize("NFC", text))
        self.characters = sorted(c for c, count in counts.items() if count >= min_count)
        self.ids = {c: 256 + i for i, c in enumerate(self.characters)}
        self.vocab_size = 256 + len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Return the id of each character, or those of its UTF-8 bytes."""
        ids: list[int] = []
        for c in unicodedata.normalize("NFC", text):
            if c in self.ids:
                ids.append(self.ids[c])
            else:
                ids.extend(c.encode("utf-8", "replace"))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; incomplete characters become U+FFFD."""
        parts = [bytes([i]) if i < 256 else self.characters[i - 256].encode("utf-8", "replace") for i in ids]
        return b"".join(parts).decode("utf-8", "replace")


Word = tuple[bytes, ...]


class Merge(NamedTuple):
    """A merge: the two symbols that are joined, and how often they were neighbours when the merge was learned."""

    left: bytes
    right: bytes
    times: int


def count_neighbours(words: Mapping[Word, int]) -> Counter[tuple[bytes, bytes]]:
    """Return how often each two symbols are neighbours within a word. words: with their frequencies."""
    counts: Counter[tuple[bytes, bytes]] = Counter()
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
    return counts


def merge_pair(word: Word, left: bytes, right: bytes) -> Word:
    """Return a word in which each `left` followed by `right` is one symbol, from left to right."""
    merged: list[bytes] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == (left, right):
            merged.append(left + right)
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return tuple(merged)


def learn_merges(words: Mapping[Word, int], number: int, alphabet: Sequence[bytes]) -> list[Merge]:
    """Join the most frequent pair of neighbours, and repeat, until no pair occurs twice.

    Args:
        words: with their frequencies. number: of merges, at most.
        alphabet: the first symbols in the order of their ids. Of equally frequent pairs, the smallest ids are merged.
    """
    ids = {symbol: i for i, symbol in enumerate(alphabet)}
    merges: list[Merge] = []
    while len(merges) < number:
        counts = count_neighbours(words)
        left, right = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]), default=(b"", b""))
        if counts[left, right] < 2:
            break
        merges.append(Merge(left, right, counts[left, right]))
        ids.setdefault(left + right, len(ids))
        words = {merge_pair(word, left, right): times for word, times in words.items()}
    return merges


def apply_merges(word: Word, merges: Sequence[Merge]) -> Word:
    """Return the tokens of a word: apply all merges in the order in which they were learned."""
    for merge in merges:
        word = merge_pair(word, merge.left, merge.right)
    return word


def single_bytes(piece: str) -> Word:
    """Return the UTF-8 bytes of a piece of text as symbols: three for a Hangul syllable."""
    return tuple(bytes([byte]) for byte in piece.encode())


PIECE = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d| ?[^\w\s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def pieces(text: str) -> list[str]:
    """Split a text into words with the space before them, digits, other characters and spaces.

    For text without underscores and combining marks, in which a space is followed by a word, the pieces are those of
    `jumok.train_tokenizer`.
    """
    return PIECE.findall(unicodedata.normalize("NFC", text))


def byte_alphabet() -> list[bytes]:
    """Return the 256 bytes in the order of byte-level vocabularies: first those that Latin-1 can print."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [bytes([byte]) for byte in printable + others]


def token_bigram_loss(train: Sequence[int], test: Sequence[int], vocab_size: int) -> float:
    """Return the nats per token of a bigram model of tokens that counts one text and predicts another.

    p(b | a) = (n(a b) + d(a) p(b)) / (n(a) + d(a)) and p(b) = (n(b) + 1) / (n + V), of which n are counts, and d(a) is
    the number of different tokens after a.
    """
    pairs = Counter(pairwise(train))
    before, after = Counter(train[:-1]), Counter(train[1:])
    different = Counter(a for a, _ in pairs)
    nats = 0.0
    for a, b in pairwise(test):
        p = (after[b] + 1) / (len(train) - 1 + vocab_size)
        d = max(1, different[a])
        nats -= math.log((pairs[a, b] + d * p) / (before[a] + d))
    return nats / (len(test) - 1)
