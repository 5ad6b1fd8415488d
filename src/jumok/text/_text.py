"""A text made from several inputs: in memory if small, in an unnamed temporary file if large."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import unicodedata
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._columnar import Columnar
from jumok.text._columns import cells_of
from jumok.text._decoding import Encoding
from jumok.text._inputs import TABLES, Input, no_room, spool
from jumok.text._reading import Inputs, Reading
from jumok.text._source import Source, describe_sources, require_no_half_pair
from jumok.text._table import is_missing, with_copies
from jumok.text.boundaries import recut

_STRIDE = 1 << 12  # characters between two entries of a text's index


class Text:
    """A text in NFC with "\\n" for newlines: in memory if small, in an unnamed temporary file if large.

    Texts are made by `read` and `from_string`. The temporary file is removed by `close()`, with the object, and at the
    end of the process. Positions count characters and behave as in a slice of a `str`. Reading is thread-safe.
    """

    def __init__(
        self, file: IO[bytes], index: array[int], *, chars: int, sha256: str, sources: tuple[Source, ...]
    ) -> None:
        self.chars = chars
        self.utf8_bytes = index[-1]
        self.sha256 = sha256
        self.sources = sources
        self._file = file
        self._index = index  # byte offset of each _STRIDE-th character, and of the end
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, file.close)

    def chunks(self, start: int = 0, stop: int | None = None, size: int = 1 << 20) -> Iterator[str]:
        """Yield `text[start:stop]` in pieces of `size` characters (the last may be shorter)."""
        if size < 1:
            raise ValueError(f"size={size} is no number of characters; use 1 or more")
        start, stop, _ = slice(start, stop).indices(self.chars)
        for at in range(start, stop, size):
            yield self._slice(at, min(at + size, stop))

    def read(self, start: int = 0, stop: int | None = None) -> str:
        """Return `text[start:stop]` as one string."""
        start, stop, _ = slice(start, stop).indices(self.chars)
        return self._slice(start, stop) if start < stop else ""

    def _slice(self, start: int, stop: int) -> str:
        first, last = start // _STRIDE, -(-stop // _STRIDE)
        with self._lock:
            self._file.seek(self._index[first])
            data = self._file.read(self._index[last] - self._index[first])
        return data.decode()[start - first * _STRIDE : stop - first * _STRIDE]

    def describe(self) -> str:
        """Return a few lines about the sources: each source, or a summary of more than two."""
        return describe_sources(self.sources, self.chars)

    def close(self) -> None:
        """Release the memory or the temporary file; the text cannot be read afterwards."""
        self._finalizer()

    def __enter__(self) -> Text:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(
    paths: Sequence[str | Path] | str | Path,
    *,
    encoding: str | None = None,
    column: str | None = None,
) -> Text:
    """Read files, folders and standard input ("-") as one text.

    - A folder refers to all files below it with a suffix of `FORMATS`, sorted by path. Hidden, empty and blank files
      are skipped.
    - From .jsonl, .csv, .tsv and .parquet files, and from files that are JSON under another name, one column is read.
      Its rows are joined by "\\n"; empty rows are skipped.
    - Two inputs are separated by exactly one blank line: the newlines at the end of the first become two.
    - An input with the same bytes as an earlier one is skipped; its name is added to the `copies` of that source.
    - Standard input is plain text. If `column` is given, it is a table of the format that `read_table` detects.

    Nothing else is changed: of a single plain file only encoding, BOM, newlines and normal form.

    Args:
        encoding: overrides the detection for all inputs. Decoding is strict; NUL bytes are allowed.
        column: column to read from tables; None: "text".

    Raises:
        TextError: an input cannot be read; the message names the file and the byte or line.
    """
    inputs = Inputs(paths, encoding, table=column is not None)
    if not len(inputs):
        raise TextError("no text was given; name at least one file or folder, or - for standard input")
    with ExitStack() as at_error:
        writer = _TextWriter(at_error.enter_context(spool()))
        for found in inputs:
            if found.format == "text" and isinstance(found, Reading):
                writer.add(found, found.pieces())
            else:
                writer.add(found, _column(found, unicodedata.normalize("NFC", column or "text")))
        sources = with_copies(writer.sources, inputs)
        if not sources:
            raise TextError("{path} holds only empty and blank files; jumok needs text to work with", path=inputs.first)
        if column is not None and all(source.format == "text" for source in sources):
            raise TextError(
                "column {column!r} was given for plain text ({names}); only {suffixes} have columns",
                column=column,
                names=", ".join(source.name for source in sources[:3]),
                suffixes=", ".join(TABLES),
            )
        text = writer.finish(sources)
        at_error.pop_all()
    return text


def from_string(s: str, name: str = "<string>") -> Text:
    """Make a `Text` from a string, with the same newlines, NFC and checks as for a file in UTF-8.

    Raises:
        TextError: `s` is empty or white space, or contains a lone surrogate.
    """
    require_no_half_pair(name, s)
    data = s.removeprefix("\ufeff").encode()
    if not data:
        raise TextError("{name} is empty; jumok needs text to work with", name=name)
    facts = {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    found = Reading(Input(name, name, "text", named=True), io.BytesIO(data), Encoding("utf-8"), facts)
    writer = _TextWriter(io.BytesIO())
    writer.add(found, found.pieces())
    return writer.finish(writer.sources)


def _column(table: Reading | Columnar, column: str) -> Iterator[str]:
    """Yield the cells of one column that are not empty, joined by newlines."""
    parting = ""
    for where, [value] in cells_of(table, [column], every_row=True, remedy=tr("; choose one with {--column NAME}")):
        if is_missing(value) or value == "":
            continue
        if not isinstance(value, str):
            shown = json.dumps(value, default=str)[:40]
            raise TextError(
                "{where}: column {column!r} holds {value}, which is not text", where=where, column=column, value=shown
            )
        require_no_half_pair(where, value)
        yield parting + value.replace("\r\n", "\n").replace("\r", "\n")
        parting = "\n"


class _TextWriter:
    """Collects the pieces of all sources: the text, its index and its checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sources: list[Source] = []
        self._file = file
        self._index = array("Q", [0])
        self._sha256 = hashlib.sha256()
        self._rest = ""  # fewer characters than a stride
        self._newlines = 0  # at the end of the text; they become a blank line if another source follows

    def add(self, found: Reading | Columnar, pieces: Iterable[str]) -> None:
        """Add the pieces of one input, unless it is a blank file found in a folder."""
        chars, composed, blank = 0, False, ""
        for piece in recut(pieces):
            normal = unicodedata.normalize("NFC", piece)
            require_no_half_pair(found.file.name, normal)
            composed = composed or normal != piece
            if not chars and (not normal or normal.isspace()):
                blank += normal  # write nothing of a blank file
                continue
            if not chars and self.sources:
                self._newlines = 2
            self._write(blank + normal)
            chars, blank = chars + len(blank) + len(normal), ""
        if chars:
            self.sources.append(found.source(chars=chars, normalised=composed))
        elif found.file.named:
            raise TextError("{name} contains only white space; jumok needs text to work with", name=found.file.name)

    def _write(self, piece: str) -> None:
        body = piece.rstrip("\n")
        if body:
            self._append("\n" * self._newlines + body)
            self._newlines = 0
        self._newlines += len(piece) - len(body)

    def finish(self, sources: Sequence[Source]) -> Text:
        """Write the remaining characters and return the text."""
        self._append("\n" * self._newlines)
        chars = (len(self._index) - 1) * _STRIDE + len(self._rest)
        if self._rest:
            self._store([self._rest.encode()])
        return Text(self._file, self._index, chars=chars, sha256=self._sha256.hexdigest(), sources=tuple(sources))

    def _append(self, text: str) -> None:
        text = self._rest + text
        whole = len(text) - len(text) % _STRIDE
        self._rest = text[whole:]
        self._store([text[at : at + _STRIDE].encode() for at in range(0, whole, _STRIDE)])

    def _store(self, strides: list[bytes]) -> None:
        for stride in strides:
            self._index.append(self._index[-1] + len(stride))
        data = b"".join(strides)
        self._sha256.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise no_room(error) from error
