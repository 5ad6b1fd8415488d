"""Training of tokenizers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Event, Thread

import numpy as np

from jumok.config import require_choice, require_count
from jumok.errors import ConfigError, TokenizerError
from jumok.memory import require_memory
from jumok.messages import tr
from jumok.text.boundaries import recut, slices
from jumok.text.hangul import modern_syllables, nfc, nfd
from jumok.tokenizers import _pipeline
from jumok.tokenizers._tokenizer import Tokenizer
from tokenizers import trainers

DEFAULT_BPE_VOCAB = 8_000
DEFAULT_MIN_COUNT = 2
MOST = 1_000_000_000  # ids, or occurrences: the library uses 32-bit counts

_SLICE = 1 << 20  # characters of a long text to process at a time
_BPE_SLICE = 1 << 13
TOKEN_BYTES = 64  # that the library reserves for each token of a bpe vocabulary, at least

# A token in brackets is never a piece of the bpe pipeline, a character, or a byte token, so plain text is never encoded
# to its id.
_SPECIAL_TOKEN = re.compile(r"\[[A-Za-z]\w*\]|<[A-Za-z]\w*>|<\|[A-Za-z]\w*\|>", re.ASCII)


def train_tokenizer(
    text: str | Iterable[str],
    kind: str = "char",
    *,
    vocab_size: int | None = None,
    min_count: int | None = None,
    special_tokens: Sequence[str] = (),
) -> Tokenizer:
    """Train a tokenizer on `text`; the same text gives the same tokenizer.

    Args:
        text: a string, or consecutive chunks of one text. Chunks can end anywhere and are read once. The memory depends
            on the length of a chunk and the number of different words, not on the length of the text.
        kind: "char", one token per character; "jamo", one per letter of a syllable; "bpe", pieces of words
            (byte-level byte pair encoding; Sennrich et al. 2016, Radford et al. 2019).
        vocab_size: only for bpe: the largest number of tokens; 8,000 by default. The vocabulary of a short text, in
            which few pairs repeat, can be smaller.
        min_count: how often a character (for bpe: a pair) must occur to become a token; 2 by default. Other characters
            are encoded as UTF-8 bytes, and a model can learn these only if they occur in the training text. With 2,
            characters that occur once serve for that, at about the right rate: the probability that the next character
            is new is about the share of characters seen once (Good 1953, "The population frequencies of species and
            the estimation of population parameters", Biometrika 40). The jamo vocabulary contains all modern jamo.
        special_tokens: tokens such as `[MASK]` or `<|end|>`: letters in brackets. They get the first ids. Text is never
            encoded to them; see `Tokenizer`.

    Raises:
        ConfigError: a setting is unknown or out of range.
        TokenizerError: the text is empty or contains lone surrogates.
    """
    _check_settings(kind, vocab_size, min_count, special_tokens)
    least = DEFAULT_MIN_COUNT if min_count is None else min_count
    chunks = _checked_chunks(slices(text, _SLICE) if isinstance(text, str) else text)
    if kind == "bpe":
        tokens, merges = _learn_merges(chunks, (vocab_size or DEFAULT_BPE_VOCAB) - len(special_tokens), least)
    else:
        tokens = [*_pipeline.BYTE_TOKENS, *_collect_alphabet(chunks, kind, least)]
        merges = []
    vocab = {token: token_id for token_id, token in enumerate([*special_tokens, *tokens])}
    return Tokenizer(_pipeline.build(kind, vocab, merges, special_tokens))


def _collect_alphabet(chunks: Iterable[str], kind: str, min_count: int) -> list[str]:
    counts = np.zeros(sys.maxunicode + 1, np.int64)  # of each code point
    normalise = nfd if kind == "jamo" else nfc
    for piece in recut(chunks):
        points = np.frombuffer(normalise(piece).encode("utf-32-le"), np.dtype("<u4"))
        found = np.bincount(points)
        counts[: len(found)] += found
    characters = set(map(chr, np.flatnonzero(counts >= min_count).tolist()))
    if kind == "jamo":
        characters.update(nfd("".join(modern_syllables())))
    return sorted(characters)


def _learn_merges(chunks: Iterable[str], vocab_size: int, min_count: int) -> tuple[list[str], list[tuple[str, str]]]:
    learner = _pipeline.build("bpe", {}, [], [], pieces=_pipeline.LEARNED)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_count,
        initial_alphabet=sorted(_pipeline.BYTE_LETTERS),
        show_progress=False,
    )
    # The library reads 256 pieces ahead, so large chunks would take much memory.
    short = (part for chunk in chunks for part in slices(chunk, _BPE_SLICE))
    _interruptibly(lambda pieces: learner.train_from_iterator(pieces, trainer), recut(short, _pipeline.last_cut))
    model = json.loads(learner.to_str())["model"]
    merges = [(left, right) for left, right in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), merges


def _interruptibly(train: Callable[[Iterator[str]], None], pieces: Iterator[str]) -> None:
    """Train in another thread, because the library does not check for Ctrl-C while it learns merges."""
    stop, outcome = Event(), Future[None]()

    def read() -> Iterator[str]:
        for piece in pieces:
            if stop.is_set():  # an exception here ends the training
                raise KeyboardInterrupt
            yield piece

    def work() -> None:
        try:
            train(read())
            outcome.set_result(None)
        except BaseException as error:  # raised again below
            outcome.set_exception(error)

    thread = Thread(target=copy_context().run, args=(work,), daemon=True)  # keep the language of messages
    thread.start()
    try:
        outcome.result()
    except KeyboardInterrupt:
        stop.set()
        thread.join(1.0)  # it must not run Python code when the interpreter shuts down
        raise


def _checked_chunks(chunks: Iterable[str]) -> Iterator[str]:
    empty = True
    for chunk in chunks:
        _pipeline.require_utf8(chunk)
        empty = empty and not chunk
        yield chunk
    if empty:
        raise TokenizerError("the text is empty; a tokenizer needs a text to learn from")


def _check_settings(kind: str, vocab_size: int | None, min_count: int | None, special_tokens: Sequence[str]) -> None:
    require_choice("tokenizer", kind, _pipeline.KINDS)
    if min_count is not None:
        require_count("min_count", min_count, 1, MOST)
    if isinstance(special_tokens, str):
        raise ConfigError(
            "special_tokens={special_tokens!r} is one string; give a list: [{special_tokens!r}]",
            special_tokens=special_tokens,
        )
    for token in special_tokens:
        if not _SPECIAL_TOKEN.fullmatch(token):
            raise ConfigError(
                "special token {token!r} is not letters in brackets; use [NAME], <NAME> or <|NAME|>", token=token
            )
    if len(set(special_tokens)) < len(special_tokens):
        raise ConfigError("special_tokens={tokens} names a token twice; give each once", tokens=list(special_tokens))
    if vocab_size is None:
        return
    if kind != "bpe":
        raise ConfigError(
            "vocab_size={vocab_size} is for the bpe tokenizer; the vocabulary of {kind} follows from "
            "the text and min_count",
            vocab_size=vocab_size,
            kind=kind,
        )
    least = len(_pipeline.BYTE_LETTERS) + len(special_tokens)
    if vocab_size < least:
        raise ConfigError(
            "vocab_size={vocab_size} is too small; 256 bytes and {count} special tokens need {least} or more",
            vocab_size=vocab_size,
            count=len(special_tokens),
            least=least,
        )
    require_count("vocab_size", vocab_size, least, MOST)
    require_memory(TOKEN_BYTES * vocab_size, tr("a vocabulary of {count:,} tokens", count=vocab_size))
