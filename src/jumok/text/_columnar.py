"""Parquet files, and Arrow files such as those of a `datasets` folder, read a few rows at a time with pyarrow."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
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
    """A .parquet or .arrow file: its columns, and the rows of some of them.

    Args:
        facts: fields of the `Source`.

    Raises:
        TextError: pyarrow is not installed, or the file is damaged.
    """

    def __init__(self, file: Input, data: IO[bytes], facts: Mapping[str, Any]) -> None:
        self.file, self._facts = file, facts
        self.format: Format = file.format
        self._stored: Any
        try:
            import pyarrow as pa
            from pyarrow import ipc, parquet
        except ImportError as error:
            raise TextError(
                "pyarrow reads {name}, and cannot be loaded ({error}). Install it with: pip install 'jumok[data]'",
                name=file.name,
                error=error,
            ) from None
        with self._damage_named():
            if file.format == "parquet":
                self._stored = parquet.ParquetFile(data, buffer_size=BUFFER, pre_buffer=False)
                schema = self._stored.schema_arrow
            else:
                in_file = data.read(6) == b"ARROW1"  # `datasets` writes a stream
                data.seek(0)
                self._stored = ipc.open_file(data) if in_file else ipc.open_stream(pa.PythonFile(data, mode="r"))
                schema = self._stored.schema
            self._names: list[str] = schema.names
        self.columns = [unicodedata.normalize("NFC", name) for name in self._names]

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:  # of names; of sizes in the file
            raise TextError(
                "{name} cannot be read as {format}: {reason}; was it copied or downloaded completely?",
                name=self.file.name,
                format=self.format,
                reason=(str(error).splitlines() or [type(error).__name__])[0],
            ) from error

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Place, list[Any]]]:
        """Yield place and cells of each row; `columns` are some of `self.columns`. Call this once.

        Raises:
            TextError: a column occurs more than once, a cell is not UTF-8, or the file is damaged.
        """
        names = [self._names[only_place(self.file.name, self.columns, column)] for column in columns]
        number = 0
        with self._damage_named():
            for batch in self._batches(names):
                for name in names:
                    _require_whole(batch.column(name))
                for start in range(0, batch.num_rows, ROWS):
                    part = batch.slice(start, ROWS)
                    try:
                        cells = [part.column(name).to_pylist() for name in names]
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
        if self.format == "parquet":
            yield from self._stored.iter_batches(batch_size=ROWS, columns=names, use_threads=False)
        elif hasattr(self._stored, "get_batch"):
            yield from map(self._stored.get_batch, range(self._stored.num_record_batches))
        else:
            yield from self._stored

    def source(self, **counted: Any) -> Source:
        """Return the record of the input."""
        return Source(**self._facts, **counted, format=self.format)


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
