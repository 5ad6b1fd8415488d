"""The fields of configurations: help, limits, types, choices, checks, and conversion from and to plain values.

The messages of checks name the value and the allowed ones, and suggest a similar name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jumok.errors import ConfigError
from jumok.messages import did_you_mean, tr

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

_hints: Callable[[Any], Mapping[str, Any]] = functools.cache(typing.get_type_hints)  # which evaluates text each time


def setting(
    default: Any,
    help: str,
    low: float | None = None,
    high: float | None = None,
    *,
    option: bool = True,
    may_change: bool = False,
) -> Any:
    """Return a dataclass field. The command line, TOML files, the limits and the docs are derived from it.

    Args:
        default: None stands for a value that follows from other fields, or for none.
        help: its text for `jumok train --help-all`.
        low, high: the limits of its value; None for high: any finite number.
        option: whether `jumok train` has an option for it; otherwise it follows from the text and the tokenizer.
        may_change: whether a run that is continued may have another value, because it changes where numbers are and
            not what they are.
    """
    metadata = {"help": help, "low": low, "high": high, "option": option, "may_change": may_change}
    return dataclasses.field(default=default, metadata=metadata)


def fields_that_may_change(config: type) -> frozenset[str]:
    """Return the names of the fields that a run which is continued may have otherwise."""
    return frozenset(field.name for field in dataclasses.fields(config) if field.metadata["may_change"])


def field_types(config: type) -> dict[str, Any]:
    """Return the plain type (int, float, bool, str, tuple) of each field, without None."""
    return {field.name: _plain_type(_hints(config)[field.name]) for field in dataclasses.fields(config)}


def _plain_type(hint: Any) -> Any:
    hint = _without_none(hint)
    outer = typing.get_origin(hint)
    return type(typing.get_args(hint)[0]) if outer is Literal else outer or hint


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(arm for arm in typing.get_args(hint) if arm is not type(None))
    return hint


def field_choices(config: type) -> dict[str, tuple[str, ...]]:
    """Return the allowed values of each field that has a fixed set of them."""
    return {name: typing.get_args(hint) for name, hint in _hints(config).items() if typing.get_origin(hint) is Literal}


def validate(config: DataclassInstance, within: str = "") -> None:
    """Check the type, the choices and the limits of each field; None is allowed where it is the default.

    Lists become tuples, and mappings the configurations that the fields have, as plain values of JSON have neither.

    Args:
        within: what stands before the names in messages.

    Raises:
        ConfigError: a value has another type, or is not allowed.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is None and field.default is None:
            continue
        checked = _checked(type(config), field, value, within + field.name)
        if checked is not value:
            object.__setattr__(config, field.name, checked)


def require_setting(config: type, name: str, value: object) -> None:
    """Raise ConfigError unless a field of a configuration could have this value."""
    field = next(field for field in dataclasses.fields(config) if field.name == name)
    _checked(config, field, value, name)


def _checked(config: type, field: dataclasses.Field[Any], value: Any, name: str) -> Any:
    hint = _hints(config)[field.name]
    kind = _plain_type(hint)
    if kind is tuple and isinstance(value, list):
        value = _as_tuple(value)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        value = from_dict(kind, value)
    _require_valid(name, value, hint, field.metadata)
    return value


def _require_valid(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> None:
    """Raise ConfigError unless a value, and each item of a tuple, is one that the field may have."""
    hint = _without_none(hint)
    kind = _plain_type(hint)
    require_type(name, value, kind)
    if typing.get_origin(hint) is Literal:
        require_choice(name, value, typing.get_args(hint))
    if kind is tuple:
        for place, item in enumerate(value):
            _require_valid(f"{name}[{place}]", item, typing.get_args(hint)[0], limits)
    elif limits.get("low") is not None:
        require_range(name, value, limits["low"], limits["high"])


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def from_dict(config: type[Config], values: Mapping[str, Any]) -> Config:
    """Make a configuration from plain values, such as those of JSON or TOML.

    Raises:
        ConfigError: a key is unknown or missing, or a value has the wrong type.
    """
    allowed = field_types(config)
    for key in values:
        if key not in allowed:
            raise unknown_setting(key, allowed)
    try:
        return config(**values)
    except TypeError as error:
        raise ConfigError("{config}: {error}", config=config.__name__, error=error) from None


def unknown_setting(key: str, known: Mapping[str, Any] | list[str]) -> ConfigError:
    """Return the error for a setting that does not exist."""
    return ConfigError(
        "unknown setting {key!r}.{hint} Known: {known}.", key=key, hint=did_you_mean(key, known), known=", ".join(known)
    )


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """Return all fields as plain values that JSON can express."""
    return dataclasses.asdict(config)


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
    """Raise ConfigError unless `value` is a number, low <= value (<= high), and it is finite."""
    _require_kind(name, value, float, numbers.Real)
    if low <= value < math.inf and (high is None or value <= high):
        return
    allowed = {"name": name, "value": _shown(value), "low": _plain(low), "high": "" if high is None else _plain(high)}
    if high is not None:
        raise ConfigError("{name}={value} is out of range: it must be between {low} and {high}.", **allowed)
    if value == math.inf:
        raise ConfigError("{name}={value} is out of range: it must be at least {low}, and finite.", **allowed)
    raise ConfigError("{name}={value} is out of range: it must be at least {low}.", **allowed)


def require_count(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise ConfigError unless `value` is a whole number, and low <= value (<= high)."""
    _require_kind(name, value, int, numbers.Integral)
    require_range(name, value, low, high)


def _require_kind(name: str, value: object, kind: type, protocol: type) -> None:
    """Raise ConfigError unless `value` is a number of this kind; those of numpy are."""
    if isinstance(value, bool) or not isinstance(value, protocol):
        require_type(name, value, kind)


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
    """Raise ConfigError unless `value` is None or an id less than `vocab_size`, if that is known."""
    if value is not None:
        require_range(name, value, 0, None if vocab_size is None else vocab_size - 1)


def nearest_multiples(value: int, of: int) -> str:
    below = value // of * of
    return f"{below + of}" if below == 0 else tr("{below} or {above}", below=below, above=below + of)
