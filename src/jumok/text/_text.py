"""A text made from several inputs: in memory if small, in an unnamed temporary file if large."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
import unicodedata
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from jumok.errors import TextError
from jumok.messages import tr
from jumok.text._columnar import Columnar
from jumok.text._columns import cells_of, opened
from jumok.text._decoding import known_codec, overridden
from jumok.text._inputs import TABLES, Format, Input, find, no_room, open_input, require_one_stdin, spool
from jumok.text._rows import is_missing
from jumok.text._source import Reading, Source, Sources, blank, describe_sources, empty, half_pair
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
    spool_dir: Path | None = None,
    in_memory: int = 64 << 20,
) -> Text:
    """Read files, folders and standard input ("-") as one text.

    - A folder refers to all files below it with a suffix of `FORMATS`, sorted by path. Hidden, empty and blank files
      are skipped.
    - From .jsonl, .csv, .tsv, .parquet and .arrow files, and from files that are JSON under another name, one column is
      read. Its rows are joined by "\\n"; empty rows are skipped. A folder that `datasets` saved is read like any folder
      of .arrow files.
    - Two inputs are separated by exactly one blank line: the newlines at the end of the first become two.
    - An input with the same content as an earlier one is skipped; its name is added to the `copies` of that source.
    - Standard input is plain text. If `column` is given, it is a table of the format that `read_table` detects.

    Nothing else is changed: of a single plain file only encoding, BOM, newlines and normal form.

    Args:
        encoding: overrides the detection for all inputs. Decoding is strict; NUL bytes are allowed.
        column: column to read from tables; None: "text".
        spool_dir: folder of the temporary file; None: that of the system.
        in_memory: most bytes of UTF-8 to hold in memory; a longer text is written to the temporary file.

    Raises:
        TextError: an input cannot be read; the message names the file and the byte or line.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    require_one_stdin(paths)
    codec = None if encoding is None else known_codec(encoding)
    inputs = [found for path in paths for found in find(str(path))]
    if not inputs:
        raise TextError("no text was given; name at least one file or folder, or - for standard input")
    with _TextWriter(spool_dir, in_memory) as writer:
        for file in inputs:
            with open_input(file, spool_dir, in_memory) as data:
                _read_source(file, data, codec, column, writer)
        if not writer.sources:
            raise TextError("{path} holds only empty and blank files; jumok needs text to work with", path=paths[0])
        if column is not None and all(source.format == "text" for source in writer.sources):
            raise TextError(
                "column {column!r} was given for plain text ({names}); only {suffixes} have columns",
                column=column,
                names=", ".join(source.name for source in writer.sources[:3]),
                suffixes=", ".join(TABLES),
            )
        return writer.finish()


def from_string(s: str, name: str = "<string>") -> Text:
    """Make a `Text` from a string, with the same newlines, NFC and checks as for a file in UTF-8.

    Raises:
        TextError: `s` is empty or white space, or contains a lone surrogate.
    """
    with _TextWriter(None, sys.maxsize) as writer:
        try:
            data = io.BytesIO(s.encode())
        except UnicodeEncodeError as error:
            raise TextError(
                "{name}: {problem} at character {start}",
                name=name,
                problem=half_pair(s[error.start]),
                start=error.start,
            ) from None
        file = Input(name, name, "text", named=True)
        if not s:
            raise empty(file)
        found = Reading(file, data, len(data.getbuffer()), overridden(data, name, "utf-8"))
        _add(found, "text", found.pieces(), writer)
        return writer.finish()


def _read_source(file: Input, data: IO[bytes], codec: str | None, column: str | None, writer: _TextWriter) -> None:
    """Add one input to the text; empty and blank files found in a folder are skipped."""
    with opened(file, data, codec, table=column is not None) as found:
        if found is not None:
            source, format = found
            if format == "text" and isinstance(source, Reading):
                _add(source, format, source.pieces(), writer)
            else:
                wanted = unicodedata.normalize("NFC", column or "text")
                _add(source, format, _column(source, format, wanted), writer)


def _column(table: Reading | Columnar, format: Format, column: str) -> Iterator[str]:
    """Yield the cells of one column that are not empty, joined by newlines."""
    remedy = tr("; choose one with {--column NAME}")
    parting = ""
    for where, [value] in cells_of(table, format, [column], every_row=True, remedy=remedy):
        if is_missing(value) or value == "":
            continue
        if not isinstance(value, str):
            shown = json.dumps(value, default=str)[:40]
            raise TextError(
                "{where}: column {column!r} holds {value}, which is not text", where=where, column=column, value=shown
            )
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise TextError("{where}: {problem}", where=where, problem=half_pair(value[error.start])) from None
        yield parting + value.replace("\r\n", "\n").replace("\r", "\n")
        parting = "\n"


def _add(found: Reading | Columnar, format: Format, pieces: Iterable[str], writer: _TextWriter) -> None:
    """Add the pieces of one input to the text, unless it is blank or a copy."""
    begin, composed, held, digest = writer.mark(), False, "", hashlib.sha256()
    for piece in recut(pieces):
        normal = unicodedata.normalize("NFC", piece)
        composed = composed or normal != piece
        held += normal
        try:
            digest.update(normal.encode())
        except UnicodeEncodeError as error:  # UTF-7 and escapes can spell halves
            problem = half_pair(normal[error.start])
            raise TextError("{where}: {problem}", where=found.file.name, problem=problem) from None
        if not held.isspace():  # write nothing of a blank file
            writer.write(held)
            held = ""
    if writer.chars > begin.chars:
        writer.write(held)
        chars, sha256 = writer.chars - begin.chars, digest.hexdigest()
        if writer.sources.is_copy(found.file.name, sha256):
            writer.take_back(begin)
        else:
            writer.end_source(found.source(format=format, chars=chars, normalised=composed, sha256=sha256))
    elif found.file.named:
        raise blank(found.file)


# --- Collecting the text ------------------------------------------------------------------------------------------


class _Mark(NamedTuple):
    """The state of a writer, to which it can return."""

    chars: int
    strides: int
    rest: str
    newlines: int
    parting: bool
    sha256: hashlib._Hash


class _TextWriter:
    """Collects the pieces of all sources: the text, its index and its checksum."""

    def __init__(self, spool_dir: Path | None, in_memory: int) -> None:
        self.sources = Sources()
        self.chars = 0  # of the sources, without the blank lines between them
        self._dir = spool_dir
        self._file = spool(spool_dir, in_memory)
        self._index = array("Q", [0])
        self._sha256 = hashlib.sha256()
        self._rest = ""  # fewer characters than a stride
        self._newlines = 0  # at the end of the text; they become a blank line if another source follows
        self._parting = False

    def __enter__(self) -> _TextWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.close()

    def write(self, piece: str) -> None:
        """Add a piece of the current source."""
        if not piece:
            return
        self.chars += len(piece)
        if self._parting:
            self._newlines, self._parting = 2, False
        body = piece.rstrip("\n")
        if body:
            self._append("\n" * self._newlines + body)
            self._newlines = 0
        self._newlines += len(piece) - len(body)

    def end_source(self, source: Source) -> None:
        """Finish the current source."""
        self.sources.append(source)
        self._parting = True

    def mark(self) -> _Mark:
        """Return the current state."""
        return _Mark(self.chars, len(self._index), self._rest, self._newlines, self._parting, self._sha256.copy())

    def take_back(self, mark: _Mark) -> None:
        """Remove what was written after `mark`."""
        self.chars, strides, self._rest, self._newlines, self._parting, self._sha256 = mark
        del self._index[strides:]
        self._file.seek(self._index[-1])
        self._file.truncate()

    def finish(self) -> Text:
        """Write the remaining characters and return the text."""
        self._append("\n" * self._newlines)
        chars = (len(self._index) - 1) * _STRIDE + len(self._rest)
        if self._rest:
            self._store([self._rest.encode()])
        return Text(self._file, self._index, chars=chars, sha256=self._sha256.hexdigest(), sources=tuple(self.sources))

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
            raise no_room(self._dir, error) from error
