"""The fields of configurations: help, types, choices, and conversion from and to plain values."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from jumok.config._checks import require_type
from jumok.errors import ConfigError
from jumok.messages import did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

_hints: Callable[[Any], Mapping[str, Any]] = functools.cache(typing.get_type_hints)  # which evaluates text each time


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Base class of configurations. It records which fields were given (not None) on creation; see `given_fields`.

    Equality ignores which fields were given. `dataclasses.replace` passes on the value of each `InitVar`, which is here
    the configuration that is replaced: what was given stays given, a changed field is given as well, and a value that
    followed from other fields, such as head_dim, follows from them again. A call that names every field, such as one
    with the content of `to_dict`, gives those that differ from their defaults.
    """

    replaced: InitVar[Any] = None

    def __new__(cls, *, replaced: Configuration | None = None, **values: Any) -> Self:
        config = super().__new__(cls)
        given = {name for name, value in values.items() if value is not None}
        if replaced is not None:
            before = given_fields(replaced)
            given = {name for name in given if name in before or values[name] != getattr(replaced, name)}
        every = replaced is None and values.keys() >= {field.name for field in dataclasses.fields(cls)}
        object.__setattr__(config, "_given", None if every else frozenset(given))
        return config

    def __post_init__(self, replaced: Configuration | None) -> None:
        if replaced is None:
            return
        for name in _following_fields(replaced) - given_fields(self).keys():
            object.__setattr__(self, name, None)


# `dataclasses.replace` reads this attribute of the configuration that it replaces.
Configuration.replaced = property(lambda config: config)  # type: ignore[attr-defined]


def remember_given(config: Configuration, names: Iterable[str]) -> None:
    """Set the names of the fields that count as given."""
    object.__setattr__(config, "_given", frozenset(names))


def given_fields(config: Configuration | None) -> dict[str, Any]:
    """Return the fields that were given on creation, by name; {} for None."""
    if config is None:
        return {}
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    names = vars(config)["_given"]
    if names is None:
        following, usual = (
            _following_fields(config),
            {field.name: field.default for field in dataclasses.fields(config)},
        )
        names = {name for name, value in values.items() if value != usual[name] and name not in following}
    return {name: value for name, value in values.items() if name in names}


def _following_fields(config: Configuration) -> set[str]:
    """Return the fields with a derived default whose values are those that follow from the other fields."""
    fields = sorted(dataclasses.fields(config), key=lambda field: field.default is None)
    chosen, following = dict[str, Any](), set[str]()
    for field in fields:
        value = getattr(config, field.name)
        with suppress(ConfigError):  # the fields so far do not fit together without this one
            if field.default is None and value == getattr(type(config)(**chosen), field.name):
                following.add(field.name)
                continue
        chosen[field.name] = value
    return following


def setting(default: Any, help: str) -> Any:
    """Return a dataclass field with its text for `jumok train --help`."""
    return dataclasses.field(default=default, metadata={"help": help})


def field_types(config: type) -> dict[str, Any]:
    """Return the plain type (int, float, bool, str, tuple) of each field, without None."""
    plain = {}
    for name, hint in _hints(config).items():
        if isinstance(hint, InitVar):
            continue
        if isinstance(hint, types.UnionType):
            hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
        outer = typing.get_origin(hint)
        plain[name] = type(typing.get_args(hint)[0]) if outer is Literal else outer or hint
    return plain


def field_choices(config: type) -> dict[str, tuple[str, ...]]:
    """Return the allowed values of each field that has a fixed set of them."""
    return {name: typing.get_args(hint) for name, hint in _hints(config).items() if typing.get_origin(hint) is Literal}


def require_types(config: DataclassInstance, within: str = "") -> None:
    """Raise ConfigError unless each field has a value of its type, or None where that is the default.

    Messages name the fields with `within` before them.
    """
    kinds = field_types(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None or field.default is not None:
            require_type(within + field.name, value, kinds[field.name])


def from_dict(config: type[Config], values: Mapping[str, Any]) -> Config:
    """Make a configuration from plain values, such as those of JSON or TOML.

    Raises:
        ConfigError: a key is unknown or missing, or a value has the wrong type.
    """
    allowed = field_types(config)
    for key in values:
        if key not in allowed:
            raise ConfigError(
                "unknown setting {key!r}.{hint} Known: {known}.",
                key=key,
                hint=did_you_mean(key, allowed),
                known=", ".join(allowed),
            )
    try:
        return config(**values)
    except TypeError as error:
        raise ConfigError("{config}: {error}", config=config.__name__, error=error) from None


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """Return all fields as plain values that JSON can express."""
    return dataclasses.asdict(config)
