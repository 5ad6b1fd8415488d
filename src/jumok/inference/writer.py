"""One continuation as it grows: its ids, the text that they make, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jumok.inference.looping import is_looping
from jumok.inference.requests import Drawn, Event, Finish, ReasoningMarks, Request
from jumok.inference.rules import NextIdRules
from jumok.tokenizers import Stream, Tokenizer

LONGEST_CONTEXT = 8  # ids of the prompt that can change how the first new token reads


class Continuation:
    """The state of one text in an engine.

    Args:
        request: what is to be written. tokenizer: None for ids alone, without text. vocab_size: V, of the ids that may
            be drawn. rules: which of them may come next; None: all.

    Attributes:
        ids: the prompt and what was drawn. drawn: the ids that were drawn.
        finish: why it ended, or None.
        total: the sum of the log-probabilities of the drawn ids, in nats, if the request asks for them.
        has_plain_sampling: nothing but a temperature changes what is drawn.
        seen: (V,), bool, the ids that occurred; counts: (V,), how often each was drawn. None if no penalty needs them.
    """

    def __init__(
        self, request: Request, tokenizer: Tokenizer | None, vocab_size: int, rules: NextIdRules | None = None
    ) -> None:
        self.request, self.rules = request, rules
        self.ids = list(request.prompt)
        self.drawn: list[int] = []
        self.total = 0.0
        self.finish: Finish | None = None
        # One generator for each text, one number for each token, whatever the device or the size of the vocabulary.
        self._random = np.random.Generator(np.random.PCG64((request.seed, request.sample)))
        self._news: list[Drawn] = []
        self._text, self._new_text = [""], ""  # pieces: a long text is not copied for each token
        self._decoder = None if tokenizer is None else TextDecoder(tokenizer, self.ids, request.stop, request.reasoning)
        self._silent = request.stop_ids | request.special_ids
        self.seen: NDArray[np.bool_] | None = None
        self.counts: NDArray[np.float32] | None = None
        self.has_plain_sampling = request.sampling.is_plain and rules is None
        if request.sampling.repetition_penalty != 1:
            self.seen = np.zeros(vocab_size, np.bool_)
            self.seen[[token for token in self.ids if token < vocab_size]] = True
        if request.sampling.counts_tokens:
            self.counts = np.zeros(vocab_size, np.float32)

    @property
    def text(self) -> str:
        """What is final of it."""
        self._text = ["".join(self._text)]
        return self._text[0]

    def uniform(self) -> float:
        """Return the next random number, at least 0 and below 1."""
        return float(self._random.random())

    def push(self, new: Drawn) -> None:
        """Take an id."""
        token = new.id
        self.ids.append(token)
        self.drawn.append(token)
        self._news.append(new)
        if new.log_probability is not None:
            self.total += new.log_probability
        if self.seen is not None:
            self.seen[token] = True
        if self.counts is not None:
            self.counts[token] += 1
        if self._decoder is not None:
            mark = None if self.request.reasoning is None else self.request.reasoning.tokens.get(token)
            if mark is not None:
                self._add(self._decoder.mark(mark).replace(mark, ""))
            elif token not in self._silent:
                self._add(self._decoder.push(token))
        if token in self.request.stop_ids or (self._decoder is not None and self._decoder.stopped):
            self.end("stop")
        elif self.request.ends_loops and is_looping(self.drawn):
            self.end("loop")
        elif len(self.drawn) == self.request.tokens:
            self.end("length")

    def end(self, finish: Finish) -> None:
        """Take no more ids."""
        if self._decoder is None:
            self.finish = finish
        else:
            self._add(self._decoder.finish())
            self.finish = "stop" if self._decoder.stopped else finish

    def take(self) -> Event | None:
        """Return what is new since the last call, or None."""
        if not self._news and not self._new_text and self.finish is None:
            return None
        event = Event(tuple(self._news), self._new_text, self.finish)
        self._news, self._new_text = [], ""
        return event

    def _add(self, text: str) -> None:
        self._text.append(text)
        self._new_text += text


def stream_after(tokenizer: Tokenizer, start: Sequence[int]) -> Stream:
    """Return a decoder for the ids that follow `start`: a first token may read differently at the start of a text."""
    stream = tokenizer.stream()
    if tokenizer.kind == "other":
        for token in start[-LONGEST_CONTEXT:]:
            stream.push(token)
    return stream


class TextDecoder:
    """Ids to text, whole characters only, up to the first stop string after the reasoning of an answer.

    Args:
        start: the ids of the prompt. stop: strings in NFC. reasoning: what encloses the reasoning; None if the text has
            none.
    """

    def __init__(
        self, tokenizer: Tokenizer, start: Sequence[int], stop: Sequence[str], reasoning: ReasoningMarks | None = None
    ) -> None:
        self.stopped = False
        self._stop = stop
        self._held = ""  # decoded, but perhaps the beginning of a string that is looked for
        self._stream = stream_after(tokenizer, start)
        self._reasoning = reasoning
        self._begun = reasoning is None or reasoning.is_open  # it is known whether the text begins with reasoning
        self._in_reasoning = reasoning is not None and reasoning.is_open
        self._between = False  # after the reasoning, before the first character that is no white space

    def push(self, token: int) -> str:
        """Return the text that became final with this id."""
        return self._release(self._stream.push(token))

    def mark(self, string: str) -> str:
        """Return the text that became final with a special id that opens or closes the reasoning, and its string."""
        return self.finish() + ("" if self.stopped else self._release(string))

    def finish(self) -> str:
        """Return the text that was held back, without a last character whose bytes are not complete."""
        if self.stopped:
            return ""
        piece = self._release(self._stream.flush().rstrip("\ufffd"))
        if not self.stopped:
            piece, self._held = piece + self._held, ""
        return piece

    def _release(self, piece: str) -> str:
        if not self._stop:
            return piece
        passed, text = self._before_content(self._held + piece)
        if not self._begun or self._in_reasoning or self._between:
            self._held = text
            return passed
        found = [at for string in self._stop if (at := text.find(string)) >= 0]
        self.stopped = bool(found)
        end = min(found) if found else len(text) - overlap_at_end(text, self._stop)
        self._held = text[end:]
        return passed + text[:end]

    def _before_content(self, text: str) -> tuple[str, str]:
        """Divide a text into what precedes the content of an answer for certain, and the rest.

        No stop string is looked for in the reasoning, and in the white space after it, which is no part of the content.
        """
        if self._reasoning is None:
            return "", text
        opening, closing = self._reasoning.opening, self._reasoning.closing
        if not self._begun:
            body = text.lstrip()
            if len(body) < len(opening) and opening.startswith(body):
                return "", text
            self._begun, self._in_reasoning = True, body.startswith(opening)
        passed = ""
        if self._in_reasoning:
            inside, close, rest = text.partition(closing)
            if not close:
                end = len(text) - overlap_at_end(text, [closing])
                return text[:end], text[end:]
            self._in_reasoning, self._between = False, True
            passed, text = inside + close, rest
        if self._between:
            content = text.lstrip()
            passed, text = passed + text[: len(text) - len(content)], content
            self._between = not content
        return passed, text


def overlap_at_end(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins one of the stop strings."""
    longest = max((len(string) - 1 for string in stop), default=0)
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stop)), 0)
