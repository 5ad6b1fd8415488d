"""The ids of a text in a memory-mapped .npy file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.messages import message, tr
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer

LARGE = 64 << 20  # bytes of UTF-8; a smaller text is encoded before anybody would look for progress
HEADER = 128  # bytes of the header of a .npy file with a one-dimensional array
ONE_DIMENSION = re.compile(
    rb"\x93NUMPY[\1\2]\0[^{]{2,4}"
    rb"\{'descr': '([<|][iu][1248])', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n",
    re.DOTALL,
)
REMEDY = message("Restore it from a copy, or start a new run; the model itself can still be used.")


def tokenize(
    text: Text,
    tokenizer: Tokenizer,
    path: Path,
    start: int = 0,
    stop: int | None = None,
    report: Callable[[float], None] | None = None,
) -> Ids:
    """Write the ids of text[start:stop] to a .npy file, atomically, and map them into memory.

    The text is read in pieces, so it can be larger than the memory.

    Args:
        report: is called with the finished share of a large text from time to time.

    Returns:
        (tokens,), of type `tokenizer.dtype`, read-only.
    """
    start, stop, _ = slice(start, stop).indices(text.chars)
    pieces = tokenizer.cut(text.chunks(start, stop))
    if report is not None and text.utf8_bytes / text.chars * (stop - start) > LARGE:
        pieces = _reported(pieces, stop - start, report)
    _write_ids(path, map(tokenizer.encode, pieces), tokenizer.dtype)
    return load_ids(path)


def _reported(pieces: Iterable[str], chars: int, report: Callable[[float], None]) -> Iterator[str]:
    """Yield the pieces of a text, and report the share of its characters at each percent."""
    done, percent = 0, -1
    for piece in pieces:
        if 100 * done // chars > percent:
            percent = 100 * done // chars
            report(percent / 100)
        yield piece
        done += len(piece)


def _write_ids(path: Path, pieces: Iterable[Ids], dtype: np.dtype[Any]) -> None:
    count = 0
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_header(file, dtype, count)
        for piece in pieces:
            file.write(piece.data)
            count += len(piece)
        file.seek(0)
        _write_header(file, dtype, count)  # of the same length: both are padded to HEADER bytes


def _write_header(file: IO[bytes], dtype: np.dtype[Any], count: int) -> None:
    np.lib.format.write_array_header_2_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    assert file.tell() == HEADER


def _read_header(path: Path) -> tuple[np.dtype[Any], int]:
    """Return the type and the number of the ids of a file. Only the header of jumok and of `numpy.save` is accepted.

    `numpy.load` parses any Python literal there, and raises whatever its tokenizer does.

    Raises:
        ValueError: it is no such header. OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        found = ONE_DIMENSION.fullmatch(file.read(HEADER))
    if found is None:
        raise ValueError(tr("it is no .npy file with one row of integers"))
    return np.dtype(found[1].decode()), int(found[2])


def load_ids(path: Path, count: int | None = None) -> Ids:
    """Map the ids that `tokenize` wrote into memory: (tokens,), read-only.

    Raises:
        RunError: the file is missing or damaged, or does not contain `count` ids.
    """
    try:
        dtype, length = _read_header(path)
        if path.stat().st_size != HEADER + length * dtype.itemsize:
            raise ValueError(tr("its header does not fit its size"))
        # An empty array cannot be mapped.
        ids: Ids = np.memmap(path, dtype, "r", HEADER, (length,)) if length else np.empty(0, dtype)
    except (OSError, ValueError) as error:
        raise RunError(
            "{path}, the ids of the text, cannot be read ({reason}). {remedy}",
            path=path,
            reason=error,
            remedy=tr(REMEDY),
        ) from None
    if count not in (None, length):
        raise RunError(
            "{path} contains {count:,} ids instead of {expected:,}. {remedy}",
            path=path,
            count=length,
            expected=count,
            remedy=tr(REMEDY),
        )
    return ids
