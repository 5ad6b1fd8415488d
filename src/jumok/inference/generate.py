"""Writing with a model: choose the next token, show the text as soon as it is whole, stop where asked.

Ids go in and ids come out of one loop, `rollout`; around it `generate` returns finished texts and `stream` yields one
text piece by piece. What the model says comes next, and how it says it quickly, is in `jumok.inference.packed`.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from jumok.config import require_choice, require_range
from jumok.errors import ConfigError
from jumok.inference.packed import WEIGHTS, Texts, Weights
from jumok.inference.sampling import Sampling, drawn, filtered
from jumok.models import Model, require_room_to_write
from jumok.models.checks import finite_rows, not_finite, require_tokenizer
from jumok.models.framing import start_id
from jumok.models.gpt import GPT
from jumok.models.modes import parts_in_eval_mode
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model wrote after a prompt.

    Fields:
        prompt: as it was given.
        text: the continuation alone, without the stop string. Prompt and text together are one text in NFC only
            after normalising: with a `jamo` tokenizer the text may begin with the tail of the prompt's last syllable.
        ids: every id that was drawn, those of a stop string included.
        tokens: their number.
        finish: "stop" at a stop string, or "length" when the tokens were used up; a last character whose bytes are
            not complete by then is left out of the text. "not finite" where the model's logits were not finite after
            these ids, while other continuations went on.
    """

    prompt: str
    text: str
    ids: tuple[int, ...]
    tokens: int
    finish: Literal["length", "stop", "not finite"]


# --- the public calls -------------------------------------------------------------------------------------------------


class Settings(TypedDict, total=False):
    """What `generate` takes beside the prompt, which decides what it returns."""

    tokens: int
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    repetition_penalty: float
    samples: int
    seed: int | None
    stop: Sequence[str]
    cache: bool
    weights: Weights


@overload
def generate(model: GPT, prompt: str = "", **settings: Unpack[Settings]) -> list[Completion]: ...


@overload
def generate(
    model: GPT, prompt: list[str] | tuple[str, ...], **settings: Unpack[Settings]
) -> list[list[Completion]]: ...


def generate(
    model: GPT,
    prompt: str | list[str] | tuple[str, ...] = "",
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    samples: int = 1,
    seed: int | None = None,
    stop: Sequence[str] = (),
    cache: bool = True,
    weights: Weights = "full",
) -> list[Completion] | list[list[Completion]]:
    """Continue a prompt, or several side by side.

    The model is in eval mode meanwhile and goes back to its mode afterwards; torch's own random numbers are not
    touched.

    Args:
        model: with its tokenizer at `model.tokenizer`, as `jumok.load` returns it.
        prompt: any text, also longer than the context; "" begins a new text, as after a newline. Or a list of such
            texts, of any lengths: each is continued as it would be alone, and all of them sooner than one by one.
        tokens: the most tokens to write. samples: how many continuations of each prompt.
        temperature, top_k, top_p, min_p, repetition_penalty: see `Sampling`.
        seed: the same seed gives the same text, and sample i the same whatever the number of samples; None: a new
            one each time.
        stop: strings that end a continuation where the first of them would begin.
        cache: keep keys and values of past tokens; without it the result is the same, later.
        weights: "full", or "int8": weights rounded to 8 bits, which is faster where a model is large, and writes
            another text, a little worse (see `jumok.inference.packed.Decoder`).

    Returns:
        The samples; for a list of prompts, the samples of each.

    Raises:
        ConfigError: a setting is out of range, or does not fit the model or the machine.
        TokenizerError: the model has no tokenizer, or the tokenizer cannot encode a prompt.
        JumokError: the model's logits are not finite in any continuation; where they are in some, see
            `Completion.finish`.
    """
    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    require_range("samples", samples, 1)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    tokenizer, starts = _prepare(model, prompts, tokens, seed, stop, weights)
    if not prompts:
        return []
    require_room_to_write(model.config, len(prompts) * samples)
    writers = [_Writer(tokenizer, start, stop) for start in starts for _ in range(samples)]
    texts = Rollout(model, starts, sampling, samples=samples, seed=seed, cache=cache, weights=weights)
    for _ in range(tokens):
        found = texts.step()
        for row, token in zip(texts.rows, found, strict=True):
            writers[row].push(token)
        going = [place for place, row in enumerate(texts.rows) if writers[row].goes_on]
        if not going:
            break
        texts.keep(going)
    if all(writer.failed for writer in writers):
        raise not_finite()
    for writer in writers:
        writer.finish()
    done = [
        [writer.completion(one) for writer in writers[first : first + samples]]
        for one, first in zip(prompts, range(0, len(writers), samples), strict=True)
    ]
    return done[0] if isinstance(prompt, str) else done


def stream(
    model: GPT,
    prompt: str = "",
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    stop: Sequence[str] = (),
    cache: bool = True,
    weights: Weights = "full",
) -> Iterator[str]:
    """Continue a prompt, and yield each piece of text as soon as it is final.

    The pieces join to the text of `generate` with the same settings. They are whole characters, and a beginning of a
    stop string is held back until it is clear that it does not become one. The model is in eval mode while it writes,
    and between two pieces in its own.

    Args, Raises: as `generate`; settings are checked before the first piece is asked for.
    """
    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    tokenizer, [start] = _prepare(model, [prompt], tokens, seed, stop, weights)

    def pieces() -> Iterator[str]:
        writer = _Writer(tokenizer, start, stop)
        with closing(rollout(model, start, sampling, seed=seed, cache=cache, weights=weights)) as steps:
            for _ in range(tokens):
                if piece := writer.push(next(steps)[0]):
                    yield piece
                if writer.stopped:
                    return
        if piece := writer.finish():
            yield piece

    return pieces()


def _prepare(
    model: Model, prompts: Sequence[str], tokens: int, seed: int | None, stop: Sequence[str], weights: str
) -> tuple[Tokenizer, list[list[int]]]:
    """Check what the two calls share; the tokenizer, and the ids that each text starts from."""
    if not isinstance(model, GPT):
        raise ConfigError(
            "generate continues a text with a GPT, and this model is of the kind {kind}. An "
            "EncoderDecoder answers a text: from jumok.inference.answer import answer.",
            kind=type(model).__name__,
        )
    require_range("tokens", tokens, 1)
    require_range("seed", seed or 0, 0)
    require_choice("weights", weights, WEIGHTS)
    if isinstance(stop, str):
        raise ConfigError("stop={stop!r} is one string; give a list: [{stop!r}].", stop=stop)
    if not all(stop):
        raise ConfigError("stop holds an empty string, at which every text would end at once; leave it out.")
    tokenizer = require_tokenizer(model)
    return tokenizer, [tokenizer.encode(prompt).tolist() or [start_id(tokenizer)] for prompt in prompts]


# --- ids in, ids out --------------------------------------------------------------------------------------------------


def rollout(
    model: GPT,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    samples: int = 1,
    seed: int | None = None,
    cache: bool = True,
    weights: Weights = "full",
) -> Generator[list[int]]:
    """Continue `prompt` without an end: each step yields the next id of each sample.

    Raises:
        JumokError: the logits of a sample are not finite. ConfigError: int8 weights where there is no decoder for them.
    """
    texts = Rollout(model, [prompt], sampling, samples=samples, seed=seed, cache=cache, weights=weights)
    while True:
        found = texts.step()
        ids = [token for token in found if token is not None]
        if len(ids) < len(found):
            raise not_finite()
        yield ids


class Rollout:
    """Prompts of any lengths that a model continues side by side: the samples of the first one, of the second one, ...

    Each gets the random numbers that it would get alone. Ids that the model has but its tokenizer has not are never
    drawn. The model is in eval mode during a step.

    Args: as `rollout`.

    Attributes:
        rows: the texts under way, by their number.

    Raises:
        ConfigError: int8 weights where there is no decoder for them.
    """

    def __init__(
        self,
        model: GPT,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int | None = None,
        cache: bool = True,
        weights: Weights = "full",
    ) -> None:
        seeds = [secrets.randbits(63) if seed is None else seed for _ in prompts]
        # One generator for each sample, one number for each token, whatever the device or the size of the vocabulary.
        self._random = [
            np.random.Generator(np.random.PCG64((one, sample))) for one in seeds for sample in range(samples)
        ]
        self.rows = list(range(len(self._random)))
        self._parts, self._sampling = list(model.modules()), sampling
        self._known = model.tokenizer.vocab_size if model.tokenizer is not None else model.config.vocab_size
        self._texts = Texts(model, [ids for ids in prompts for _ in range(samples)], cache=cache, weights=weights)
        self._new: list[int | None] = []  # what the last step found
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self._seen = torch.zeros(len(self.rows), self._known, dtype=torch.bool)  # (B, V)
            for row, ids in enumerate(self._texts.ids):
                self._seen[row, ids] = True

    @torch.inference_mode()
    def step(self) -> list[int | None]:
        """The next id of each text under way; None where the logits are not finite, so that it has to be let go.

        Raises:
            JumokError: one that had to be is still there.
        """
        if self._new:
            ids = [token for token in self._new if token is not None]
            if len(ids) < len(self._new):
                raise not_finite()
            self._texts.append(ids)
        with parts_in_eval_mode(self._parts):
            # On the CPU from here: the choice needs float64, which some devices have not.
            logits = self._texts.next_logits()[:, : self._known].cpu()  # (B, V)
        finite = finite_rows(logits)  # (B,)
        logits = filtered(logits, self._sampling, self._seen)  # (B, V)
        if self._sampling.temperature == 0:
            new = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
        else:
            new = drawn(logits, torch.tensor([[r.random()] for r in self._random], dtype=torch.float64))
        if self._seen is not None:
            self._seen.scatter_(1, new.masked_fill(~finite[:, None], 0), True)
        fine = finite.tolist()
        self._new = [token if ok else None for token, ok in zip(new[:, 0].tolist(), fine, strict=True)]
        return self._new

    def keep(self, places: Sequence[int]) -> None:
        """Go on with these of `rows` alone, one or more, by their places in it, rising."""
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        self._random = [self._random[place] for place in places]
        self._new = [self._new[place] for place in places]
        self._texts.select(places)
        if self._seen is not None:
            self._seen = self._seen[places]


# --- which id comes next ----------------------------------------------------------------------------------------------


# --- ids to text ------------------------------------------------------------------------------------------------------


class _Writer:
    """One continuation as it grows: decodes its ids, and looks for the stop strings."""

    def __init__(self, tokenizer: Tokenizer, start: Sequence[int], stop: Sequence[str]) -> None:
        self.ids: list[int] = []
        self.text = ""
        self.stopped = self.failed = False
        self._stop = [nfc(string) for string in stop]
        self._held = ""  # decoded, but perhaps the beginning of a stop string
        self._stream = tokenizer.stream()
        if tokenizer.kind == "other":  # its first token may read differently at the start of a text
            for token in start[-8:]:
                self._stream.push(token)

    @property
    def goes_on(self) -> bool:
        """Whether it takes further ids."""
        return not (self.stopped or self.failed)

    def push(self, token: int | None) -> str:
        """Take an id, or None where the model could not give one; the text that became final with it."""
        if token is None:
            self.failed = True
            return ""
        self.ids.append(token)
        return self._release(self._stream.push(token))

    def completion(self, prompt: str) -> Completion:
        """What was written, after `finish`."""
        return Completion(
            prompt=prompt,
            text=self.text,
            ids=tuple(self.ids),
            tokens=len(self.ids),
            finish="stop" if self.stopped else "not finite" if self.failed else "length",
        )

    def finish(self) -> str:
        """The text that was held back, without a last character whose bytes are not complete."""
        if self.stopped:
            return ""
        piece = self._release(self._stream.flush().rstrip("\ufffd"))
        if not self.stopped:
            piece += self._held
            self.text += self._held
            self._held = ""
        return piece

    def _release(self, piece: str) -> str:
        text = self._held + piece
        found = [at for string in self._stop if (at := text.find(string)) >= 0]
        self.stopped = bool(found)
        end = min(found) if found else len(text) - _overlap(text, self._stop)
        self._held = text[end:]
        self.text += text[:end]
        return text[:end]


def _overlap(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins one of the stop strings."""
    longest = max((len(string) - 1 for string in stop), default=0)
    return next((n for n in range(min(longest, len(text)), 0, -1) if any(s.startswith(text[-n:]) for s in stop)), 0)
