"""Reading one input, and the record of it: name, encoding, newlines, size."""

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
from jumok.text._decoding import Encoding, Undecodable, decode, detect, display, overridden, require_no_magic
from jumok.text._inputs import Format, Input

MOST_COPIES = 3  # named in a message


@dataclass(frozen=True, kw_only=True)
class Source:
    """The record of one input.

    Attributes:
        encoding: a name that `codecs.lookup` accepts.
        bytes: size of the input.
        chars: characters that it added to the text, or to the cells of the table.
        newlines: "\\n", "\\r\\n", "\\r", "mixed", or "" if there are none.
        normalised: whether NFC changed a character.
        guessed: whether charset-normalizer detected the encoding, rather than strict decoding.
        rows: rows that it added to a table; None for a text.
        sha256: of its characters, or of its rows as compact JSON, one per line; in UTF-8.
        copies: names of later inputs with the same content, which were skipped.
    """

    name: str
    encoding: str = "UTF-8"
    bom: bool = False
    format: Format = "text"
    bytes: int
    chars: int
    newlines: str = ""
    normalised: bool
    guessed: bool = False
    rows: int | None = None
    sha256: str = ""
    copies: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return one line with size, encoding, newlines and normal form."""
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
            found.append(tr("normalized to NFC"))
        return f"{self.name}: {', '.join(found)}"


def describe_sources(sources: Sequence[Source], chars: int) -> str:
    """Return a few lines: each source, or a summary of more than two; then the copies."""
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
        line += tr(", normalized to NFC in {files:,}", files=composed)
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
        else tr("{copy} has the same content as {name} and is not counted again.", copy=copy, name=name)
        for copy, name in found[:MOST_COPIES]
    ]
    if len(found) > MOST_COPIES:
        lines.append(tr("Copies that are not counted again: {n:,} more.", n=len(found) - MOST_COPIES))
    return lines


class Sources(list[Source]):
    """The sources that have been read, without copies."""

    def is_copy(self, name: str, sha256: str) -> bool:
        """Return whether an earlier source has the same content; the name is then added to its `copies`."""
        for place, known in enumerate(self):
            if known.sha256 == sha256:
                self[place] = replace(known, copies=(*known.copies, name))
                return True
        return False


class Reading:
    """An input with a known encoding, which can be read from its start several times."""

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
            yield newlines.decode(piece)  # holds back a final "\r", because "\n" may follow
        yield newlines.decode("", final=True)

    def source(self, *, format: Format, chars: int, normalised: bool, sha256: str, rows: int | None = None) -> Source:
        """Return the record of the input; call this after `pieces` is exhausted."""
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
    """Detect the encoding of an open input; yield None for an empty file found in a folder.

    Raises:
        TextError: the input cannot be read or decoded, also inside the block; the message names the file.
    """
    try:
        size = data.seek(0, os.SEEK_END)
        if size == 0 and file.named:
            raise empty(file)
        if size == 0:
            yield None
        else:
            require_no_magic(data, file.name)
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
    """A line of a file, or a row of a list, for a message. It is formatted only when the message is."""

    name: str
    number: int
    row: bool = False

    def __str__(self) -> str:
        if self.row:
            return tr("{name}, row {number:,}", name=self.name, number=self.number)
        return tr("{name}, line {number:,}", name=self.name, number=self.number)


def empty(file: Input) -> TextError:
    """Return the error for an input without a byte."""
    return TextError("{name} is empty; jumok needs text to work with", name=file.name)


def blank(file: Input) -> TextError:
    """Return the error for an input that contains only white space."""
    return TextError("{name} contains only white space; jumok needs text to work with", name=file.name)


def no_rows(name: str) -> TextError:
    """Return the error for a table without rows."""
    return TextError("{name} has no rows; jumok needs rows to work with", name=name)


def half_pair(char: str) -> str:
    """Return the part of a message about a lone surrogate."""
    return tr(
        "U+{code:04X} is half of a surrogate pair, not a character; remove it or restore its other half", code=ord(char)
    )
