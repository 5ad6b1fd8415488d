"""Incremental decoding: ids are passed one at a time, and text is returned as soon as it is final."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jumok.text.boundaries import is_settled, last_fresh_start
from jumok.text.hangul import nfc


class Stream(ABC):
    """An incremental decoder. The results of all `push` calls and a final `flush`, joined, equal `decode(ids)`.

    A character with missing bytes is held back, as is a `jamo` syllable that the next id can extend. U+FFFD is returned
    only for bytes that are invalid with any continuation.
    """

    @abstractmethod
    def push(self, token_id: int) -> str:
        """Add one id and return the text that is now final: often "", sometimes several characters.

        Raises TokenizerError for an id outside the vocabulary.
        """

    @abstractmethod
    def flush(self) -> str:
        """End the text: return the text that was held back, and reset the decoder."""


class ByteStream(Stream):
    """A stream for tokens that are UTF-8 bytes: the kinds char, jamo and bpe."""

    def __init__(self, bytes_of: Callable[[int], bytes], *, compose: bool) -> None:
        self._bytes_of = bytes_of
        self._compose = compose
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # decomposed text whose last character may still change; only with `compose`

    def push(self, token_id: int) -> str:
        text = self._decoder.decode(self._bytes_of(token_id))
        if not self._compose or not text:
            return text
        cut = len(text) if is_settled(text[-1]) else last_fresh_start(text)
        if cut < 0:
            self._held += text
            return ""
        final, self._held = self._held + text[:cut], text[cut:]
        return nfc(final)

    def flush(self) -> str:
        text = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        self._decoder.reset()
        return nfc(text) if self._compose else text


class WindowStream(Stream):
    """A stream for tokenizers of the kind "other": decodes the last tokens again with each new one.

    A token can have another text at the start, so each step compares two decodings that start at the same token. The
    parts join to `decode(ids)` if the decoder of the tokenizer works from left to right.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0  # ids whose text has been returned

    def push(self, token_id: int) -> str:
        ids = [*self._ids, token_id]
        text = self._unseen(ids)
        if not text or text.endswith("\ufffd"):
            self._ids = ids
            return ""
        self._ids, self._shown = ids[self._shown :], len(ids) - self._shown
        return text

    def flush(self) -> str:
        text = self._unseen(self._ids)
        self._ids, self._shown = [], 0
        return text

    def _unseen(self, ids: list[int]) -> str:
        return self._decode(ids)[len(self._decode(ids[: self._shown])) :]
