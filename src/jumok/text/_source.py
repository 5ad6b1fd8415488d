"""The record of one input: name, encoding, newlines, size; and what messages say about a place in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._inputs import Format

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
        sha256: of its bytes; of rows in memory, as compact JSON, one per line.
        copies: names of later inputs with the same bytes, which were skipped.
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


class Place(NamedTuple):
    """A line of a file, or a row of a list, for a message. It is formatted only when the message is."""

    name: str
    number: int
    row: bool = False

    def __str__(self) -> str:
        if self.row:
            return tr("{name}, row {number:,}", name=self.name, number=self.number)
        return tr("{name}, line {number:,}", name=self.name, number=self.number)


def no_rows(name: str) -> TextError:
    """Return the error for a table without rows."""
    return TextError("{name} has no rows; jumok needs rows to work with", name=name)


def require_no_half_pair(where: object, text: str) -> None:
    """Raise TextError for a lone surrogate, which is no character: JSON, UTF-7 and strings can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            "{where}: U+{code:04X} is half of a surrogate pair, not a character; remove it or restore its other half",
            where=where,
            code=ord(text[error.start]),
        ) from None


def listed(columns: Iterable[str]) -> str:
    """Return column names for a message; long names and long lists are shortened."""
    names = [repr(name if len(name) <= 30 else name[:30] + "…") for name in columns] or [tr("none")]
    shown = ", ".join(names[:12])
    return tr("{shown} and {more} more", shown=shown, more=len(names) - 12) if len(names) > 12 else shown
