"""The options of `jumok train` that are fields of a configuration, and the same settings in a run.toml."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import Command, option
from jumok.cli.material import COLUMNS
from jumok.config import (
    SHARED_DEFAULTS,
    TASK_CONFIGS,
    EncoderDecoderConfig,
    GPTConfig,
    TrainConfig,
    default_cases,
    field_choices,
    field_types,
    require_type,
)
from jumok.errors import ConfigError
from jumok.messages import did_you_mean

NOT_IN_TOML = {
    "texts", "out", "resume", "init", "explain", "config_file", "as_json", "quiet", "device",
}  # fmt: skip


def field_options(config: type, section: str, skip: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add an option for each field of a configuration class, with its help and its default."""

    def add(function: Command) -> Command:
        choices = field_choices(config)
        for field in reversed(dataclasses.fields(config)):
            if field.name in skip or not field.metadata["option"]:
                continue
            flag, kind = "--" + field.name.replace("_", "-"), field_types(config)[field.name]
            help_text = _help(field)
            if kind is bool:
                flag, kind = f"{flag}/--no-{flag[2:]}", None
            elif field.name == "task":
                kind = click.Choice(list(TASK_CONFIGS))
            elif field.name == "family":  # the families depend on the model
                kind = click.Choice(["modern", "classic", "original"])
            elif field.name in choices:
                kind = click.Choice(choices[field.name])
            function = option(flag, type=kind, default=None, section=section, help=help_text)(function)
        return function

    return add


def task_options(function: Command) -> Command:
    """Add an option for each column that a task reads, and for each setting that belongs to it."""
    for task in reversed(TASK_CONFIGS.values()):
        section = f"Task {task.name}"
        function = field_options(task, section)(function)
        for name in reversed(COLUMNS.get(task.name, ())):
            help_text = f"column of the {name}s ({task.name}) [{name}]"
            function = option(f"--{name}", section=section, help=help_text)(function)
    return function


def _help(field: dataclasses.Field[Any]) -> str:
    """Return the help of a field with its default and those that differ: [256; classify 128, seq2seq 64]."""
    sentence, default = str(field.metadata["help"]), SHARED_DEFAULTS.get(field.name, field.default)
    if "[" not in sentence and default is not None:
        sentence += f" [{default}]"
    others = [
        f"{case} {values[field.name]}"
        for case, values in default_cases().items()
        if values.get(field.name, default) != default
    ]
    return f"{sentence.removesuffix(']')}; {', '.join(others)}]" if others else sentence


def read_toml(path: Path, options: Collection[str]) -> dict[str, Any]:
    """Read the settings of a run.toml, which are named like the options.

    Args:
        options: the names of the parameters of `jumok train`; all but NOT_IN_TOML are settings.

    Raises:
        ConfigError: the file cannot be read, or it has an unknown setting or a value of a wrong type.
    """
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("cannot read {--config {path}}: {reason}.", path=path, reason=error) from None
    except (ValueError, RecursionError) as error:  # also for a number with thousands of digits, and deep nesting
        raise ConfigError("{--config {path}} is not TOML: {error}.", path=path, error=error) from None
    values = {key.replace("-", "_"): value for key, value in values.items()}
    known = set(options) - NOT_IN_TOML
    kinds = {
        **field_types(EncoderDecoderConfig),
        **field_types(GPTConfig),
        **field_types(TrainConfig),
        **{name: kind for task in TASK_CONFIGS.values() for name, kind in field_types(task).items()},
        "task": str,
        "min_count": int,
    }
    for key, value in values.items():
        if key not in known:
            raise ConfigError(
                "{--config {path}}: unknown setting {key!r}.{hint}", path=path, key=key, hint=did_you_mean(key, known)
            )
        if key != "val" or not isinstance(value, str):  # a share or the name of a file
            require_type(key, value, kinds.get(key, str))
    return values
