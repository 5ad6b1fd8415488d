"""Checks of single values. The messages name the value and the allowed ones, and suggest a similar name."""

from __future__ import annotations

import math
from collections.abc import Iterable

from jumok.errors import ConfigError
from jumok.messages import did_you_mean, tr


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `allowed`."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(
            "{name}={value!r} is not known; choose from {allowed}.{hint}",
            name=name,
            value=value,
            allowed=", ".join(allowed),
            hint=did_you_mean(str(value), allowed),
        )


def require_range(name: str, value: float, low: float, high: float | None = None) -> None:
    """Raise ConfigError unless low <= value (<= high) and value is finite."""
    if low <= value < math.inf and (high is None or value <= high):
        return
    allowed = {"name": name, "value": _shown(value), "low": _plain(low), "high": "" if high is None else _plain(high)}
    if high is not None:
        raise ConfigError("{name}={value} is out of range: it must be between {low} and {high}.", **allowed)
    if value == math.inf:
        raise ConfigError("{name}={value} is out of range: it must be at least {low}, and finite.", **allowed)
    raise ConfigError("{name}={value} is out of range: it must be at least {low}.", **allowed)


def _plain(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _shown(value: float) -> str:
    """Return a number as given; one with more than 30 digits is shortened."""
    digits = repr(value)
    return digits if len(digits) <= 30 else f"{digits[:8]}... ({len(digits)} digits)"


def require_type(name: str, value: object, kind: type) -> None:
    """Raise ConfigError unless `value` is a `kind`. An int is accepted as a float, but a bool is not a number."""
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(
            "{name}={value!r} is of type {found}; it must be of type {expected}.",
            name=name,
            value=value,
            found=type(value).__name__,
            expected=kind.__name__,
        )


def require_id(name: str, value: int | None, vocab_size: int | None) -> None:
    """Raise ConfigError unless `value` is None or one of the ids 0 to vocab_size - 1 (None: not known yet)."""
    if value is not None:
        require_range(name, value, 0, None if vocab_size is None else vocab_size - 1)


def nearest_multiples(value: int, of: int) -> str:
    below = value // of * of
    return f"{below + of}" if below == 0 else tr("{below} or {above}", below=below, above=below + of)
