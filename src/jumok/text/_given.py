"""What a person gave as a text: a string is the text itself, a path is a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.text._inputs import FORMATS
from jumok.text._table import Table, read_table
from jumok.text._text import Text, from_string, read

Given = str | os.PathLike[str] | Text | Table

LONGEST_NAME = 1_000  # characters; a longer string is not looked for among the files


def require_no_file_name(text: str) -> str:
    """The text, which is to be taken as it stands.

    Raises:
        ConfigError: it looks like the name of a file: it is that of one, or a single word that ends like one.
    """
    if len(text) > LONGEST_NAME or "\n" in text or "\0" in text:
        return text
    ends_like_one = Path(text).suffix.lower() in FORMATS and not any(map(str.isspace, text))
    if ends_like_one or os.path.isfile(text):
        raise ConfigError(
            "{text!r} looks like the name of a file, but a string is taken as the text itself. Give Path({text!r}) "
            "for the content of the file, or jumok.text.from_string({text!r}) for these {count} characters.",
            text=text,
            count=len(text),
        )
    return text


def string_of(given: str | os.PathLike[str] | Text) -> str:
    """One text as a string: a string that does not look like the name of a file, or the content of what is given."""
    return require_no_file_name(given) if isinstance(given, str) else "".join(material_of(given).chunks())


@overload
def material_of(given: str | os.PathLike[str] | Text) -> Text: ...
@overload
def material_of(given: str | os.PathLike[str] | Text | Table, columns: Sequence[str]) -> Text | Table: ...
def material_of(given: str | os.PathLike[str] | Text | Table, columns: Sequence[str] = ()) -> Text | Table:
    """What to learn from, or to be held against: read already, a path to read, or a string, which is the text itself.

    Args:
        columns: those to read of a table at a path; none: a path is read as a text.

    Raises:
        ConfigError: a string looks like the name of a file. TextError: the file cannot be read.
    """
    if isinstance(given, str):
        return from_string(require_no_file_name(given))
    if isinstance(given, os.PathLike):
        path = os.fspath(given)
        return read_table(path, columns) if columns else read([path])
    return given


def with_columns(given: Given, columns: Sequence[str] | None, names: Sequence[str]) -> Given:
    """A table at a path with the columns that were asked for, under the names of its task; else what was given."""
    if columns is None:
        return given
    if not isinstance(given, os.PathLike) or len(columns) != len(names):
        raise ConfigError(
            "columns={columns!r} names the columns of a table at a Path, {count} for this task; leave it out.",
            columns=list(columns),
            count=len(names) or tr("none"),
        )
    return read_table(os.fspath(given), list(columns)).renamed(tuple(names))
