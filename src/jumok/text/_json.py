"""Rows of JSON: objects one per line (JSON Lines), in a list, or one after another."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._source import Place, listed, no_rows

_SPACE = re.compile(r"[ \t\n\r]*")
_LONGEST_TOKEN = 16  # characters: an error at least so far before the end of what was read is no missing rest


class JsonObject(dict[str, Any]):
    """A JSON object with its names in NFC. `repeated` lists the names that occur more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        names = [unicodedata.normalize("NFC", name) for name, _ in pairs]
        super().__init__(zip(names, (value for _, value in pairs), strict=True))
        self.repeated = [] if len(self) == len(pairs) else [name for name, n in Counter(names).items() if n > 1]


_DECODER = json.JSONDecoder(object_pairs_hook=JsonObject)


class _Broken(Exception):
    """The text is no JSON in this line, counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Values:
    """The elements of a JSON list, or JSON values one after another, of a text that is read while it is decoded.

    Attributes:
        in_list: whether the text is a list.
    """

    def __init__(self, pieces: Iterable[str]) -> None:
        self.in_list = False
        self._pieces = iter(pieces)
        self._text, self._at, self._line = "", 0, 1  # what is in memory, the place in it, and the line of the place

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield the line and the value of each. Raises `_Broken`."""
        char = self._next()
        self.in_list = char == "["
        if self.in_list:
            char = self._after(char)
        while char and not (self.in_list and char == "]"):
            line, value = self._line, self._value()
            char = self._next()
            if self.in_list and char not in (",", "]"):
                raise _Broken(self._line, tr("',' or ']' is missing"))
            if not self.in_list and char not in ("{", "[", ""):
                raise _Broken(self._line, tr("more text after the last value"))
            yield line, value
            if char == "," and (char := self._after(char)) == "]":
                raise _Broken(self._line, tr("',' or ']' is missing"))
        if self.in_list and not char:
            raise _Broken(self._line, tr("',' or ']' is missing"))
        if self.in_list and self._after(char):
            raise _Broken(self._line, tr("more text after the last value"))

    def _next(self) -> str:
        """Go to the next character that is not white space, and return it; "" at the end."""
        while True:
            self._move(_SPACE.match(self._text, self._at).end())  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def _after(self, char: str) -> str:
        self._move(self._at + len(char))
        return self._next()

    def _value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut_off = error.pos > len(self._text) - _LONGEST_TOKEN or error.msg.startswith("Unterminated")
                if cut_off and self._read_on():
                    continue
                self._move(self._at + len(self._text[self._at : error.pos].rstrip()))
                raise _Broken(self._line, tr(error.msg)) from None
            except (ValueError, RecursionError) as error:  # of numbers with thousands of digits
                raise _Broken(self._line, str(error)) from None
            if end < len(self._text) or not self._read_on():  # otherwise the rest of a number may follow
                self._move(end)
                return value

    def _move(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _read_on(self) -> bool:
        """Read at least as much as is left, and one piece; return False at the end of the text."""
        left = len(self._text) - self._at
        pieces, size = [self._text[self._at :]], 0
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            if size > left:
                break
        if size:
            self._text, self._at = "".join(pieces), 0
        return size > 0


def begins_like_json(pieces: Iterable[str]) -> bool:
    """Return True if a text begins with a JSON object, also in a list, that no other text follows."""
    try:
        return any(isinstance(value, JsonObject) for _, value in islice(_Values(pieces), 1))
    except _Broken:
        return False


def json_rows(name: str, pieces: Iterable[str]) -> Iterator[tuple[Place, JsonObject]]:
    """Yield place and object of each row.

    Raises:
        TextError: the text is damaged, or has no rows; a row is not an object, or repeats a name.
    """
    values, number = _Values(pieces), 0
    try:
        for number, (line, row) in enumerate(values, 1):
            where = Place(name, number, row=True) if values.in_list else Place(name, line)
            if not isinstance(row, JsonObject):
                kind = type(row).__name__
                raise TextError(
                    "{where}: a JSON {kind}; each row must be an object such as {{...}}", where=where, kind=kind
                )
            if row.repeated:
                raise TextError(
                    "{where}: the name {key!r} occurs more than once in this object; rename one",
                    where=where,
                    key=row.repeated[0],
                )
            yield where, row
    except _Broken as broken:
        raise TextError(
            "{where}: not JSON: {error}; repair the file, or copy it again",
            where=Place(name, broken.line),
            error=broken,
        ) from None
    if not number and values.in_list:
        raise no_rows(name)


def inner_rows(row: Mapping[str, Any]) -> str:
    """Return a hint for a message if an object holds lists of objects, which may be the rows; "" otherwise."""
    names = [name for name, value in row.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if not names:
        return ""
    return tr("; the rows may be in {names}: save that list as a .jsonl file, one object per line", names=listed(names))
