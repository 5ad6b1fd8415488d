"""What an engine is asked to write, and what it returns piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from jumok.config import require_range
from jumok.errors import ConfigError, JumokError
from jumok.inference.sampling import Sampling

Finish = Literal["stop", "length", "not finite", "cancelled"]
MOST_SAMPLES = 2**32  # of a prompt; a number for each sample, which does not depend on how many there are


class Overloaded(JumokError):
    """So many texts are waiting that another one is refused."""


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
    no_repeat_ngram: int = 0
    top: int | None = None

    def __post_init__(self) -> None:
        require_range("tokens", self.tokens, 1)
        require_range("seed", self.seed, 0)
        require_range("sample", self.sample, 0)
        require_range("top", self.top or 0, 0)
        require_range("no_repeat_ngram", self.no_repeat_ngram, 0)
        if not self.prompt:
            raise ConfigError("the prompt has no ids; begin with the start id.")


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
    """News of a text.

    Fields:
        drawn: the new ids.
        text: the text that became final with them; whole characters, nothing of a stop string.
        finish: why the text ended, or None if it goes on. "stop": at a stop string or stop id; "length": the ids are
            used up; "not finite": the model's logits were not finite; "cancelled": the caller wanted no more.
    """

    drawn: tuple[Drawn, ...]
    text: str
    finish: Finish | None = None

    def __add__(self, later: Event) -> Event:
        return Event(self.drawn + later.drawn, self.text + later.text, later.finish)


def joined(events: Sequence[Event]) -> Event:
    """Events as one. Adding them one by one would take quadratic time."""
    drawn = tuple(one for event in events for one in event.drawn)
    return Event(drawn, "".join(event.text for event in events), events[-1].finish if events else None)


def overloaded(waiting: int) -> Overloaded:
    """The error for a full queue."""
    return Overloaded("{waiting} texts are waiting already; try again in a moment.", waiting=waiting)
