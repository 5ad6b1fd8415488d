"""The ids of a text in a memory-mapped .npy file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.messages import message, tr
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer

HEADER = 128  # bytes of the header of a .npy file with a one-dimensional array
REMEDY = message("Restore it from a copy, or start a new run; the model itself can still be used.")


def tokenize(text: Text, tokenizer: Tokenizer, path: Path, start: int = 0, stop: int | None = None) -> Ids:
    """Write the ids of text[start:stop] to a .npy file and map it into memory.

    The text is read in pieces, so it can be larger than the memory.

    Returns:
        (tokens,), of type `tokenizer.dtype`, read-only.
    """
    count = 0
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_header(file, tokenizer.dtype, count)
        for piece in tokenizer.encode_chunks(text.chunks(start, stop)):
            file.write(piece.tobytes())
            count += len(piece)
        file.seek(0)
        _write_header(file, tokenizer.dtype, count)  # of the same length: both are padded to HEADER bytes
    return load_ids(path)


def _write_header(file: IO[bytes], dtype: np.dtype[Any], count: int) -> None:
    np.lib.format.write_array_header_2_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    assert file.tell() == HEADER


def load_ids(path: Path, count: int | None = None) -> Ids:
    """Map ids written by `tokenize` into memory.

    Raises:
        RunError: the file is missing or damaged, or does not contain `count` ids.
    """
    try:
        empty = path.stat().st_size <= HEADER  # an empty array cannot be mapped
        ids: Ids = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(
            "{path}, the text as ids, cannot be read ({reason}). {remedy}", path=path, reason=reason, remedy=tr(REMEDY)
        ) from None
    if count is not None and len(ids) != count:
        raise RunError(
            "{path} holds {count:,} ids where the run had {expected:,}. {remedy}",
            path=path,
            count=len(ids),
            expected=count,
            remedy=tr(REMEDY),
        )
    return ids
