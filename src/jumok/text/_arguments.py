"""Text arguments of the Python API: a string is the text itself, a path is a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jumok.errors import ConfigError
from jumok.files import on_disk
from jumok.messages import tr
from jumok.text._inputs import FORMATS
from jumok.text._table import Table, read_table
from jumok.text._text import Text, from_string, read
from jumok.text.conversations import COLUMNS, PREFERENCE_COLUMNS, read_conversations, read_preferences

Given = str | os.PathLike[str] | Text | Table

LONGEST_NAME = 1_000  # characters; a longer string is not checked for being a file name


def require_no_file_name(text: str) -> str:
    """Return `text` unchanged.

    Raises:
        ConfigError: `text` looks like a file name: the file exists, or it is one word with a suffix of `FORMATS`.
    """
    if len(text) > LONGEST_NAME or "\n" in text or "\0" in text:
        return text
    ends_like_one = Path(text).suffix.lower() in FORMATS and not any(map(str.isspace, text))
    if ends_like_one or os.path.isfile(on_disk(text)):
        raise ConfigError(
            "{text!r} looks like the name of a file, but a string is taken as the text itself. Give Path({text!r}) "
            "for the content of the file, or jumok.text.from_string({text!r}) for these {count} characters.",
            text=text,
            count=len(text),
        )
    return text


def string_of(given: str | os.PathLike[str] | Text) -> str:
    """Return a text argument as a string: the string itself, or the content of the file or `Text`."""
    if isinstance(given, str):
        return require_no_file_name(given)
    return given.read() if isinstance(given, Text) else read([os.fspath(given)]).read()


def material_of(given: Given, columns: Sequence[str] = ()) -> Text | Table:
    """Return a text argument as a `Text` or `Table`; a string is the text itself, and a path is read.

    Args:
        columns: the columns to read if the path is a table, or those of conversations or preferences; none: the path is
            read as a text.

    Raises:
        ConfigError: a string looks like the name of a file. TextError: the file cannot be read.
    """
    if isinstance(given, str):
        return from_string(require_no_file_name(given))
    if isinstance(given, os.PathLike):
        path = os.fspath(given)
        return read_rows(path, columns) if columns else read([path])
    return given


def read_rows(
    paths: Sequence[str | Path] | str | Path, columns: Sequence[str], *, encoding: str | None = None, remedy: str = ""
) -> Table:
    """Read columns of tables; those of conversations and preferences in any of their formats.

    Args:
        remedy: as for `read_table`.

    Raises:
        TextError: an input cannot be read.
    """
    if tuple(columns) == COLUMNS:
        return read_conversations(paths, encoding=encoding)
    if tuple(columns) == PREFERENCE_COLUMNS:
        return read_preferences(paths, encoding=encoding)
    return read_table(paths, columns, encoding=encoding, remedy=remedy)


def with_columns(given: Given, columns: Sequence[str] | None, names: Sequence[str]) -> Given:
    """Read the table at a path and rename its columns; return `given` unchanged if `columns` is None.

    Args:
        columns: names of the columns in the file.
        names: names of the columns of the task, in the same order.

    Raises:
        ConfigError: `given` is not a path, or the numbers of names differ.
    """
    if columns is None:
        return given
    if not isinstance(given, os.PathLike) or len(columns) != len(names):
        raise ConfigError(
            "columns={columns!r} names the columns of a table at a Path, {count} for this task; leave it out.",
            columns=list(columns),
            count=len(names) or tr("none"),
        )
    return read_table(os.fspath(given), list(columns)).renamed(tuple(names))
