"""Messages on stderr; results and the JSON object of --json on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from jumok.messages import tr


def say(text: str, *, quiet: bool = False) -> None:
    """Print a line on stderr, with signs for control characters: file names and labels may contain any."""
    if not quiet:
        from jumok.text import with_signs

        click.echo(with_signs(text), err=True)


def write(text: str, *, end: str = "\n") -> None:
    """Print the text of a model or a person on stdout, unbuffered and unchanged.

    A terminal gets signs for control characters, because it would obey them, and a model can generate any.
    """
    if sys.stdout.isatty():
        from jumok.text import with_signs

        text = with_signs(text)
    click.echo(text + end, nl=False, color=True)  # color: click would strip escapes from a file


def named(characters: Sequence[str], most: int = 10) -> str:
    """Write characters for a message, invisible ones as code points: ₩, :, U+00A0 and 3 more."""
    shown = [char if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}" for char in characters]
    if len(shown) <= most:
        return ", ".join(shown)
    return tr("{list} and {n:,} more", list=", ".join(shown[:most]), n=len(shown) - most)


def print_json(values: Mapping[str, Any]) -> None:
    """Print the JSON object of --json in one write.

    Numbers have six decimals. JSON has only finite ones, so others become null. Characters that stdout cannot encode
    are escaped.
    """
    values = _plain(values)
    line = json.dumps(values, ensure_ascii=False, allow_nan=False)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(values, allow_nan=False)
    click.echo(line)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
