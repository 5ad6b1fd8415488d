"""Read any text: whatever its encoding, newlines and normal form, out comes one clean stream of characters.

A file passes four stages, block by block, so that it may be larger than memory:

    bytes ──decode──▶ characters ──newlines──▶ lines end in "\\n" ──rows──▶ the text column ──compose──▶ NFC

Encodings are found by *strict* decoding of the whole file: a byte-order mark decides; then UTF-16 and UTF-32
without a mark where the bytes are clearly so, UTF-8, and CP949 (the superset of EUC-KR that Korean Windows
writes). Only what fits none of them, or reads as anything but Korean in CP949, is handed to charset-normalizer.
Nothing is ever replaced or dropped in silence: what cannot be read is a `TextError` that names the byte.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import encodings.aliases
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import unicodedata
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, NamedTuple

from jumok.errors import TextError

Format = Literal["text", "jsonl", "csv", "tsv"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}
"""What a suffix means; a folder is searched for these, and a named file with any other suffix is plain text."""

_BLOCK = 1 << 20  # bytes read at a time
_SAMPLE = 1 << 16  # bytes looked at where a judgement is needed, not a proof
_STRIDE = 1 << 12  # characters between two entries of a text's index
_MAX_FIELD = 1 << 26  # characters in one csv field; more means that a quote was never closed


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was found in one input.

    `bytes` counts the input as it was, `chars` what it gave to the text. `encoding` is a name that Python's codecs
    know too; `guessed` says that it comes from charset-normalizer, not from a strict rule. `newlines` is "\\n",
    "\\r\\n", "\\r", "mixed", or "" where there are none. `normalised` is true where NFC changed something.
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

    def describe(self) -> str:
        """Say in one line what was found: size, encoding, newlines, normal form."""
        encoding = self.encoding + (" with BOM" if self.bom else "")
        if self.guessed:
            encoding += " (a guess; name it with --encoding if the text looks wrong)"
        found = [f"{self.chars:,} characters", encoding]
        if self.format != "text":
            found.insert(0, self.format)
        if self.newlines not in ("", "\n"):
            found.append({"\r\n": "CRLF", "\r": "CR"}.get(self.newlines, self.newlines) + " newlines")
        if self.normalised:
            found.append("decomposed (NFD) text composed")
        return f"{self.name}: {', '.join(found)}"


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
        if len(self.sources) <= 2:
            return "\n".join(source.describe() for source in self.sources)
        encodings_found = Counter(source.encoding for source in self.sources)
        listed = ", ".join(f"{n} in {encoding}" for encoding, n in encodings_found.most_common())
        composed = sum(source.normalised for source in self.sources)
        guessed = [source.name for source in self.sources if source.guessed]
        line = f"{len(self.sources)} files: {self.chars:,} characters, {listed}"
        if composed:
            line += f", decomposed (NFD) text composed in {composed}"
        if guessed:
            line += f"\nencoding guessed (name it with --encoding if the text looks wrong): {', '.join(guessed)}"
        return line

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
    newlines that end the first one become two. So a single plain file comes through with nothing changed but
    encoding, BOM, newlines and normal form.

    `encoding` overrides the detection for all inputs and is taken at its word: strict, NUL bytes welcome.
    A text of more than `in_memory` bytes of UTF-8 lives in a temporary file in `spool_dir` (default: the
    system's folder for them).

    Raises `TextError` for whatever cannot be read, naming the file and the byte or line.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    codec = None if encoding is None else _known_codec(encoding)
    inputs = [found for path in paths for found in _find(str(path))]
    if not inputs:
        raise TextError("no text was given; name at least one file or folder, or - for standard input")
    if column is not None and not any(file.format != "text" for file in inputs):
        names = ", ".join(file.name for file in inputs[:3])
        raise TextError(f"column {column!r} was asked of plain text ({names}); only .jsonl, .csv and .tsv have columns")
    with _TextWriter(spool_dir, in_memory) as writer:
        for file in inputs:
            with _open(file, spool_dir, in_memory) as data:
                source = _read_source(file, data, codec, column, writer)
            if source is not None:
                writer.end_source(source)
        if not writer.sources:
            raise TextError(f"{paths[0]} holds only empty and blank files; jumok needs text to work with")
        return writer.finish()


def from_string(s: str, name: str = "<string>") -> Text:
    """Make a `Text` of a string: same newlines, NFC and checks as for a file in UTF-8.

    Raises `TextError` if `s` is empty or white space, or has half a surrogate pair.
    """
    with _TextWriter(None, sys.maxsize) as writer:
        try:
            data = io.BytesIO(s.encode())
        except UnicodeEncodeError as error:
            raise TextError(f"{name}: {_half_pair(s[error.start])} at character {error.start}") from None
        source = _read_source(_Input(name, name, "text", named=True), data, "utf-8", None, writer)
        assert source is not None
        writer.end_source(source)
        return writer.finish()


def compose(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the chunks in NFC, exactly as if they were normalised in one piece.

    The end of a chunk is held back from its last safe start on: a character that composes with nothing before it.
    Reference: Unicode Standard Annex 15, "Concatenation of normalized strings" and "Stream-safe text format".
    """
    for piece in _recut(chunks):
        yield unicodedata.normalize("NFC", piece)


def _recut(chunks: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    for chunk in chunks:
        cut = next((at for at in range(len(chunk) - 1, -1, -1) if _starts_safely(chunk[at])), None)
        if cut is None:
            held.append(chunk)
        else:
            yield "".join(held) + chunk[:cut]
            held = [chunk[cut:]]
    yield "".join(held)


def _starts_safely(char: str) -> bool:
    """Whether normalisation may be cut before `char`: no mark, no vowel or final jamo, no Kirat Rai vowel sign."""
    if char < "\u0300" or "\uac00" <= char <= "\ud7a3":
        return True
    return not (
        "\u1160" <= char <= "\u11ff"
        or "\U00016d40" <= char <= "\U00016d7f"
        or unicodedata.combining(char)
        or unicodedata.category(char).startswith("M")
    )


# --- Inputs -----------------------------------------------------------------------------------------------------


class _Input(NamedTuple):
    name: str  # as the person gave it
    path: str  # as the system knows it
    format: Format
    named: bool  # given by name, so that it must hold text; a file found in a folder may be empty


def _find(name: str) -> list[_Input]:
    """Turn one argument into the files it stands for."""
    if name == "-":
        return [_Input("<stdin>", "-", "text", named=True)]
    path = Path(name)
    if not os.path.exists(name):  # unlike Path.exists, it never raises
        path = _same_name_in_another_form(path)
    if not path.is_dir():
        return [_Input(name, str(path), FORMATS.get(path.suffix.lower(), "text"), named=True)]

    def refuse(error: OSError) -> None:
        raise TextError(f"{error.filename} cannot be read: {error.strerror}") from error

    found = []
    for folder, subfolders, files in os.walk(path, onerror=refuse):
        subfolders[:] = [sub for sub in subfolders if not sub.startswith(".")]
        for file in (Path(folder, file) for file in files if not file.startswith(".")):
            if file.suffix.lower() in FORMATS and file.is_file():
                found.append(file)
    if not found:
        raise TextError(f"{name} is a folder with no text in it; jumok looks for {', '.join(FORMATS)}")
    return [
        _Input(str(file), str(file), FORMATS[file.suffix.lower()], named=False)
        for file in sorted(found, key=lambda file: file.parts)
    ]


def _same_name_in_another_form(path: Path) -> Path:
    """Find the sibling whose name differs in normal form only (macOS writes NFD), or say what is near."""
    try:
        siblings = {unicodedata.normalize("NFC", sibling.name): sibling for sibling in path.parent.iterdir()}
    except OSError as error:
        raise TextError(f"{path} does not exist: its folder {path.parent}: {error.strerror}") from error
    wanted = unicodedata.normalize("NFC", path.name)
    if wanted in siblings and siblings[wanted].exists():
        return siblings[wanted]
    near = difflib.get_close_matches(wanted, siblings, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TextError(f"{path} does not exist{hint}")


def _open(file: _Input, spool_dir: Path | None, in_memory: int) -> IO[bytes]:
    """Open for reading with seeks; what cannot seek (standard input, a pipe) is copied first."""
    try:
        if file.path == "-":
            return _copy(sys.stdin.buffer, spool_dir, in_memory)
        stream = open(file.path, "rb")  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        raise TextError(f"{file.name} cannot be read: {error.strerror}") from error
    if stream.seekable():
        return stream
    with stream:
        return _copy(stream, spool_dir, in_memory)


def _copy(stream: IO[bytes], spool_dir: Path | None, in_memory: int) -> IO[bytes]:
    copy = _spool(spool_dir, in_memory)
    try:
        shutil.copyfileobj(stream, copy, _BLOCK)
    except OSError as error:
        copy.close()
        raise _no_room(spool_dir, error) from error
    return copy


def _spool(spool_dir: Path | None, in_memory: int) -> IO[bytes]:
    # Unnamed as soon as it is on disk, so that even a killed process leaves nothing behind.
    return tempfile.SpooledTemporaryFile(max_size=max(in_memory, 1), dir=None if spool_dir is None else str(spool_dir))


def _no_room(spool_dir: Path | None, error: OSError) -> TextError:
    return TextError(
        f"the temporary copy of the text cannot be written to {spool_dir or tempfile.gettempdir()}: {error.strerror}; "
        "free some space there, or point TMPDIR to a folder with room"
    )


# --- One source, stage by stage ---------------------------------------------------------------------------------


class _Encoding(NamedTuple):
    codec: str
    bom: int = 0  # bytes to skip
    guessed: bool = False


def _read_source(
    file: _Input, data: IO[bytes], codec: str | None, column: str | None, writer: _TextWriter
) -> Source | None:
    """Send one input through all stages; None for an empty or blank file that nobody named."""
    try:
        size = data.seek(0, os.SEEK_END)
        if size == 0 and not file.named:
            return None
        if size == 0:
            raise TextError(f"{file.name} is empty; jumok needs text to work with")
        found = _detect(data, file.name) if codec is None else _overridden(data, file.name, codec)
        newlines = io.IncrementalNewlineDecoder(None, translate=True)
        pieces: Iterable[str] = _unify(_decode(data, found.codec, found.bom), newlines)
        if file.format != "text":
            pieces = _joined(_rows(file, pieces, data, found, column))
        before, composed, held = writer.chars, False, ""
        for piece in _recut(pieces):
            normal = unicodedata.normalize("NFC", piece)
            composed = composed or normal != piece
            held += normal
            if not held.isspace():  # so that nothing is written of a file that is blank throughout
                writer.write(held)
                held = ""
    except _Undecodable as error:
        raise TextError(
            f"{file.name} is not {_display(error.codec)}: {error}; "
            "repair the file, or name its encoding with --encoding"
        ) from None
    except OSError as error:
        raise TextError(f"{file.name} cannot be read: {error.strerror}") from error
    if writer.chars == before and not file.named:
        return None
    if writer.chars == before:
        raise TextError(f"{file.name} holds nothing but white space; jumok needs text to work with")
    writer.write(held)
    ends = newlines.newlines
    return Source(
        name=file.name,
        encoding=_display(found.codec),
        bom=found.bom > 0,
        format=file.format,
        bytes=size,
        chars=writer.chars - before,
        newlines="mixed" if isinstance(ends, tuple) else ends or "",
        normalised=composed,
        guessed=found.guessed,
    )


class _Undecodable(Exception):
    """The bytes at `offset` do not fit the codec."""

    def __init__(self, codec: str, offset: int, data: bytes, reason: str) -> None:
        shown = " ".join(f"0x{byte:02x}" for byte in data[:4])
        super().__init__(f"byte offset {offset:,} holds {shown} ({reason})")
        self.codec, self.offset = codec, offset


def _decode(data: IO[bytes], codec: str, start: int = 0) -> Iterator[str]:
    """Decode strictly from byte `start` on; a character cut by the end of a block is carried over."""
    decoder = codecs.getincrementaldecoder(codec)("strict")
    data.seek(start)
    done = start
    while True:
        block = data.read(_BLOCK)
        carried = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            bad = error.object[error.start : error.end]
            raise _Undecodable(codec, done - carried + error.start, bad, error.reason) from None
        if text:
            yield text
        if not block:
            return
        done += len(block)


def _unify(chunks: Iterable[str], newlines: io.IncrementalNewlineDecoder) -> Iterator[str]:
    for chunk in chunks:
        yield newlines.decode(chunk)  # holds a final "\r" back: a "\n" may follow
    yield newlines.decode("", final=True)


def _joined(rows: Iterable[str]) -> Iterator[str]:
    parting = ""
    for row in rows:
        yield parting + row.replace("\r\n", "\n").replace("\r", "\n")
        parting = "\n"


# --- Rows of jsonl, csv and tsv ---------------------------------------------------------------------------------


def _rows(file: _Input, chunks: Iterable[str], data: IO[bytes], found: _Encoding, column: str | None) -> Iterator[str]:
    """Yield the text of each row that has any."""
    if file.format == "jsonl":
        return _json_rows(file.name, _lines(chunks), column or "text")
    if file.format == "csv":
        return _table_rows(file.name, _lines(chunks), column, _CSV)

    def again() -> Iterator[str]:
        return _lines(_unify(_decode(data, found.codec, found.bom), io.IncrementalNewlineDecoder(None, True)))

    dialect = next((dialect for dialect in _TSV if _consistent(again(), dialect)), _UNQUOTED_TSV)
    return _table_rows(file.name, _lines(chunks), column, dialect)


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the lines without their "\\n". Not `str.splitlines`: JSON strings may hold U+2028 as it is."""
    held: list[str] = []
    for chunk in chunks:
        first, *rest = chunk.split("\n")
        held.append(first)
        for line in rest:
            yield "".join(held)
            held = [line]
    if any(held):
        yield "".join(held)


def _json_rows(name: str, lines: Iterable[str], column: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise TextError(f"{name}, line {number:,}: not JSON: {error}; each line must be one JSON object") from None
        if not isinstance(row, dict):
            kind = type(row).__name__
            raise TextError(f"{name}, line {number:,}: a JSON {kind}; each line must be an object such as {{...}}")
        if column not in row:
            raise TextError(f"{name}, line {number:,}: no column {column!r}; {_choice(row)}")
        value = row[column]
        if not isinstance(value, str | None):
            raise TextError(
                f"{name}, line {number:,}: column {column!r} holds {json.dumps(value)[:40]}, which is no text"
            )
        if value:
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise TextError(f"{name}, line {number:,}: {_half_pair(value[error.start])}") from None
            yield value


class _Dialect(NamedTuple):
    delimiter: str
    quotes: bool
    tabs_in_quotes: bool = True


_CSV = _Dialect(",", quotes=True)
# Many a .tsv was written without quoting (film reviews begin with a quotation mark), many another with. The first
# of these that gives every row as many fields as the header is taken. A quoted field with a tab inside is a last
# resort: an unquoted file with two stray marks would otherwise read as one long field that swallows its rows.
_UNQUOTED_TSV = _Dialect("\t", quotes=False)
_TSV = (_Dialect("\t", quotes=True, tabs_in_quotes=False), _UNQUOTED_TSV, _Dialect("\t", quotes=True))


def _records(lines: Iterable[str], dialect: _Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row that is not blank; raises `csv.Error`."""
    csv.field_size_limit(max(_MAX_FIELD, csv.field_size_limit()))  # the module's one limit: only ever raised
    reader = csv.reader(
        (line + "\n" for line in lines),
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
        strict=True,
    )
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _consistent(lines: Iterable[str], dialect: _Dialect) -> bool:
    width = None
    try:
        for _, fields in _records(lines, dialect):
            width = width or len(fields)
            if len(fields) != width or (not dialect.tabs_in_quotes and any("\t" in field for field in fields)):
                return False
    except csv.Error:
        return False
    return True


def _table_rows(name: str, lines: Iterable[str], column: str | None, dialect: _Dialect) -> Iterator[str]:
    records = _records(lines, dialect)
    number = 1
    try:
        number, header = next(records, (1, []))
        wanted = column or "text"
        if wanted not in header:
            asked = f"no column {column!r}" if column else "it is not said which column holds the text"
            raise TextError(f"{name}: {asked}; {_choice(header)}")
        at = header.index(wanted)
        for number, fields in records:
            if len(fields) != len(header):
                raise TextError(
                    f"{name}, line {number:,}: {len(fields)} fields where the header has {len(header)}; "
                    f"a field with {dialect.delimiter!r} or a newline in it must stand in double quotes"
                )
            if fields[at]:
                yield fields[at]
    except csv.Error as error:
        raise TextError(f"{name}, after line {number:,}: broken quoting: {error}") from None


def _choice(columns: Iterable[str]) -> str:
    listed = ", ".join(map(repr, columns)) or "none"
    return f"the columns are {listed}; choose one with --column"


def _half_pair(char: str) -> str:
    return f"U+{ord(char):04X} is half of a surrogate pair and no character; remove it or restore its other half"


# --- Which encoding? --------------------------------------------------------------------------------------------

_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")

_MAGIC = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a zip archive (.docx, .hwpx, .epub and .xlsx are such)",
    b"\xd0\xcf\x11\xe0": "an .hwp, .doc or .xls document",
    b"HWP Document File": "an .hwp document",
    b"\x1f\x8b": "a gzip archive",
    b"BZh9": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\x7fELF": "a program",
    b"SQLite format 3\x00": "a database",
}
_CONTROLS = bytes({*range(32), 127} - set(b"\b\t\n\v\f\r\x1b"))

# The thirty commonest syllables of novels and of film reviews make up about 40% of both. What decodes as CP949 but
# hardly has them is another country's text in disguise. The last four are how Koreans laugh and cry online.
_COMMON = frozenset("이다는고하지가에을그아어나의도한은기서영리화로만보게니라들를ㅋㅎㅠㅜ")


def _detect(data: IO[bytes], name: str) -> _Encoding:
    """Find the encoding of a whole file by strict decoding, most certain first."""
    head = _window(data, 0)
    for mark, codec in _BOMS:
        if head.startswith(mark) and codec in _WIDE:
            return _Encoding(codec, len(mark))
    bom = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    if kind := next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None):
        raise TextError(f"{name} looks binary ({kind}); save it as plain text first")
    nul = _first_nul(data)
    wide, share = _best_wide(head)
    if nul is not None:
        if share >= 0.9 and not bom:
            return _Encoding(wide)
        raise TextError(
            f"{name} looks binary: byte offset {nul:,} is NUL; give a text file, or name its encoding with --encoding"
        )
    not_utf8 = _misfit(data, "utf-8")
    if not_utf8 is not None and share >= 0.9 and _is_bare_utf16(head, wide) and _misfit(data, wide) is None:
        return _Encoding(wide)
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > len(head) // 20:
        raise TextError(
            f"{name} looks binary ({controls} of its first {len(head)} bytes are control characters); "
            "give a text file, or name its encoding with --encoding"
        )
    if not_utf8 is None:
        return _Encoding("utf-8", bom)
    around = _window(data, not_utf8.offset)
    if bom or _mostly_utf8(around):
        raise not_utf8
    not_cp949 = _misfit(data, "cp949")
    korean = around.decode("cp949", "ignore")
    foreign = sum(char > "\x7f" for char in korean) >= 20  # fewer tell nothing
    reads_korean = _korean_share(korean) > 0.08
    if not_cp949 is None and (reads_korean or not foreign):
        return _Encoding("cp949")
    if not_cp949 is not None and reads_korean and foreign:
        raise not_cp949
    guess = _guess(around)
    if guess is not None and _misfit(data, guess) is None:
        return _Encoding(guess, guessed=True)
    if not_cp949 is None:
        return _Encoding("cp949")
    raise TextError(
        f"{name} is neither UTF-8 nor CP949, nor anything else that jumok recognises: as UTF-8, {not_utf8}; "
        f"as CP949, {not_cp949}; name its encoding with --encoding, or repair the file"
    )


def _window(data: IO[bytes], around: int) -> bytes:
    """Read a sample about an offset, from the start of a line on, so that no character is cut there."""
    start = max(0, around - _SAMPLE // 2)
    data.seek(start)
    sample = data.read(_SAMPLE)
    newline = sample.find(b"\n", 0, around - start)
    return sample if start == 0 or newline < 0 else sample[newline + 1 :]


def _first_nul(data: IO[bytes]) -> int | None:
    data.seek(0)
    done = 0
    while block := data.read(_BLOCK):
        if (at := block.find(0)) >= 0:
            return done + at
        done += len(block)
    return None


def _misfit(data: IO[bytes], codec: str) -> _Undecodable | None:
    """Decode the whole file for nothing but the proof; None means that it fits."""
    try:
        for _ in _decode(data, codec):
            pass
    except _Undecodable as error:
        return error
    return None


def _mostly_utf8(sample: bytes) -> bool:
    """Whether a sample that is not UTF-8 is nevertheless UTF-8 with some bytes broken."""
    text = sample.decode("utf-8", "replace")
    before = sum(char >= "\u0800" for char in text.partition("\ufffd")[0])
    good = sum("\u0800" <= char != "\ufffd" for char in text)
    bad = text.count("\ufffd") - sample.count("\ufffd".encode())
    # CP949 read as UTF-8 gives hardly anything but replacements, and never so many three-byte characters in a row.
    return good > bad or before >= 16


def _best_wide(sample: bytes) -> tuple[str, float]:
    """Return the likeliest of UTF-16 and UTF-32 and the share of its characters that a Korean text may hold.

    Bytes read in the wrong width or order give characters from all over Unicode, of which CP949 knows a quarter.
    """
    shares = {}
    for codec in _WIDE:
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample)
        except UnicodeDecodeError:
            continue
        text = unicodedata.normalize("NFC", text)
        known = text.encode("cp949", "ignore").translate(None, _CONTROLS).decode("cp949", "ignore")
        shares[codec] = len(known) / max(1, len(text))
    best = max(shares, key=lambda codec: shares[codec], default="utf-16-le")
    return best, shares.get(best, 0.0)


def _is_bare_utf16(sample: bytes, wide: str) -> bool:
    """Whether a sample without NUL, so without a space, is UTF-16 all the same: Hangul, and better so than as CP949.

    Every CP949 text of even length is Hangul in UTF-16 as well, so a few bytes are left to CP949 if they fit it.
    """
    as_wide = _korean_share(sample.decode(wide, "ignore"))
    as_cp949 = _korean_share(sample.decode("cp949", "ignore"))
    try:
        sample.decode("cp949")
    except UnicodeDecodeError:
        return as_wide > max(0.1, as_cp949)
    return len(sample) >= 16 and as_wide > max(0.1, 2 * as_cp949)


def _korean_share(text: str) -> float:
    """Return how many of the characters beyond ASCII are among the commonest Korean syllables."""
    beyond = [char for char in text if char > "\x7f"]
    return sum(char in _COMMON for char in beyond) / max(1, len(beyond))


def _guess(sample: bytes) -> str | None:
    """Ask charset-normalizer; None where it does not know or its answer is no better than a throw of dice."""
    from charset_normalizer import from_bytes  # here: it costs time, and hardly a file needs it

    end = max((sample.rfind(byte) for byte in b"\n ,."), default=-1)  # never the second half of a character
    sample = sample[: end + 1] or sample
    wide = [codec.replace("-", "_") for codec in ("utf-7", "utf-8", "utf-16", "utf-32", *_WIDE)]
    best = from_bytes(sample, cp_exclusion=wide).best()
    if best is None or best.chaos > 0.1 or sum(byte > 127 for byte in sample) < 4:
        return None
    if len(str(best)) < len(sample):  # several bytes a character: a strict decoding is evidence enough
        return str(best.encoding)
    western = from_bytes(sample, cp_isolation=["cp1252"]).best()
    if western is not None and western.chaos <= best.chaos + 0.1 and western.coherence >= best.coherence:
        best = western  # neighbours such as cp1250 and cp1257 are as likely by letters alone, and rarer
    return str(best.encoding) if best.coherence > 0.1 else None


def _known_codec(encoding: str) -> str:
    """Return the codec that a person's `encoding` means."""
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError):
        info = None
    if info is None or info.incrementaldecoder is None or not info._is_text_encoding:
        names = {*encodings.aliases.aliases, *encodings.aliases.aliases.values()}
        near = difflib.get_close_matches(encoding.lower().replace("-", "_"), names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "try utf-8, cp949, euc-kr, utf-16 or johab"
        raise TextError(f"unknown encoding {encoding!r}; {hint}")
    # What calls itself EUC-KR is CP949 more often than not (the WHATWG Encoding Standard reads it so as well).
    return {"utf-8-sig": "utf-8", "euc_kr": "cp949"}.get(info.name, info.name)


def _overridden(data: IO[bytes], name: str, codec: str) -> _Encoding:
    """Take the given codec, skip its byte-order mark, and let the mark or the bytes tell the order of UTF-16."""
    head = _window(data, 0)
    for mark, marked in _BOMS:
        if head.startswith(mark) and marked.startswith(codec):
            return _Encoding(marked, len(mark))
    if codec in ("utf-16", "utf-32"):
        wide, _ = _best_wide(head)
        codec = wide if wide.startswith(codec) else f"{codec}-le"
    misfit = _misfit(data, codec)
    if misfit is not None:
        raise TextError(f"{name} is not {_display(codec)}, which --encoding asked for: {misfit}")
    return _Encoding(codec)


def _display(codec: str) -> str:
    return codec.upper().replace("-LE", "LE").replace("-BE", "BE")


# --- Writing the text down --------------------------------------------------------------------------------------


class _TextWriter:
    """Take the pieces of all sources; keep the text, its index and its checksum."""

    def __init__(self, spool_dir: Path | None, in_memory: int) -> None:
        self.sources: list[Source] = []
        self.chars = 0  # of the sources; what parts them is not counted before the end
        self._dir = spool_dir
        self._file = _spool(spool_dir, in_memory)
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
            raise _no_room(self._dir, error) from error
