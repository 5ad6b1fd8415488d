"""One array of ids in a memory-mapped .npy file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.messages import message, tr
from jumok.tokenizers import Ids

HEADER = 128  # bytes of the header of a .npy file with a one-dimensional array
ONE_DIMENSION = re.compile(
    rb"\x93NUMPY[\1\2]\0[^{]{2,4}"
    rb"\{'descr': '([<|][iu][1248])', 'fortran_order': False, 'shape': \((\d{1,15}),\), \} *\n",
    re.DOTALL,
)
REMEDY = message("Restore it from a copy, or start a new run; the model itself can still be used.")


def write_ids(path: Path, pieces: Iterable[Ids], dtype: np.dtype[Any]) -> int:
    """Write consecutive pieces of one array to a .npy file, atomically, and return the number of ids."""
    count = 0
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_header(file, dtype, count)
        for piece in pieces:
            file.write(piece.data)
            count += len(piece)
        file.seek(0)
        _write_header(file, dtype, count)  # of the same length: both are padded to HEADER bytes
    return count


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


def map_ids(path: Path, count: int | None = None) -> Ids:
    """Map a file of `write_ids` into memory: (tokens,), read-only.

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
        reason = error.strerror if isinstance(error, OSError) else error
        raise unreadable(path, reason) from None
    require_count(path, len(ids), count)
    return ids


def require_count(path: Path, count: int, expected: int | None) -> None:
    """Raise RunError if there are more or fewer ids than expected; None: any number is right."""
    if expected not in (None, count):
        raise RunError(
            "{path} contains {count:,} ids instead of {expected:,}. {remedy}",
            path=path,
            count=count,
            expected=expected,
            remedy=tr(REMEDY),
        )


def unreadable(path: Path, reason: object) -> RunError:
    """Return the error for a file that is missing or damaged."""
    return RunError(
        "{path}, the ids of the text, cannot be read ({reason}). {remedy}",
        path=path,
        reason=reason,
        remedy=tr(REMEDY),
    )
