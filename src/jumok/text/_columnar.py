"""Parquet files, read a few rows at a time with pyarrow."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from jumok.errors import TextError
from jumok.text._inputs import Format, Input
from jumok.text._rows import only_place
from jumok.text._source import Place, Source

ROWS = 1024  # that are held as Python objects
BUFFER = 1 << 20  # bytes that are read at once of each column


class Columnar:
    """A .parquet file: its columns, and the rows of some of them.

    Args:
        facts: fields of the `Source`.

    Raises:
        TextError: pyarrow is not installed, or the file is damaged.
    """

    def __init__(self, file: Input, data: IO[bytes], facts: Mapping[str, Any]) -> None:
        self.file, self._facts = file, facts
        self.format: Format = file.format
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise TextError(
                "pyarrow reads {name}, and cannot be loaded ({error}). Install it with: pip install 'jumok[data]'",
                name=file.name,
                error=error,
            ) from None
        with self._damage_named():
            self._stored: Any = parquet.ParquetFile(data, buffer_size=BUFFER, pre_buffer=False)
            self._names: list[str] = self._stored.schema_arrow.names
        self.columns = [unicodedata.normalize("NFC", name) for name in self._names]

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:  # of names; of sizes in the file
            raise TextError(
                "{name} cannot be read as Parquet: {reason}; was it copied or downloaded completely?",
                name=self.file.name,
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
            for batch in self._stored.iter_batches(batch_size=ROWS, columns=names, use_threads=False):
                try:
                    cells = [batch.column(name).to_pylist() for name in names]
                except UnicodeDecodeError as error:
                    raise TextError(
                        "{name}, rows {first:,} to {last:,}: not UTF-8: {error}; write the file again",
                        name=self.file.name,
                        first=number + 1,
                        last=number + batch.num_rows,
                        error=error,
                    ) from None
                for row in zip(*cells, strict=True):
                    number += 1
                    yield Place(self.file.name, number, row=True), list(row)

    def source(self, **counted: Any) -> Source:
        """Return the record of the input."""
        return Source(**self._facts, **counted, format=self.format)
