"""Text generation: continue a prompt, show the text as soon as it is final, stop where asked.

`generate` returns finished texts, `stream` yields one text piece by piece, and `generate_ids` its ids. All three are
clients of an `Engine`. `score_ids` returns the log-probabilities of a given text, as if the model had written it.
"""

from __future__ import annotations

import secrets
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

import numpy as np

from jumok.config import GPTConfig, require_choice, require_count, require_type
from jumok.errors import ConfigError
from jumok.inference.engine import Engine, make_slots
from jumok.inference.native.parameters import NativeModel
from jumok.inference.native.slots import NativeSlots
from jumok.inference.requests import Drawn, Request, sample_number, text_request
from jumok.inference.sampling import Numbers, Sampling, SamplingSettings, likeliest, log_softmax
from jumok.inference.slots import QUANTIZATIONS, Chunk, Quantization, window_start
from jumok.inference.writer import Continuation
from jumok.models import require_memory_for_texts
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.special_ids import prompt_ids

if TYPE_CHECKING:
    from jumok.models.gpt import GPT

LARGEST_BATCH = 128  # texts that are written side by side
BUILT_FROM = 2_000  # tokens of a text, from which the C++ step is built if it is not there


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A continuation of a prompt.

    Fields:
        prompt: as it was given.
        text: the continuation alone, without the stop string. Prompt and text together are one text in NFC only
            after normalising: with a `jamo` tokenizer the text may begin with the tail of the prompt's last syllable.
        ids: every id that was drawn, those of a stop string included.
        tokens: their number.
        finish: "stop" at a stop string, at an id of the model that ends a text, or where the rules of the model allow
            no id; or "length" when the tokens were used up; a last character whose bytes are not complete by then is
            left out of the text. "not finite" where the model's logits were not finite after these ids, while other
            continuations went on.
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
def generate(model: GPT | NativeModel, prompt: str = "", **settings: Unpack[GenerateSettings]) -> list[Completion]: ...


@overload
def generate(
    model: GPT | NativeModel, prompt: list[str] | tuple[str, ...], **settings: Unpack[GenerateSettings]
) -> list[list[Completion]]: ...


def generate(
    model: GPT | NativeModel,
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
        model: with its tokenizer at `model.tokenizer`, as `jumok.load` or `jumok.runs.native.load_to_write` returns it.
        prompt: any text, also longer than the context; "" begins a new text, as after a newline, or after the id with
            which an imported model begins. Or a list of texts of any lengths: each is continued as it would be alone,
            all of them sooner than one by one.
        tokens: the most tokens to generate. samples: how many continuations of each prompt.
        seed: None: a new one each time. With the same seed sample i of prompt j is the same, whatever the number of
            samples and of prompts; no two of them share random numbers.
        stop: strings that end a continuation where the first of them would begin.
        cache: keep keys and values of past tokens; without it the result is the same, and takes longer.
        quantize: "int8" rounds the matrices to 8 bits: faster, and a little worse. "bfloat16" rounds to 16 bits. Both
            need a C++ compiler.
        sampling: temperature [0.8], top_k, top_p, min_p, repetition_penalty: see `Sampling`.

    Returns:
        The samples; for a list of prompts, the samples of each.

    Raises:
        ConfigError: a setting is out of range, or does not fit the model or the machine.
        TokenizerError: the model has no tokenizer, or the tokenizer cannot encode a prompt.
        JumokError: the model's logits are not finite in any continuation; see also `Completion.finish`.
    """
    require_count("samples", samples, 1)
    prompts = list(prompt) if isinstance(prompt, (list, tuple)) else [prompt]
    how = Sampling(**sampling)
    starts = _prepare(model, prompts, tokens, seed, stop, quantize)
    if not prompts:
        return []
    slots = min(samples * len(starts), LARGEST_BATCH)
    require_memory_for_texts(model.config, samples * len(starts), slots)
    one = _seed(seed)
    requests = [
        text_request(model, start, how, tokens=tokens, seed=one, sample=sample_number(number, sample), stop=stop)
        for number, start in enumerate(starts)
        for sample in range(samples)
    ]
    engine = Engine(model, slots, quantize=quantize, cache=cache, build=tokens >= BUILT_FROM)
    texts = write_all(engine, requests)
    if all(text.finish == "not finite" for text in texts):
        raise not_finite()
    done = [
        [_completion(one, text) for text in texts[i * samples : (i + 1) * samples]] for i, one in enumerate(prompts)
    ]
    return done[0] if isinstance(prompt, str) else done


def write_all(engine: Engine, requests: Sequence[Request]) -> list[Continuation]:
    """Write texts to their ends, as many side by side as the engine takes; in the order of the requests."""
    waiting, texts = deque(requests), []
    while waiting or engine.active:
        while waiting and engine.free:
            texts.append(engine.admit(waiting.popleft()))
        engine.step()
    return texts


def _completion(prompt: str, text: Continuation) -> Completion:
    assert text.finish is not None
    assert text.finish != "cancelled"
    assert text.finish != "loop"
    return Completion(prompt=prompt, text=text.text, ids=tuple(text.drawn), tokens=len(text.drawn), finish=text.finish)


def _seed(seed: int | None) -> int:
    """Return the seed, or a new one."""
    return secrets.randbits(63) if seed is None else seed


def stream(
    model: GPT | NativeModel,
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
    [start] = _prepare(model, [prompt], tokens, seed, stop, quantize)
    request = text_request(model, start, how, tokens=tokens, seed=_seed(seed), stop=stop)

    def pieces() -> Iterator[str]:
        engine = Engine(model, 1, quantize=quantize, cache=cache, build=tokens >= BUILT_FROM)
        text = engine.admit(request)
        while text.finish is None:
            engine.step()
            event = text.take()
            if event is not None and event.text:
                yield event.text
        if text.finish == "not finite":
            raise not_finite()

    return pieces()


def generate_ids(
    model: GPT | NativeModel,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    seed: int | None = None,
    cache: bool = True,
    quantize: Quantization | None = None,
) -> Generator[int]:
    """Continue the ids of a prompt: yield the next id, step by step, as long as the rules of the model allow one.

    Raises:
        JumokError: the logits are not finite.
        ConfigError: quantised matrices where the C++ step does not compute the model.
    """
    engine = Engine(model, 1, quantize=quantize, cache=cache)
    text = engine.admit(Request(prompt=prompt, sampling=sampling, tokens=sys.maxsize, seed=_seed(seed)))
    while True:
        engine.step()
        for new in event.drawn if (event := text.take()) is not None else ():
            yield new.id
        if text.finish == "not finite":
            raise not_finite()
        if text.finish is not None:
            return


def score_ids(model: GPT | NativeModel, ids: Sequence[int], top: int = 0) -> list[Drawn]:
    """Return each id of a text with its log-probability after those before it, and the `top` likeliest ids there.

    The model sees the same window of the text as when it writes (`window_start`). The first id has no
    log-probability. Ids that only the model has, not its tokenizer, have none either.

    Args:
        ids: (T,), less than the tokenizer's vocab_size.

    Returns:
        T of them.

    Raises:
        JumokError: the logits are not finite.
    """
    known, context = require_tokenizer(model).vocab_size, model.config.context_length
    found = [Drawn(id=one) for one in ids[:1]]
    while len(found) < len(ids):
        first = len(found)  # the id to predict, from those before it
        start = window_start(first, context)
        end = first  # the last id that is predicted from a window that begins there
        while end + 1 < len(ids) and window_start(end + 1, context) == start:
            end += 1
        logits = _window_logits(model, ids[start:end], first - 1 - start)[:, :known]  # (N, V)
        if not np.isfinite(logits).all():
            raise not_finite()
        for token, values in zip(ids[first : end + 1], log_softmax(logits), strict=True):
            found.append(Drawn(id=token, log_probability=float(values[token]), top=likeliest(values, top)))
    return found


def _window_logits(model: GPT | NativeModel, ids: Sequence[int], first: int) -> Numbers:
    """Return the logits after each id of a text that the model reads at once, from one on: (T - first, V)."""
    if not isinstance(model, NativeModel):
        from jumok.inference.torch_slots import window_logits

        return window_logits(model, ids, first)
    slots = cast("NativeSlots", make_slots(model, 1, None, cache=True, build=True))
    parts = [Chunk(0, start, ids[start : start + slots.longest]) for start in range(0, len(ids), slots.longest)]
    return np.concatenate([slots.read_every([part])[0] for part in parts])[first:]


def _prepare(
    model: GPT | NativeModel,
    prompts: Sequence[str],
    tokens: int,
    seed: int | None,
    stop: Sequence[str],
    quantize: str | None,
) -> list[list[int]]:
    """Check what the two calls share; the ids that each text starts from."""
    if not isinstance(getattr(model, "config", None), GPTConfig):
        raise ConfigError(
            "generate continues a text with a GPT, and this model is of the kind {kind}. An "
            "EncoderDecoder answers a text: from jumok.inference.answer import answer.",
            kind=type(model).__name__,
        )
    for one in prompts:
        require_type("prompt", one, str)
    require_count("tokens", tokens, 1)
    require_count("seed", seed or 0, 0)
    if quantize is not None:
        require_choice("quantize", quantize, QUANTIZATIONS)
    if isinstance(stop, str):
        raise ConfigError("stop={stop!r} is one string; give a list: [{stop!r}].", stop=stop)
    for each in stop:
        require_type("stop", each, str)
    if not all(stop):
        raise ConfigError("stop holds an empty string, at which every text would end at once; leave it out.")
    tokenizer = require_tokenizer(model)
    return [prompt_ids(model.config, tokenizer, prompt) for prompt in prompts]
