"""Text generation: continue a prompt, show the text as soon as it is final, stop where asked.

`generate` returns finished texts, `stream` yields one text piece by piece. The loop over ids is in
`jumok.inference.decoding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack, overload

from jumok.config import require_choice, require_range
from jumok.errors import ConfigError
from jumok.inference.decoding import Decoding, generate_ids
from jumok.inference.matrices import QUANTIZATIONS, Quantization
from jumok.inference.sampling import Sampling, SamplingSettings
from jumok.models import Model, require_room_to_write
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.framing import start_id
from jumok.models.gpt import GPT
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A continuation of a prompt.

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


class GenerateSettings(SamplingSettings, total=False):
    """The keywords of `generate`, for its overloads."""

    tokens: int
    samples: int
    seed: int | None
    stop: Sequence[str]
    cache: bool
    quantize: Quantization | None


@overload
def generate(model: GPT, prompt: str = "", **settings: Unpack[GenerateSettings]) -> list[Completion]: ...


@overload
def generate(
    model: GPT, prompt: list[str] | tuple[str, ...], **settings: Unpack[GenerateSettings]
) -> list[list[Completion]]: ...


def generate(
    model: GPT,
    prompt: str | list[str] | tuple[str, ...] = "",
    *,
    tokens: int = 200,
    samples: int = 1,
    seed: int | None = None,
    stop: Sequence[str] = (),
    cache: bool = True,
    quantize: Quantization | None = None,
    **sampling: Unpack[SamplingSettings],
) -> list[Completion] | list[list[Completion]]:
    """Continue a prompt, or several in one batch.

    The model is in eval mode meanwhile; torch's own random numbers are not touched.

    Args:
        model: with its tokenizer at `model.tokenizer`, as `jumok.load` returns it.
        prompt: any text, also longer than the context; "" begins a new text, as after a newline. Or a list of texts of
            any lengths: each is continued as it would be alone, all of them sooner than one by one.
        tokens: the most tokens to generate. samples: how many continuations of each prompt.
        seed: None: a new one each time. With the same seed sample i is the same, whatever the number of samples.
        stop: strings that end a continuation where the first of them would begin.
        cache: keep keys and values of past tokens; without it the result is the same, and takes longer.
        quantize: "int8" rounds the matrices to 8 bits: faster for a large model, and a little worse, see `PackedGPT`.
        sampling: temperature [0.8], top_k, top_p, min_p, repetition_penalty: see `Sampling`.

    Returns:
        The samples; for a list of prompts, the samples of each.

    Raises:
        ConfigError: a setting is out of range, or does not fit the model or the machine.
        TokenizerError: the model has no tokenizer, or the tokenizer cannot encode a prompt.
        JumokError: the model's logits are not finite in any continuation; see also `Completion.finish`.
    """
    require_range("samples", samples, 1)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    how = Sampling(**sampling)
    tokenizer, starts = _prepare(model, prompts, tokens, seed, stop, quantize)
    if not prompts:
        return []
    require_room_to_write(model.config, samples * len(starts))
    writers = [_Writer(tokenizer, start, stop) for start in starts for _ in range(samples)]
    _write(Decoding(model, starts, how, samples=samples, seed=seed, cache=cache, quantize=quantize), writers, tokens)
    done = [
        [writer.completion(one) for writer in writers[i * samples : (i + 1) * samples]] for i, one in enumerate(prompts)
    ]
    return done[0] if isinstance(prompt, str) else done


def _write(decoding: Decoding, writers: Sequence[_Writer], tokens: int) -> None:
    """Give each writer its ids until all of them have stopped, or have so many tokens."""
    for _ in range(tokens):
        found = decoding.step()
        for row, token in zip(decoding.rows, found, strict=True):
            writers[row].push(token)
        going = [place for place, row in enumerate(decoding.rows) if writers[row].goes_on]
        if not going:
            break
        decoding.keep(going)
    if all(writer.failed for writer in writers):
        raise not_finite()
    for writer in writers:
        writer.finish()


def stream(
    model: GPT,
    prompt: str = "",
    *,
    tokens: int = 200,
    seed: int | None = None,
    stop: Sequence[str] = (),
    cache: bool = True,
    quantize: Quantization | None = None,
    **sampling: Unpack[SamplingSettings],
) -> Iterator[str]:
    """Continue a prompt, and yield each piece of text as soon as it is final.

    The pieces join to the text of `generate` with the same settings. They are whole characters, and what may be the
    beginning of a stop string is held back until that is decided. The model is in eval mode during a step only.

    Args, Raises: as `generate`; settings are checked before the first piece is asked for.
    """
    how = Sampling(**sampling)
    tokenizer, [start] = _prepare(model, [prompt], tokens, seed, stop, quantize)

    def pieces() -> Iterator[str]:
        writer = _Writer(tokenizer, start, stop)
        steps = generate_ids(model, start, how, seed=seed, cache=cache, quantize=quantize)
        for _, token in zip(range(tokens), steps, strict=False):
            if piece := writer.push(token):
                yield piece
            if writer.stopped:
                return
        if piece := writer.finish():
            yield piece

    return pieces()


def _prepare(
    model: Model, prompts: Sequence[str], tokens: int, seed: int | None, stop: Sequence[str], quantize: str | None
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
    if quantize is not None:
        require_choice("quantize", quantize, QUANTIZATIONS)
    if isinstance(stop, str):
        raise ConfigError("stop={stop!r} is one string; give a list: [{stop!r}].", stop=stop)
    if not all(stop):
        raise ConfigError("stop holds an empty string, at which every text would end at once; leave it out.")
    tokenizer = require_tokenizer(model)
    return tokenizer, [tokenizer.encode(prompt).tolist() or [start_id(tokenizer)] for prompt in prompts]


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
