"""One input while it is read, and what is kept of it: its encoding, newlines and size."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, NamedTuple

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._decoding import Encoding, Undecodable, decode, detect, display, overridden
from jumok.text._inputs import Format, Input

MOST_COPIES = 3  # that are named


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was found in one input.

    `bytes` counts the input as it was, `chars` what it gave to the text or, cell by cell, to the table. `encoding` is a
    name that Python's codecs know too; `guessed` says that it comes from charset-normalizer, not from a strict rule.
    `newlines` is "\\n", "\\r\\n", "\\r", "mixed", or "" where there are none. `normalised` is true where NFC changed
    something. `rows` is the number of rows that it gave to a table, and None where it became part of a text. `sha256`
    is that of its characters, or of its rows as compact JSON, one a line, in UTF-8. `copies` names the inputs that were
    the same to the letter, and are not counted again.
    """

    name: str
    encoding: str
    bom: bool
    format: Format
    bytes: int
    chars: int
    newlines: str
    normalised: bool
    guessed: bool = False
    rows: int | None = None
    sha256: str = ""
    copies: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say in one line what was found: size, encoding, newlines, normal form."""
        encoding = tr("{encoding} with BOM", encoding=self.encoding) if self.bom else self.encoding
        if self.guessed:
            encoding += tr(" (a guess; name it with {--encoding NAME} if the text looks wrong)")
        found: list[str] = [] if self.format == "text" else [self.format]
        if self.rows is not None:
            found.append(tr("{rows:,} rows", rows=self.rows))
        found += [tr("{chars:,} characters", chars=self.chars), encoding]
        if self.newlines == "mixed":
            found.append(tr("mixed newlines"))
        elif self.newlines not in ("", "\n"):
            found.append(tr("{kind} newlines", kind={"\r\n": "CRLF", "\r": "CR"}[self.newlines]))
        if self.normalised:
            found.append(tr("decomposed (NFD) text composed"))
        return f"{self.name}: {', '.join(found)}"


def describe_sources(sources: Sequence[Source], chars: int) -> str:
    """Say in a few lines what was read: each source, or a summary where there are more than two; then the copies."""
    return "\n".join([_described(sources, chars), *_copies(sources)])


def _described(sources: Sequence[Source], chars: int) -> str:
    if len(sources) <= 2:
        return "\n".join(source.describe() for source in sources)
    encodings_found = Counter(source.encoding for source in sources)
    listed = ", ".join(tr("{n:,} in {name}", n=n, name=encoding) for encoding, n in encodings_found.most_common())
    composed = sum(source.normalised for source in sources)
    guessed = [source.name for source in sources if source.guessed]
    line = tr("{files:,} files: {chars:,} characters, {encodings}", files=len(sources), chars=chars, encodings=listed)
    if composed:
        line += tr(", decomposed (NFD) text composed in {files:,}", files=composed)
    if guessed:
        names = ", ".join(guessed)
        line += "\n" + tr(
            "encoding guessed (name it with {--encoding NAME} if the text looks wrong): {names}", names=names
        )
    return line


def _copies(sources: Sequence[Source]) -> list[str]:
    found = [(copy, source.name) for source in sources for copy in source.copies]
    lines = [
        tr("{name} was given more than once and is counted once.", name=name)
        if copy == name
        else tr("{copy} holds the same as {name} and is not counted again.", copy=copy, name=name)
        for copy, name in found[:MOST_COPIES]
    ]
    if len(found) > MOST_COPIES:
        lines.append(tr("Copies that are not counted again: {n:,} more.", n=len(found) - MOST_COPIES))
    return lines


class Sources(list[Source]):
    """What was read so far, each content once."""

    def is_copy(self, name: str, sha256: str) -> bool:
        """Whether an input is the same as one before, which then remembers its name."""
        for place, known in enumerate(self):
            if known.sha256 == sha256:
                self[place] = replace(known, copies=(*known.copies, name))
                return True
        return False


class Reading:
    """One input whose encoding is known, to be read from the start as often as needed."""

    def __init__(self, file: Input, data: IO[bytes], size: int, encoding: Encoding) -> None:
        self.file = file
        self._data = data
        self._size = size
        self._encoding = encoding
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)

    def pieces(self) -> Iterator[str]:
        """Yield all characters, with "\\n" for newlines."""
        self._newlines = newlines = io.IncrementalNewlineDecoder(None, translate=True)
        for piece in decode(self._data, self._encoding.codec, self._encoding.bom):
            yield newlines.decode(piece)  # holds a final "\r" back: a "\n" may follow
        yield newlines.decode("", final=True)

    def source(self, *, format: Format, chars: int, normalised: bool, sha256: str, rows: int | None = None) -> Source:
        """What was found, once `pieces` has been read to its end."""
        ends = self._newlines.newlines
        return Source(
            name=self.file.name,
            encoding=display(self._encoding.codec),
            bom=self._encoding.bom > 0,
            format=format,
            bytes=self._size,
            chars=chars,
            newlines="mixed" if isinstance(ends, tuple) else ends or "",
            normalised=normalised,
            guessed=self._encoding.guessed,
            rows=rows,
            sha256=sha256,
        )


@contextmanager
def reading(file: Input, data: IO[bytes], codec: str | None) -> Iterator[Reading | None]:
    """Find the encoding of an opened input; None for an empty file that nobody named.

    What fails while it is read in the block becomes a `TextError` that names the file.
    """
    try:
        size = data.seek(0, os.SEEK_END)
        if size == 0 and file.named:
            raise TextError("{name} is empty; jumok needs text to work with", name=file.name)
        if size == 0:
            yield None
        else:
            found = detect(data, file.name) if codec is None else overridden(data, file.name, codec)
            yield Reading(file, data, size, found)
    except Undecodable as error:
        raise TextError(
            "{name} is not {encoding}: {error}; repair the file, or name its encoding with {--encoding NAME}",
            name=file.name,
            encoding=display(error.codec),
            error=error,
        ) from None
    except OSError as error:
        raise TextError("{name} cannot be read: {reason}", name=file.name, reason=error.strerror) from error


class Place(NamedTuple):
    """A line of a file, or a row of a list, for a message; put into words only if there is one."""

    name: str
    number: int
    row: bool = False

    def __str__(self) -> str:
        if self.row:
            return tr("{name}, row {number:,}", name=self.name, number=self.number)
        return tr("{name}, line {number:,}", name=self.name, number=self.number)


def blank(file: Input) -> TextError:
    """The error to raise where an input is all white space."""
    return TextError("{name} holds nothing but white space; jumok needs text to work with", name=file.name)


def half_pair(char: str) -> str:
    """What to say about half a surrogate pair."""
    return tr(
        "U+{code:04X} is half of a surrogate pair and no character; remove it or restore its other half", code=ord(char)
    )
