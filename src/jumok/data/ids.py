"""The ids of a text: in one file, or in shards if the text is large."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from jumok.data.id_files import map_ids, write_ids
from jumok.data.shards import index_of, map_shards, remove_shards, write_shards
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer

LARGE = 64 << 20  # bytes of UTF-8; a smaller text is encoded before anybody would interrupt it


class IdSequence(Protocol):
    """Ids in memory or in files: an array, or `jumok.data.shards.ShardedIds`."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Ids: ...


def tokenize(
    text: Text,
    tokenizer: Tokenizer,
    path: Path,
    start: int = 0,
    stop: int | None = None,
    report: Callable[[float], None] | None = None,
) -> IdSequence:
    """Write the ids of text[start:stop] to a .npy file, or to shards beside it, and map them into memory.

    The text is read in pieces, so it can be larger than the memory. A large one is encoded by several threads.

    Args:
        report: is called with the finished share of a large text from time to time.

    Returns:
        (tokens,), of type `tokenizer.dtype`, read-only.
    """
    start, stop, _ = slice(start, stop).indices(text.chars)
    if text.utf8_bytes / text.chars * (stop - start) > LARGE:
        path.unlink(missing_ok=True)  # of another text, whose start was killed
        return write_shards(text, tokenizer, path, start, stop, report)
    remove_shards(path)
    write_ids(path, tokenizer.encode_chunks(text.chunks(start, stop)), tokenizer.dtype)
    return map_ids(path)


def load_ids(path: Path, count: int | None = None) -> IdSequence:
    """Map ids written by `tokenize` into memory.

    Raises:
        RunError: a file is missing or damaged, or there are not `count` ids.
    """
    return map_shards(path, count) if index_of(path).exists() else map_ids(path, count)
