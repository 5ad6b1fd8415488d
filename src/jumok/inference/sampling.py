"""Which token comes next: temperature, filters and a draw, in NumPy.

Shapes: N texts, V ids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from jumok.config import require_count, require_range, require_type
from jumok.errors import ConfigError

Numbers = NDArray[Any]  # float32 or float64


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is drawn. What is on applies in this order.

    Fields:
        repetition_penalty: divides the positive and multiplies the negative logits of ids that occurred, in the prompt
            too (CTRL, https://arxiv.org/abs/1909.05858); 1 is off.
        presence_penalty: subtracted from the logits of ids that were drawn already; 0 is off.
        frequency_penalty: subtracted once for each time that an id was drawn; 0 is off.
        temperature: divides the logits; 0 takes the likeliest token, always.
        top_k: keep the k likeliest tokens (and those equal to the last of them); 0 or None keeps all.
        top_p: keep the fewest likeliest tokens that together have this probability
            (https://arxiv.org/abs/1904.09751); 1 keeps all.
        min_p: keep tokens at least this many times as likely as the likeliest (https://arxiv.org/abs/2407.01082);
            0 keeps all.

    Raises:
        ConfigError: a value is out of range.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        require_range("repetition_penalty", self.repetition_penalty, 0.01, 100)
        require_range("presence_penalty", self.presence_penalty, -100, 100)
        require_range("frequency_penalty", self.frequency_penalty, -100, 100)
        require_range("temperature", self.temperature, 0)
        require_count("top_k", self.top_k or 0, 0)
        require_type("top_p", self.top_p, float)
        if not 0 < self.top_p <= 1:
            raise ConfigError(
                "top_p={top_p!r} is out of range: it must be more than 0 and at most 1 (off).", top_p=self.top_p
            )
        require_range("min_p", self.min_p, 0, 1)

    @property
    def is_plain(self) -> bool:
        """Whether there is a temperature only."""
        return self == Sampling(temperature=self.temperature)

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters how often an id was drawn."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0


class SamplingSettings(TypedDict, total=False):
    """The fields of `Sampling` as keywords of a call: `Sampling(**settings)`."""

    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float


class Candidate(NamedTuple):
    """A token that may stand at a place, readable, and its probability among all tokens."""

    id: int
    token: str
    probability: float


def filtered(
    logits: Numbers, sampling: Sampling, seen: NDArray[np.bool_] | None = None, counts: Numbers | None = None
) -> Numbers:
    """Return the logits to draw from, -inf where a token is ruled out.

    Args:
        logits: (N, V), finite, or -inf where a rule forbids a token. seen: (N, V), bool, True for the ids that
            occurred; needed for the repetition penalty.
        counts: (N, V), how often each id was drawn; needed for the other two penalties.

    Returns:
        (N, V); up to a constant for each row, which cancels in the softmax.
    """
    if seen is not None:
        logits = penalised(logits, seen, sampling.repetition_penalty)
    if counts is not None:
        drawn_before = sampling.presence_penalty * (counts > 0) + sampling.frequency_penalty * counts
        logits = logits - drawn_before.astype(logits.dtype)
    if sampling.temperature == 0:
        return logits  # the likeliest token passes every filter
    # The largest becomes 0 first, so that a low temperature cannot overflow; one of 1e-40 is 0 in float32, and one of
    # 1e40 infinite.
    with np.errstate(over="ignore"):
        logits = _below_zero(logits) / min(max(sampling.temperature, 1e-30), 1e30)
    if sampling.top_k:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p > 0:
        logits = keep_min_p(logits, sampling.min_p)
    return logits


def penalised(logits: Numbers, seen: NDArray[np.bool_], penalty: float) -> Numbers:
    """Make `seen` ids less likely by dividing or multiplying, so that both signs move down. (N, V) -> (N, V)."""
    most = np.finfo(logits.dtype).max  # a large logit times a penalty may be infinite
    with np.errstate(over="ignore"):
        lowered = np.where(logits > 0, logits / penalty, logits * penalty).clip(-most, most)
    return np.where(seen & np.isfinite(logits), lowered, logits)


def keep_top_k(logits: Numbers, k: int) -> Numbers:
    """Rule out all but the k largest of each row, ties with the last of them kept. (N, V) -> (N, V)."""
    k = min(k, logits.shape[-1])
    least = np.partition(logits, -k, axis=-1)[:, -k, None]  # (N, 1)
    return np.where(logits < least, -math.inf, logits)


def keep_top_p(logits: Numbers, p: float) -> Numbers:
    """Rule out all but the fewest likeliest of each row whose probabilities reach p. (N, V) -> (N, V).

    Of equally likely ones those with the smaller ids are kept.
    """
    ordered = -np.sort(-logits, axis=-1)  # (N, V), the largest first
    probabilities = softmax(ordered)
    before = probabilities.cumsum(axis=-1, dtype=np.float64) - probabilities  # what the likelier ones have together
    count = (before < p).sum(axis=-1, keepdims=True).clip(1)  # (N, 1); one always stays
    least = np.take_along_axis(ordered, count - 1, axis=-1)  # (N, 1)
    larger, equal = logits > least, logits == least
    kept = larger | (equal & (equal.cumsum(axis=-1) <= count - larger.sum(axis=-1, keepdims=True)))
    return np.where(kept, logits, -math.inf)


def keep_min_p(logits: Numbers, p: float) -> Numbers:
    """Rule out what is less than p times as likely as the likeliest of its row. (N, V) -> (N, V)."""
    return np.where(logits < logits.max(axis=-1, keepdims=True) + math.log(p), -math.inf, logits)


def softmax(logits: Numbers) -> Numbers:
    """Return probabilities: (..., V) -> (..., V)."""
    weights = np.exp(_below_zero(logits))
    return weights / weights.sum(axis=-1, keepdims=True)


def log_softmax(logits: Numbers) -> Numbers:
    """Return the logarithms of probabilities: (..., V) -> (..., V)."""
    shifted = _below_zero(logits)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _below_zero(logits: Numbers) -> Numbers:
    """Subtract the largest of each row; a difference beyond the range of the type is -inf."""
    with np.errstate(over="ignore"):
        return logits - logits.max(axis=-1, keepdims=True)


def likeliest(log_probabilities: Numbers, count: int) -> tuple[tuple[int, float], ...]:
    """Return the most probable ids and their values, the most probable first; of equal ones the smaller id: (V,)."""
    count = min(count, len(log_probabilities))
    if count == 0:
        return ()
    least = np.partition(log_probabilities, -count)[-count]
    ids = np.flatnonzero(log_probabilities >= least)
    ids = ids[np.argsort(-log_probabilities[ids], kind="stable")[:count]]
    return tuple(zip(ids.tolist(), log_probabilities[ids].tolist(), strict=True))


def drawn(logits: Numbers, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the id at which the cumulative probability passes a random number.

    Args:
        logits: (N, V), -inf where ruled out. uniform: (N,), at least 0 and below 1.

    Returns:
        (N,); never one that is ruled out.
    """
    cumulative = softmax(logits).cumsum(axis=-1, dtype=np.float64)  # (N, V)
    # 1 - uniform is above 0 and at most 1: an id without probability adds no step to land on at either end.
    return (cumulative < (1 - uniform)[:, None] * cumulative[:, -1:]).sum(axis=-1)
