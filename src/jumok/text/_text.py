"""One text of many inputs: in memory when small, in an unnamed temporary file when large."""

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
from jumok.text._decoding import known_codec
from jumok.text._inputs import Format, Input, find, no_room, open_input, require_one_stdin, spool
from jumok.text._rows import delimited_rows, json_objects, listed, only_place, table_format
from jumok.text._source import Place, Reading, Source, Sources, blank, describe_sources, half_pair, reading
from jumok.text.boundaries import recut

_STRIDE = 1 << 12  # characters between two entries of a text's index


class Text:
    """A text in NFC with "\\n" for newlines: in memory when small, in an unnamed temporary file when large.

    Made by `read` and `from_string`. The temporary file vanishes with `close()`, with the object, or with the
    process. Positions are counted in characters and behave as in a slice of a `str`. Safe to read from threads.
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
        """Say in one or two lines what was read: each source, or a summary where there are more than two."""
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

    A folder stands for the files below it that have a suffix of `FORMATS`, sorted by path, without hidden, empty
    and blank ones. `.jsonl`, `.csv` and `.tsv` give one column (`column`, else "text"); its rows are joined by
    "\\n", and a row with no text (empty or null) is left out. Two inputs are parted by exactly one blank line: the
    newlines that end the first one become two. An input that holds the same as one before it is left out; its name is
    among the `copies` of that source. So a single plain file comes through with nothing changed but
    encoding, BOM, newlines and normal form. Standard input is plain text, unless a `column` is named; then it is a
    table, of the format that `read_table` would find.

    `encoding` overrides the detection for all inputs and is taken at its word: strict, NUL bytes welcome.
    A text of more than `in_memory` bytes of UTF-8 lives in a temporary file in `spool_dir` (default: the
    system's folder for them).

    Raises `TextError` for whatever cannot be read, naming the file and the byte or line.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    require_one_stdin(paths)
    codec = None if encoding is None else known_codec(encoding)
    inputs = [found for path in paths for found in find(str(path))]
    if not inputs:
        raise TextError("no text was given; name at least one file or folder, or - for standard input")
    if column is not None and not any(_is_table(file, column) for file in inputs):
        names = ", ".join(file.name for file in inputs[:3])
        raise TextError(
            "column {column!r} was given for plain text ({names}); only .jsonl, .csv and .tsv have columns",
            column=column,
            names=names,
        )
    with _TextWriter(spool_dir, in_memory) as writer:
        for file in inputs:
            with open_input(file, spool_dir, in_memory) as data:
                _read_source(file, data, codec, column, writer)
        if not writer.sources:
            raise TextError("{path} holds only empty and blank files; jumok needs text to work with", path=paths[0])
        return writer.finish()


def from_string(s: str, name: str = "<string>") -> Text:
    """Make a `Text` of a string: same newlines, NFC and checks as for a file in UTF-8.

    Raises `TextError` if `s` is empty or white space, or has half a surrogate pair.
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
        _read_source(Input(name, name, "text", named=True), data, "utf-8", None, writer)
        return writer.finish()


def _read_source(file: Input, data: IO[bytes], codec: str | None, column: str | None, writer: _TextWriter) -> None:
    """Send one input through all stages; an empty or blank file that nobody named leaves nothing."""
    with reading(file, data, codec) as found:
        if found is None:
            return
        format = table_format(found) if _is_table(file, column) else "text"
        pieces = found.pieces() if format == "text" else _joined(_column(found, column, format))
        begin, composed, held, digest = writer.mark(), False, "", hashlib.sha256()
        for piece in recut(pieces):
            normal = unicodedata.normalize("NFC", piece)
            composed = composed or normal != piece
            held += normal
            digest.update(normal.encode())
            if not held.isspace():  # so that nothing is written of a file that is blank throughout
                writer.write(held)
                held = ""
        if writer.chars > begin.chars:
            writer.write(held)
            chars, sha256 = writer.chars - begin.chars, digest.hexdigest()
            if writer.sources.is_copy(file.name, sha256):
                writer.take_back(begin)
            else:
                writer.end_source(found.source(format=format, chars=chars, normalised=composed, sha256=sha256))
        elif file.named:
            raise blank(file)


def _is_table(file: Input, column: str | None) -> bool:
    return file.format != "text" or (file.path == "-" and column is not None)


def _joined(rows: Iterable[str]) -> Iterator[str]:
    parting = ""
    for row in rows:
        yield parting + row.replace("\r\n", "\n").replace("\r", "\n")
        parting = "\n"


# --- One column of a table ----------------------------------------------------------------------------------------


def _column(table: Reading, column: str | None, format: Format) -> Iterator[str]:
    """Yield the text of each row that has any; the column is "text" if none was named."""
    wanted = unicodedata.normalize("NFC", column or "text")
    if format == "jsonl":
        return _json_column(table, wanted)
    return _delimited_column(table, wanted, tabs=format == "tsv", named=column is not None)


def _json_column(table: Reading, column: str) -> Iterator[str]:
    for number, row in json_objects(table):
        where = Place(table.file.name, number)
        if column not in row:
            raise TextError("{where}: no column {column!r}; {known}", where=where, column=column, known=_choice(row))
        value = row[column]
        if not isinstance(value, str | None):
            raise TextError(
                "{where}: column {column!r} holds {value}, which is no text",
                where=where,
                column=column,
                value=json.dumps(value)[:40],
            )
        if value:
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise TextError("{where}: {problem}", where=where, problem=half_pair(value[error.start])) from None
            yield value


def _delimited_column(table: Reading, column: str, *, tabs: bool, named: bool) -> Iterator[str]:
    name = table.file.name
    rows = delimited_rows(table, tabs=tabs)
    _, header = next(rows, (1, []))
    if column not in header:
        asked = tr("no column {column!r}", column=column) if named else tr("it is not said which column holds the text")
        raise TextError("{name}: {asked}; {known}", name=name, asked=asked, known=_choice(header))
    at = only_place(name, header, column)
    for _, fields in rows:
        if fields[at]:
            yield fields[at]


def _choice(columns: Iterable[str]) -> str:
    return tr("the columns are {columns}; choose one with {--column NAME}", columns=listed(columns))


# --- Writing the text down ----------------------------------------------------------------------------------------


class _Mark(NamedTuple):
    """Where a writer is, to go back to."""

    chars: int
    strides: int
    rest: str
    newlines: int
    parting: bool
    sha256: hashlib._Hash


class _TextWriter:
    """Take the pieces of all sources; keep the text, its index and its checksum."""

    def __init__(self, spool_dir: Path | None, in_memory: int) -> None:
        self.sources = Sources()
        self.chars = 0  # of the sources; what parts them is not counted before the end
        self._dir = spool_dir
        self._file = spool(spool_dir, in_memory)
        self._index = array("Q", [0])
        self._sha256 = hashlib.sha256()
        self._rest = ""  # fewer characters than a stride
        self._newlines = 0  # at the end so far: if another source follows, they give way to a blank line
        self._parting = False

    def __enter__(self) -> _TextWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.close()

    def write(self, piece: str) -> None:
        """Add a piece of the present source."""
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
        """Close the present source."""
        self.sources.append(source)
        self._parting = True

    def mark(self) -> _Mark:
        """Where the writer is."""
        return _Mark(self.chars, len(self._index), self._rest, self._newlines, self._parting, self._sha256.copy())

    def take_back(self, mark: _Mark) -> None:
        """Forget what was written since."""
        self.chars, strides, self._rest, self._newlines, self._parting, self._sha256 = mark
        del self._index[strides:]
        self._file.seek(self._index[-1])
        self._file.truncate()

    def finish(self) -> Text:
        """Write what is held back and hand the text over."""
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
