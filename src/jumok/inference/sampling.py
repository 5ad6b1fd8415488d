"""Which token comes next: temperature, filters and a draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from jumok.config import require_range
from jumok.errors import ConfigError


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
        require_range("top_k", self.top_k or 0, 0)
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


def filtered(logits: Tensor, sampling: Sampling, seen: Tensor | None = None, counts: Tensor | None = None) -> Tensor:
    """Return the logits to draw from, -inf where a token is ruled out.

    Args:
        logits: (B, V), finite. seen: (B, V), bool, True for the ids that occurred; needed for the repetition penalty.
        counts: (B, V), how often each id was drawn; needed for the other two penalties.

    Returns:
        (B, V); up to a constant for each row, which cancels in the softmax.
    """
    if seen is not None:
        most = torch.finfo(logits.dtype).max  # a large logit times a penalty may be infinite
        logits = penalised(logits, seen, sampling.repetition_penalty).clamp(-most, most)
    if counts is not None:
        logits = logits - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts
    if sampling.temperature == 0:
        return logits  # the likeliest token passes every filter
    # The largest becomes 0 first, so that a low temperature cannot overflow; one of 1e-40 is 0 in float32, and one of
    # 1e40 infinite.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / min(max(sampling.temperature, 1e-30), 1e30)
    if sampling.top_k:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p > 0:
        logits = keep_min_p(logits, sampling.min_p)
    return logits


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make `seen` ids less likely by dividing or multiplying, so that both signs move down. (B, V) -> (B, V)."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Rule out all but the k largest of each row, ties with the last of them kept. (B, V) -> (B, V)."""
    least = logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:]  # (B, 1)
    return logits.masked_fill(logits < least, -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Rule out all but the fewest likeliest of each row whose probabilities reach p. (B, V) -> (B, V)."""
    ordered, places = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # (B, V), what the likelier ones have together
    out = before >= p
    out[:, 0] = False  # one always stays, also where p is 0 in the type of the logits
    return torch.empty_like(logits).scatter_(1, places, ordered.masked_fill(out, -math.inf))


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Rule out what is less than p times as likely as the likeliest of its row. (B, V) -> (B, V)."""
    return logits.masked_fill(logits < logits.amax(dim=-1, keepdim=True) + math.log(p), -math.inf)


def drawn(logits: Tensor, uniform: Tensor) -> Tensor:
    """Return the id at which the cumulative probability passes a random number.

    Args:
        logits: (B, V), -inf where ruled out. uniform: (B, 1), float64, at least 0 and below 1.

    Returns:
        (B, 1), int64; never one that is ruled out.
    """
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)  # (B, V)
    # 1 - uniform is above 0 and at most 1: an id without probability adds no step to land on at either end.
    return torch.searchsorted(cumulative, (1 - uniform) * cumulative[:, -1:])
