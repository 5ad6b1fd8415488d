"""Inputs, opened one after another without copies; those of text with their encoding and format."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from jumok.errors import TextError
from jumok.messages import message, tr
from jumok.text._columnar import Columnar
from jumok.text._decoding import (
    Encoding,
    Undecodable,
    decode,
    detect,
    display,
    known_codec,
    overridden,
    require_no_magic,
)
from jumok.text._inputs import Format, Input, find, open_input, unreadable
from jumok.text._json import begins_like_json
from jumok.text._rows import lines
from jumok.text._source import Source

_MARKUP = (  # how a document begins that says what it is
    (r"(!doctype\s+html|(html|head|body)[\s>])", message("an HTML page")),
    (r"sami[\s>]", message("SAMI subtitles")),
    (r"(\?xml\s|!doctype\s|[^<>]+\sxmlns\b)", message("an XML document")),
)


class Inputs:
    """The inputs that paths name, opened one after another; empty files found in a folder and copies are skipped.

    Args:
        paths: files, folders, and "-" for standard input.
        encoding: of all inputs; None: it is detected.
        tables_only: search folders for tables only.
        table: whether standard input that is no JSON is a table.

    Attributes:
        first: the first path.
        copies: names of the copies that were skipped, by the SHA-256 of their bytes.

    Raises:
        TextError: an input cannot be found or read, or standard input is named twice.
    """

    def __init__(
        self,
        paths: Sequence[str | Path] | str | Path,
        encoding: str | None,
        *,
        tables_only: bool = False,
        table: bool = False,
    ) -> None:
        names = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        if names.count("-") > 1:
            raise TextError("- was given twice, and standard input can be read once; name it once.")
        self._codec = None if encoding is None else known_codec(encoding)
        self.first = names[0] if names else ""
        self._files = [found for name in names for found in find(name, tables_only=tables_only)]
        self._table = table
        self.copies: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[Reading | Columnar]:
        for file in self._files:
            with open_input(file) as data:
                try:
                    sha256 = hashlib.file_digest(data, "sha256").hexdigest()  # type: ignore[arg-type]
                    size = data.seek(0, os.SEEK_END)
                    data.seek(0)
                except OSError as error:
                    raise unreadable(file.name, error) from error
                if size == 0 and file.named:
                    raise TextError("{name} is empty; jumok needs text to work with", name=file.name)
                if size == 0:
                    continue
                if sha256 in self.copies:
                    self.copies[sha256].append(file.name)
                    continue
                self.copies[sha256] = []
                facts = {"name": file.name, "bytes": size, "sha256": sha256}
                if file.format == "parquet":
                    yield Columnar(file, data, facts)
                else:
                    yield Reading(file, data, self._codec, facts, table=self._table)


class Reading:
    """An input with a known encoding and format, which can be read from its start several times.

    Args:
        encoding: an encoding that fits, the codec that was given, or None: it is detected.
        facts: fields of the `Source`.
        table: see `Inputs`.

    Raises:
        TextError: the input cannot be decoded, or is a document in HTML or XML.
    """

    def __init__(
        self,
        file: Input,
        data: IO[bytes],
        encoding: Encoding | str | None,
        facts: Mapping[str, Any],
        *,
        table: bool = False,
    ) -> None:
        self.file = file
        self._data, self._facts = data, facts
        self._newlines = io.IncrementalNewlineDecoder(None, translate=True)
        if isinstance(encoding, Encoding):
            self._encoding, self.format = encoding, file.format
            return
        require_no_magic(data, file.name)
        with self._errors_named():
            self._encoding = overridden(data, file.name, encoding) if encoding else detect(data, file.name)
        self.format = self._find_format(table)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn errors inside the block into a `TextError` that names the file."""
        try:
            yield
        except Undecodable as error:
            raise TextError(
                "{name} is not {encoding}: {error}; repair the file, or name its encoding with {--encoding NAME}",
                name=self.file.name,
                encoding=display(error.codec),
                error=error,
            ) from None
        except OSError as error:
            raise unreadable(self.file.name, error) from error

    def pieces(self) -> Iterator[str]:
        """Yield all characters, with "\\n" for newlines."""
        self._newlines = newlines = io.IncrementalNewlineDecoder(None, translate=True)
        with self._errors_named():
            for piece in decode(self._data, self._encoding.codec, self._encoding.bom):
                yield newlines.decode(piece)  # holds back a final "\r", because "\n" may follow
        yield newlines.decode("", final=True)

    def source(self, **counted: Any) -> Source:
        """Return the record of the input; call this after `pieces` is exhausted."""
        ends = self._newlines.newlines
        return Source(
            **self._facts,
            **counted,
            encoding=display(self._encoding.codec),
            bom=self._encoding.bom > 0,
            format=self.format,
            newlines="mixed" if isinstance(ends, tuple) else ends or "",
            guessed=self._encoding.guessed,
        )

    def _find_format(self, table: bool) -> Format:
        """Return the format: that of JSON by its content, any other by its suffix.

        Standard input has no suffix. As a table, its first line that is not blank decides: one with a comma and no tab
        is .csv, any other .tsv, also one with a single column.
        """
        begin = next(filter(None, map(str.lstrip, self.pieces())), "")
        if begin.startswith(("{", "[")) and begins_like_json(self.pieces()):
            return "json"
        if begin.startswith("<"):
            self._require_no_markup(begin)
        if self.file.path != "-" or not table:
            return self.file.format
        header = next((line for line in lines(self.pieces()) if line.strip()), "")
        return "csv" if "," in header and "\t" not in header else "tsv"

    def _require_no_markup(self, begin: str) -> None:
        """Raise TextError for a document in HTML or XML, from its first tag to its last."""
        tag = re.sub(r"^(<!--.*?-->\s*)*<", "", begin, flags=re.DOTALL)
        kind = next((kind for mark, kind in _MARKUP if re.match(mark, tag, re.IGNORECASE)), None)
        if kind is None:
            return
        last = ""
        for piece in self.pieces():
            last = piece.rstrip()[-1:] or last
        if last == ">":
            raise TextError(
                "{name} is {kind}; save it as plain text first, or, if its tags are to be learned, put it into the "
                "text column of a .jsonl file",
                name=self.file.name,
                kind=tr(kind),
            )
