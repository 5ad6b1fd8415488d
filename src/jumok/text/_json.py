"""Rows of JSON: objects one per line (JSON Lines), in a list, or one after another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from jumok.errors import TextError
from jumok.messages import shell, tr
from jumok.text._inputs import Format
from jumok.text._rows import JsonObject, json_objects, lines, listed, require_object
from jumok.text._source import Place, Reading

_DECODER = json.JSONDecoder(object_pairs_hook=JsonObject)
_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_WORD = len("-Infinity")


class _Broken(Exception):
    """The text is no JSON.

    Attributes:
        at: characters before the place.
        line: its line, from 1.
    """

    def __init__(self, at: int, line: int, reason: str) -> None:
        super().__init__(reason)
        self.at, self.line = at, line


class _Document:
    """The elements of a JSON list, or JSON values one after another. A few are held in memory, not the whole text."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = iter(pieces)
        self._text, self._at = "", 0  # what is held, and the place in it
        self._chars, self._newlines = 0, 0  # before what is held

    def __iter__(self) -> Iterator[Any]:
        """Yield the values. Raises `_Broken`."""
        if self._next() != "[":
            while self._next():
                yield self._value()
            return
        self._at += 1
        mark = "," if self._next() != "]" else "]"
        while mark == ",":
            self._next()
            yield self._value()
            mark = self._next()
            if mark not in ("]", ","):
                raise self._broken(self._at, tr("',' or ']' is missing"))
            self._at += mark == ","
        self._at += 1
        if self._next():
            raise self._broken(self._at, tr("more text after the list"))

    def _next(self) -> str:
        """Go to the next character that is not white space, and return it; "" at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _LONGEST_WORD
                if cut and self._read_more():
                    continue
                raise self._broken(error.pos, error.msg) from None
            except (ValueError, RecursionError) as error:  # of numbers with thousands of digits
                raise self._broken(self._at, str(error)) from None
            if end == len(self._text) and self._read_more():  # a number may go on
                continue
            self._at = end
            return value

    def _read_more(self) -> bool:
        """Drop what is behind the place, and read as much again as is left, so that a long value costs little."""
        self._chars += self._at
        self._newlines += self._text.count("\n", 0, self._at)
        rest = [self._text[self._at :]]
        wanted, got = len(rest[0]), 0
        for piece in self._pieces:
            rest.append(piece)
            got += len(piece)
            if got and got >= wanted:
                break
        self._text, self._at = "".join(rest), 0
        return got > 0

    def _broken(self, at: int, reason: str) -> _Broken:
        return _Broken(self._chars + at, self._newlines + self._text.count("\n", 0, at) + 1, reason)


def json_format(reading: Reading, first: str) -> Format | None:
    """Return the format of a file that is JSON, at least for the larger part; None for a text that begins like it.

    So a text that quotes JSON is a text, and a table that was cut off is damaged JSON, not a text.

    Args:
        first: the first character of the file that is not white space.
    """
    if first == "{" and _is_mostly_lines(reading, first):
        return "jsonl"
    try:
        for _ in _Document(reading.pieces()):
            pass
    except _Broken as broken:
        if 2 * broken.at <= sum(map(len, reading.pieces())):
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
        for number, row in enumerate(_Document(reading.pieces()), 1):
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
        raise TextError("{name} has no rows; jumok needs rows to work with", name=name)


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
