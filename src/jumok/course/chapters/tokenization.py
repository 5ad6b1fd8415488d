"""Chapter 12, tokenizers: characters with a fallback to bytes, jamo, byte pair encoding step by step, and its loss.

A tokenizer maps text to ids and ids to text. The functions learn and apply the same tokens as `jumok.train_tokenizer`,
in a form that shows each step. Symbols are strings or bytes: byte pair encoding works for any sequence of either.

Sources: byte pair encoding of words https://arxiv.org/abs/1508.07909, of bytes
https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf, the smoothing of
`bigram_loss` https://doi.org/10.1109/18.87000 (method C).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from jumok.text.hangul import nfc

Symbol = TypeVar("Symbol", str, bytes)

PIECE = re.compile(r"[^\r\n\w]?[^\W\d_]+|\d| ?[^\w\s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Bytes that are printable characters of Latin-1 come first, the others after them. This is the order of ids in
# byte-level vocabularies; it decides between pairs of the same frequency.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
BYTES = tuple(bytes([byte]) for byte in (*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)))


class Merge(NamedTuple, Generic[Symbol]):
    """A merge: the two symbols that are joined, and how often they were neighbours when the merge was learned."""

    left: Symbol
    right: Symbol
    times: int


# --- characters -------------------------------------------------------------------------------------------------------


def encode_characters(text: str, ids: Mapping[str, int], byte_ids: Sequence[int]) -> list[int]:
    """One id for each character; a character without an id becomes the ids of its UTF-8 bytes.

    Args:
        text: any text; it is normalised to NFC. ids: of the known characters. byte_ids: of the 256 bytes.

    Returns:
        The ids. No text fails, because every character has UTF-8 bytes.
    """
    found: list[int] = []
    for character in nfc(text):
        if character in ids:
            found.append(ids[character])
        else:
            found.extend(byte_ids[byte] for byte in character.encode())
    return found


# --- byte pair encoding -----------------------------------------------------------------------------------------------


def pieces(text: str) -> Counter[str]:
    """The pieces of a text and their frequencies: words with the space before them, digits, other characters, spaces.

    Merges never join symbols of two pieces. For text without underscores and combining marks, in which a space is
    followed by a word, the pieces are those of `jumok.train_tokenizer`.
    """
    return Counter(PIECE.findall(nfc(text)))


def in_characters(words: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    """Words as tuples of characters, with their frequencies."""
    return {tuple(word): count for word, count in words.items()}


def in_bytes(words: Mapping[str, int]) -> dict[tuple[bytes, ...], int]:
    """Words as tuples of single UTF-8 bytes, with their frequencies."""
    return {single_bytes(word): count for word, count in words.items()}


def single_bytes(word: str) -> tuple[bytes, ...]:
    """The UTF-8 bytes of a word: three for a Hangul syllable."""
    return tuple(bytes([byte]) for byte in word.encode())


def count_pairs(words: Mapping[tuple[Symbol, ...], int]) -> Counter[tuple[Symbol, Symbol]]:
    """How often each two symbols are neighbours within a word."""
    counts: Counter[tuple[Symbol, Symbol]] = Counter()
    for symbols, count in words.items():
        for pair in itertools.pairwise(symbols):
            counts[pair] += count
    return counts


def merge_pair(symbols: tuple[Symbol, ...], left: Symbol, right: Symbol) -> tuple[Symbol, ...]:
    """A word in which each `left` followed by `right` is one symbol, from left to right."""
    merged: list[Symbol] = []
    place = 0
    while place < len(symbols):
        joins = symbols[place] == left and symbols[place + 1 : place + 2] == (right,)
        merged.append(left + right if joins else symbols[place])
        place += 2 if joins else 1
    return tuple(merged)


def learn_merges(
    words: Mapping[tuple[Symbol, ...], int], number: int, *, alphabet: Sequence[Symbol] = (), min_count: int = 2
) -> list[Merge[Symbol]]:
    """Byte pair encoding: join the most frequent pair of neighbours, and repeat.

    Args:
        words: as tuples of symbols, with their frequencies. number: how many merges to learn at most.
        alphabet: the first symbols in the order of their ids; without it, sorted. Of pairs with the same frequency the
            one with the smaller ids is merged, first by the left symbol.
        min_count: rarer pairs are not merged.

    Returns:
        The merges, in order; fewer than `number` if no pair is frequent enough.
    """
    ids = {symbol: number for number, symbol in enumerate(alphabet or sorted({s for word in words for s in word}))}
    learned: list[Merge[Symbol]] = []
    now = dict(words)
    while len(learned) < number:
        counts = count_pairs(now)
        if not counts:
            break
        (left, right), count = min(counts.items(), key=lambda item: (-item[1], ids[item[0][0]], ids[item[0][1]]))
        if count < min_count:
            break
        learned.append(Merge(left, right, count))
        ids.setdefault(left + right, len(ids))
        merged: Counter[tuple[Symbol, ...]] = Counter()
        for symbols, frequency in now.items():
            merged[merge_pair(symbols, left, right)] += frequency
        now = dict(merged)
    return learned


def apply_merges(symbols: Sequence[Symbol], merges: Sequence[Merge[Symbol]]) -> list[Symbol]:
    """Encode a word: apply all merges in the order in which they were learned."""
    word = tuple(symbols)
    for merge in merges:
        word = merge_pair(word, merge.left, merge.right)
    return list(word)


# --- the loss of a tokenizer ------------------------------------------------------------------------------------------


def bigram_loss(train: Sequence[int], test: Sequence[int], vocab_size: int) -> float:
    """The loss of a bigram model of tokens that is counted on `train`, in nats per token of `test`.

        p(b | a) = (n(a b) + d(a) · p(b)) / (n(a) + d(a))        p(b) = (n(b) + 1) / (n + V)

    n are counts, and d(a) is the number of different tokens after a. The formula is that of
    `jumok.evaluation.bigram` with another p(b).

    Args:
        train, test: ids less than vocab_size, two or more each. The first id of each is not predicted.
    """
    pairs = Counter(itertools.pairwise(train))  # n(a b)
    before = Counter(train[:-1])  # n(a)
    different = Counter(a for a, _ in pairs)  # d(a)
    alone = Counter(train[1:])  # n(b)
    nats = 0.0
    for a, b in itertools.pairwise(test):
        p = (alone[b] + 1) / (len(train) - 1 + vocab_size)
        if before[a]:
            p = (pairs[a, b] + different[a] * p) / (before[a] + different[a])
        nats -= math.log(p)
    return nats / (len(test) - 1)
