"""Checks of the exercises on tokenizers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from jumok.course.practice.checking import Checks, Code, Steps, Wrong, passed, raises, require, require_equal
from jumok.tokenizers import train_tokenizer

# --- character_tokenizer ---

TRAINING = "나는 어제 새 책을 읽었다.\n오늘은 그 책을 다시 읽는다.\n"
TEXTS = ("나는 새 책을 읽는다.", "고양이가 ABC를 썼다!", "웃음 😀 한자 漢字", "끝\t\x00", "")


def character_tokenizer(code: Code) -> Steps:
    """Known characters, unknown ones, broken text and broken bytes."""
    make = code.function("CharacterTokenizer")
    mine: Any = make(TRAINING)
    theirs = train_tokenizer(TRAINING, "char", min_count=1)
    ids = _ids(mine.encode("나는 새 책을 읽는다."))
    right = theirs.encode("나는 새 책을 읽는다.").tolist()
    require(min(ids, default=256) >= 256, "no-offset", id=min(ids, default=0))
    require(len(ids) == 12, "ids-count", given=len(ids), right=12)
    require(ids == right, "not-sorted/tokenizers", given=ids[:4], right=right[:4])
    yield passed("known-characters")
    ids = _ids(raises("key-error", lambda: mine.encode("고양이"), text=("KeyError", "ValueError")))
    require(ids != [], "dropped")
    bytes_ = list("고양이".encode())
    require(len(ids) > 3 or len(set(ids)) > 1, "one-unknown-id")
    require(len(ids) > 3, "not-utf8")
    require(ids == bytes_, "other-bytes", given=ids[:4], right=bytes_[:4])
    yield passed("new-characters")
    yield from _decoding(mine)
    lone = raises("surrogate", lambda: mine.encode("가\ud83d나"), text="UnicodeEncodeError")
    lone = _ids(lone)
    require(lone.count(ord("?")) == 1, "surrogate-lost")
    yield passed("surrogate-survives")
    half = list("😀".encode())[:2]
    written = raises("half-a-character", lambda: mine.decode([*half, 256]), text="UnicodeDecodeError")
    require(isinstance(written, str) and written.startswith("\ufffd"), "half-lost", given=repr(written))
    yield passed("half-survives")


def _decoding(mine: Any) -> Steps:
    known = raises(
        "bytes-of-ids", lambda: mine.decode(_ids(mine.encode("나는 책을"))), text="bytes must be in range(0, 256)"
    )
    if known is None:
        raise Wrong("no-return")
    require(known == "나는 책을", "other-text", given=repr(known), right=repr("나는 책을"))
    for text in TEXTS:
        given = raises("byte-by-byte", partial(_there_and_back, mine, text), text="UnicodeDecodeError")
        as_latin = "".join(c if c in TRAINING else c.encode().decode("latin-1") for c in text)
        if given != text:
            require(given != as_latin, "byte-as-character", given=repr(given), right=repr(text))
            lost = text.startswith(given) and len(given) > 0
            require(not lost, "bytes-left-over", given=repr(given), right=repr(text))
            require("\ufffd" not in given, "byte-by-byte")
        require(given == text, "other-text", given=repr(given), right=repr(text))
    yield passed("there-and-back")


def _there_and_back(mine: Any, text: str) -> Any:
    return mine.decode(mine.encode(text))


def _ids(given: object) -> list[int]:
    if given is None:
        raise Wrong("no-return")
    if not (isinstance(given, list) and all(type(one) is int for one in given)):
        raise Wrong("not-ids", kind=type(given).__name__)
    return given


# --- bpe_merges ---

WORDS = {"low": 7, "lower": 5, "newest": 6, "widest": 4, "new": 2, "slow": 3}
TIED = {"ab": 3, "cd": 3, "ba": 1}
Merges = list[tuple[str, str]]


def _apply_merges(code: Code) -> Steps:
    """Check merges that are applied to a word."""
    apply_merges = code.function("apply_merges")
    _compare_pieces(apply_merges, "banana", [("a", "n")], ["b", "an", "an", "a"])
    yield passed("one-merge")
    _compare_pieces(apply_merges, "aaa", [("a", "a")], ["aa", "a"])
    _compare_pieces(apply_merges, "aaaaa", [("a", "a"), ("aa", "aa")], ["aaaa", "a"])
    yield passed("pieces-used-once")
    _compare_pieces(apply_merges, "xab", [("x", "a"), ("a", "b")], ["xa", "b"])
    _compare_pieces(apply_merges, "abc", [("b", "c"), ("a", "b")], ["a", "bc"])
    _compare_pieces(apply_merges, "책을책을", [("책", "을"), ("책을", "책을")], ["책을책을"])
    yield passed("merges-in-order")


def _learn_merges(code: Code) -> Steps:
    """Check merges that are learned from words."""
    learn_merges = code.function("learn_merges")
    _compare_merges(learn_merges(dict(WORDS), 1), WORDS, 1)
    _compare_merges(learn_merges(dict(WORDS), 8), WORDS, 8)
    yield passed("most-frequent-pair")
    _compare_merges(learn_merges(dict(TIED), 2), TIED, 2)
    yield passed("tie-right")
    everything = raises("no-pair-left", lambda: learn_merges({"abc": 2}, 9), text=_EMPTY)
    require(everything is not None, "no-return")
    _compare_merges(everything, {"abc": 2}, 9)
    yield passed("stops")


_EMPTY = ("is an empty sequence", "iterable argument is empty", "IndexError")


def _as_jumok(code: Code) -> Steps:
    """Compare with the bpe tokenizer of jumok, on words whose pairs have no ties."""
    apply_merges, learn_merges = code.function("apply_merges"), code.function("learn_merges")
    text = "\n".join(word for word, count in WORDS.items() for _ in range(count))
    merges = [tuple(pair) for pair in learn_merges(dict(WORDS), 3)]
    theirs = train_tokenizer(text, "bpe", vocab_size=256 + len(merges))
    for word in (*WORDS, "lowest"):
        right = theirs.pieces(theirs.encode(word))
        require_equal(apply_merges(word, merges), right, "other-pieces", word=word)
    yield passed("equals-production-bpe")


bpe_merges: Checks = {"apply_merges": _apply_merges, "learn_merges": _learn_merges, "": _as_jumok}


def _compare_pieces(function: Callable[..., Any], word: str, merges: Merges, right: list[str]) -> None:
    """Compare the pieces of a word."""
    given = raises("out-of-range", lambda: function(word, list(merges)), text="IndexError")
    require(given is not None, "no-return")
    require(isinstance(given, list | tuple), "not-pieces", kind=type(given).__name__)
    given = list(given)
    if given == right:
        return
    values: dict[str, Any] = {"word": word, "given": given, "right": right}
    require(given != list(word), "not-merged/tokenizers", **values)
    require(len("".join(given)) <= len(word), "overlapping", **values)
    require(len("".join(given)) >= len(word), "last-piece-lost", **values)
    require_equal(given, right, "other-pieces", word=word)


def _applied(word: str, merges: Merges) -> list[str]:
    pieces = list(word)
    for pair in merges:
        place = 0
        while place < len(pieces) - 1:
            if (pieces[place], pieces[place + 1]) == pair:
                pieces[place : place + 2] = ["".join(pair)]
            place += 1
    return pieces


def _compare_merges(given: object, words: dict[str, int], n: int) -> None:
    """Compare learned merges."""
    require(given is not None, "no-return")
    right = _learned(words, n)
    merges = [tuple(pair) if isinstance(pair, list | tuple) else pair for pair in given]  # type: ignore[attr-defined]
    if merges == right:
        return
    pairs = all(isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(p, str) for p in pair) for pair in merges)
    require(pairs, "not-pairs/tokenizers")
    place = next(
        (i for i, (a, b) in enumerate(zip(merges, right, strict=False)) if a != b), min(len(merges), len(right))
    )
    require(len(merges) == 1 or len(set(merges)) > 1, "same-again")
    if place == min(len(merges), len(right)):
        raise Wrong("merge-count", merges, given=len(merges), right=len(right))
    raise Wrong("other-merge", merges, place=place, given=merges[place], right=right[place])


def _learned(words: dict[str, int], n: int) -> Merges:
    """Return the merges: of the most frequent pairs the smallest, of the words as they are merged so far."""
    merges: Merges = []
    for _ in range(n):
        counts: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(_applied(word, merges)):
                counts[pair] += count
        if counts:
            merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
    return merges
