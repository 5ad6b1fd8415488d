"""What an engine is asked to write, and what it returns piece by piece.

`text_request` and `answer_request` make all requests: those of `jumok.generate`, the commands and the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from jumok.config import EncoderDecoderConfig, require_count
from jumok.errors import ConfigError, JumokError, TokenizerError
from jumok.inference.answer_search import special_ids
from jumok.inference.sampling import Sampling
from jumok.models.checks import Described, require_tokenizer
from jumok.models.special_ids import prompt_ids, start_ids
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer

if TYPE_CHECKING:
    from jumok.inference.native.parameters import NativeModel
    from jumok.models.encoder_decoder import EncoderDecoder
    from jumok.models.gpt import GPT

Finish = Literal["stop", "length", "loop", "not finite", "cancelled"]
MOST_SAMPLES = 2**32  # of a prompt; a number for each sample, which does not depend on how many there are


class Overloaded(JumokError):
    """A text is refused, because too many are waiting already."""


class ReasoningMarks(NamedTuple):
    """What encloses the reasoning at the beginning of an answer.

    Fields:
        opening, closing: strings. tokens: the string that stands for an id that is special, if the marks are such ids.
        is_open: the prompt ends with the opening mark.
    """

    opening: str
    closing: str
    tokens: Mapping[int, str]
    is_open: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """One text to write.

    Fields:
        prompt: ids, at least one; of an encoder–decoder the ids that the decoder begins with.
        source: ids that an encoder reads; None for a GPT.
        sampling: how ids are chosen.
        tokens: the most ids to write.
        seed: of the random numbers; sample: which of several texts with the same seed this is.
        stop: strings that end the text where the first of them would begin, in NFC.
        stop_ids: ids that end the text. special_ids: ids that are no part of the text; those of `stop_ids` never are.
        reasoning: what encloses the reasoning of an answer, in which no string of `stop` is looked for.
        ends_loops: a text that repeats itself ends (`jumok.inference.looping`).
        no_repeat_ngram: no sequence of so many ids occurs twice; 0 is off. See `NextIdRules` for the rules of a model.
        top: how many of the likeliest ids are returned with each id; None: not even its own log-probability.

    Raises:
        ConfigError: a value is out of range.
    """

    prompt: Sequence[int]
    source: Sequence[int] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    tokens: int = 200
    seed: int = 0
    sample: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()
    reasoning: ReasoningMarks | None = None
    ends_loops: bool = False
    no_repeat_ngram: int = 0
    top: int | None = None

    def __post_init__(self) -> None:
        require_count("tokens", self.tokens, 1)
        require_count("seed", self.seed, 0)
        require_count("sample", self.sample, 0)
        require_count("top", self.top or 0, 0)
        require_count("no_repeat_ngram", self.no_repeat_ngram, 0)
        if not self.prompt:
            raise ConfigError("the prompt has no ids; begin with the start id.")


def text_request(
    model: GPT | NativeModel,
    prompt: str | Sequence[int],
    sampling: Sampling,
    *,
    tokens: int,
    seed: int = 0,
    sample: int = 0,
    stop: Sequence[str] = (),
    top: int | None = None,
) -> Request:
    """Return the request to continue a text, which ends at an id with which the model ends one.

    Args:
        prompt: a text, or ids as they are; without any it begins a new text. stop: strings in any normal form. The
            other arguments are fields of `Request`.

    Raises:
        TokenizerError: the model has no tokenizer, or it cannot encode the prompt. ConfigError: as `Request`.
    """
    tokenizer = require_tokenizer(model)
    if isinstance(prompt, str):
        prompt = prompt_ids(model.config, tokenizer, prompt)
    return Request(
        prompt=prompt or start_ids(model.config, tokenizer),
        sampling=sampling,
        tokens=tokens,
        seed=seed,
        sample=sample,
        stop=tuple(nfc(string) for string in stop),
        stop_ids=frozenset(model.config.eos_ids),
        top=top,
    )


def answer_request(
    model: EncoderDecoder,
    source: Sequence[int],
    sampling: Sampling,
    *,
    tokens: int,
    seed: int = 0,
    sample: int = 0,
    stop: Sequence[str] = (),
    no_repeat_ngram: int = 0,
    top: int | None = 0,
) -> Request:
    """Return the request to answer a source, which ends at the id that ends an answer.

    Args:
        source: the ids that the encoder reads; see `jumok.inference.answer.with_special_tokens`. stop: strings in any
            normal form. The other arguments are fields of `Request`.

    Raises:
        TokenizerError: the model has no tokenizer, or no id that begins or ends an answer.
    """
    tokenizer = require_answering(model)
    assert model.config.decoder_start_id is not None  # `require_answering` has checked both
    assert model.config.eos_id is not None
    return Request(
        prompt=[model.config.decoder_start_id],
        source=source,
        sampling=sampling,
        tokens=tokens,
        seed=seed,
        sample=sample,
        stop=tuple(nfc(string) for string in stop),
        stop_ids=frozenset([model.config.eos_id]),
        special_ids=special_ids(tokenizer, model.config),
        no_repeat_ngram=no_repeat_ngram,
        top=top,
    )


def require_answering(model: Described) -> Tokenizer:
    """Return the tokenizer of a model that can answer.

    Raises:
        ConfigError: it is no encoder–decoder.
        TokenizerError: it has no tokenizer, or no id that begins or ends an answer.
    """
    if not isinstance(model.config, EncoderDecoderConfig):
        raise ConfigError(
            "only an EncoderDecoder answers, and this model is of the kind {kind}; train one with "
            "task seq2seq. A GPT continues a text: jumok.generate.",
            kind=type(model).__name__,
        )
    missing = [name for name in ("decoder_start_id", "eos_id") if getattr(model.config, name) is None]
    if missing:
        raise TokenizerError(
            "this model cannot answer: its configuration has no {names}, the ids that begin and end "
            "an answer; give the ids of the special tokens that it was trained with.",
            names=", ".join(missing),
        )
    return require_tokenizer(model)


def sample_number(prompt: int, sample: int) -> int:
    """Return the number of a sample among those of several prompts that share a seed; no two are the same."""
    return prompt * MOST_SAMPLES + sample


@dataclass(frozen=True, slots=True)
class Drawn:
    """An id that was chosen.

    Fields:
        id: the id.
        log_probability: ln of its probability among all ids, before temperature and filters; None if not asked for.
        top: the likeliest ids and their log-probabilities, the likeliest first.
    """

    id: int
    log_probability: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What is new of a text.

    Fields:
        drawn: the new ids.
        text: the text that became final with them; whole characters, nothing of a stop string.
        finish: why the text ended, or None if it goes on. "stop": at a stop string or stop id, or where no id may
            come next; "length": the ids are used up; "loop": it repeated itself; "not finite": the model's logits were
            not finite; "cancelled": the caller wanted no more.
        reasoning: as text, of what an answer says before it; see `jumok.inference.chat.AnswerParts`.
    """

    drawn: tuple[Drawn, ...]
    text: str
    finish: Finish | None = None
    reasoning: str = ""


def joined(events: Sequence[Event]) -> Event:
    """Return events as one."""
    drawn = tuple(one for event in events for one in event.drawn)
    return Event(drawn, "".join(event.text for event in events), events[-1].finish if events else None)


def overloaded(waiting: int) -> Overloaded:
    """Return the error for a full queue."""
    return Overloaded("{waiting} texts are waiting already; try again in a moment.", waiting=waiting)
