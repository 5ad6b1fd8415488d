"""Rows of JSON: objects one per line (JSON Lines), in a list, or one after another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jumok.errors import TextError
from jumok.messages import shell, tr
from jumok.text._inputs import Format
from jumok.text._rows import JsonObject, json_objects, lines, listed, require_object
from jumok.text._source import Place, Reading, no_rows

_DECODER = json.JSONDecoder(object_pairs_hook=JsonObject)
_SPACE = re.compile(r"[ \t\n\r]*")


class _Broken(Exception):
    """The text is no JSON.

    Attributes:
        at: characters before the place.
        line: its line, from 1.
    """

    def __init__(self, at: int, line: int, reason: str) -> None:
        super().__init__(reason)
        self.at, self.line = at, line


def _elements(text: str) -> Iterator[Any]:
    """Yield the elements of a JSON list, or JSON values one after another. Raises `_Broken`."""
    at = _skip(text, 0)
    in_list = text[at : at + 1] == "["
    at = _skip(text, at + in_list)
    while at < len(text) and not (in_list and text[at] == "]"):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _broken(text, error.pos, error.msg) from None
        except (ValueError, RecursionError) as error:  # of numbers with thousands of digits
            raise _broken(text, at, str(error)) from None
        yield value
        at = _skip(text, at)
        if in_list:
            if text[at : at + 1] not in ("]", ","):
                raise _broken(text, at, tr("',' or ']' is missing"))
            if text[at] == ",":
                at = _skip(text, at + 1)
                if text[at : at + 1] == "]":
                    raise _broken(text, at, tr("',' or ']' is missing"))
    if in_list and at == len(text):
        raise _broken(text, at, tr("',' or ']' is missing"))
    if in_list and _skip(text, at + 1) < len(text):
        raise _broken(text, at, tr("more text after the list"))


def _skip(text: str, at: int) -> int:
    """Return the place of the next character that is not white space."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _broken(text: str, at: int, reason: str) -> _Broken:
    return _Broken(at, text.count("\n", 0, at) + 1, reason)


def json_format(reading: Reading, first: str) -> Format | None:
    """Return the format of a file that is JSON, at least for the larger part; None for a text that begins like it.

    So a text that quotes JSON is a text, and a table that was cut off is damaged JSON, not a text.

    Args:
        first: the first character of the file that is not white space.
    """
    if first == "{" and _is_mostly_lines(reading, first):
        return "jsonl"
    text = "".join(reading.pieces())
    try:
        for _ in _elements(text):
            pass
    except _Broken as broken:
        if 2 * broken.at <= len(text):
            return "jsonl" if first == "[" and _is_mostly_lines(reading, first) else None
    return "json"


def _is_mostly_lines(reading: Reading, first: str) -> bool:
    """Return whether more than half of the text is in lines that are JSON and begin with `first`."""
    good = total = 0
    for line in lines(reading.pieces()):
        total += len(line)
        if line.lstrip().startswith(first):
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                continue
            good += len(line)
    return 2 * good > total


def json_rows(reading: Reading, format: Format) -> Iterator[tuple[Place, JsonObject]]:
    """Yield place and object of each row of a file in the format "jsonl" or "json".

    Raises:
        TextError: the file is damaged, is a notebook, or has no rows; a row is not an object, or repeats a name.
    """
    name = reading.file.name
    if format == "jsonl":
        for at, row in json_objects(reading):
            _require_no_notebook(name, row)
            yield Place(name, at), row
        return
    number = 0
    try:
        for number, row in enumerate(_elements("".join(reading.pieces())), 1):
            where = Place(name, number, row=True)
            require_object(where, row)
            _require_no_notebook(name, row)
            yield where, row
    except _Broken as broken:
        raise TextError(
            "{where}: not JSON: {error}; repair the file, or copy it again",
            where=Place(name, broken.line),
            error=broken,
        ) from None
    if not number:
        raise no_rows(name)


def _require_no_notebook(name: str, row: JsonObject) -> None:
    if {"cells", "nbformat"} <= row.keys():
        raise TextError(
            "{name} is a Jupyter notebook; write its text to a file first: {command}",
            name=name,
            command=shell("jupyter", "nbconvert", "--to", "markdown", name),
        )


def inner_rows(row: JsonObject) -> str:
    """Return a hint for a message if an object holds lists of objects, which may be the rows; "" otherwise."""
    names = [name for name, value in row.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if not names:
        return ""
    return tr("; the rows may be in {names}: save that list as a .jsonl file, one object per line", names=listed(names))
