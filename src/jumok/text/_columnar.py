"""Parquet files, and Arrow files such as those of a `datasets` folder, read a few rows at a time with pyarrow."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from jumok.errors import TextError
from jumok.text._inputs import Format, Input
from jumok.text._rows import only_place
from jumok.text._source import Place, Source

COLUMNAR = ("parquet", "arrow")  # formats
ROWS = 1024  # that are held as Python objects
BUFFER = 1 << 20  # bytes that are read at once of each column of a .parquet


class Columnar:
    """A .parquet or .arrow file: its columns, and the rows of some of them."""

    def __init__(self, file: Input, data: IO[bytes], size: int) -> None:
        import pyarrow as pa
        from pyarrow import ipc, parquet

        self.file, self._size = file, size
        self._parquet = self._stream = self._arrow = None
        if file.format == "parquet":
            self._parquet = parquet.ParquetFile(data, buffer_size=BUFFER, pre_buffer=False)
            schema = self._parquet.schema_arrow
        elif _begins_with(data, b"ARROW1"):
            self._arrow = ipc.open_file(data)
            schema = self._arrow.schema
        else:  # as `datasets` writes it
            self._stream = ipc.open_stream(pa.PythonFile(data, mode="r"))
            schema = self._stream.schema
        self._names: list[str] = schema.names
        self.columns = [unicodedata.normalize("NFC", name) for name in self._names]

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Place, list[Any]]]:
        """Yield place and cells of each row; `columns` are some of `self.columns`. Call this once.

        Raises:
            TextError: a column occurs more than once, or a cell is not UTF-8.
        """
        places = [only_place(self.file.name, self.columns, column) for column in columns]
        number = 0
        for batch in self._batches([self._names[at] for at in places]):
            for at in places:
                _require_whole(batch.column(self._names[at]))
            for start in range(0, batch.num_rows, ROWS):
                part = batch.slice(start, ROWS)
                try:
                    cells = [part.column(self._names[at]).to_pylist() for at in places]
                except UnicodeDecodeError as error:
                    raise TextError(
                        "{name}, rows {first:,} to {last:,}: not UTF-8: {error}; write the file again",
                        name=self.file.name,
                        first=number + 1,
                        last=number + part.num_rows,
                        error=error,
                    ) from None
                for row in zip(*cells, strict=True):
                    number += 1
                    yield Place(self.file.name, number, row=True), list(row)

    def _batches(self, names: list[str]) -> Iterator[Any]:
        if self._parquet is not None:
            yield from self._parquet.iter_batches(batch_size=ROWS, columns=names, use_threads=False)
        elif self._arrow is not None:
            yield from map(self._arrow.get_batch, range(self._arrow.num_record_batches))
        elif self._stream is not None:
            yield from self._stream

    def source(self, *, format: Format, chars: int, normalised: bool, sha256: str, rows: int | None = None) -> Source:
        """Return the record of the input."""
        return Source(
            name=self.file.name,
            format=format,
            bytes=self._size,
            chars=chars,
            normalised=normalised,
            rows=rows,
            sha256=sha256,
        )


@contextmanager
def columnar(file: Input, data: IO[bytes]) -> Iterator[Columnar | None]:
    """Open a .parquet or .arrow file; yield None for an empty file found in a folder.

    Raises:
        TextError: pyarrow is not installed, or the file is damaged, also inside the block.
    """
    size = data.seek(0, os.SEEK_END)
    data.seek(0)
    if size == 0 and file.named:
        raise TextError("{name} is empty; jumok needs text to work with", name=file.name)
    if size == 0:
        yield None
        return
    try:
        from pyarrow import ArrowException
    except ImportError as error:
        raise TextError(
            "pyarrow reads {name}, and cannot be loaded ({error}). Install it with: pip install 'jumok[data]'",
            name=file.name,
            error=error,
        ) from None
    try:
        yield Columnar(file, data, size)
    except (ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:  # of names; of sizes in the file
        raise TextError(
            "{name} cannot be read as {format}: {reason}; was it copied or downloaded completely?",
            name=file.name,
            format=file.format,
            reason=(str(error).splitlines() or [type(error).__name__])[0],
        ) from error


def _require_whole(cells: Any) -> None:
    """Raise ArrowInvalid for offsets beyond the data, which would crash the process when the cells are read.

    Cells that are not UTF-8 are reported where they are read, with their rows.
    """
    from pyarrow import ArrowInvalid

    try:
        cells.validate(full=True)
    except ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise


def _begins_with(data: IO[bytes], magic: bytes) -> bool:
    found = data.read(len(magic)) == magic
    data.seek(0)
    return found
