"""The ids of a large text in several files, the shards, with an index that holds their sizes and checksums.

A shard ends where the text can be cut without changing its ids, and is the same however many threads encode it. It is
written atomically, and then entered in the index. A start that was killed therefore leaves whole shards behind, and the
next start with the same text, tokenizer and range of characters uses them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jumok.data.id_files import map_ids, require_count, unreadable, write_ids
from jumok.files import parse_json, sha256_of, write_atomic
from jumok.processors import processors
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer
from jumok.version import __version__
from tokenizers import __version__ as library_version

LONG = 1 << 16  # ids
SHARD = 1 << 25  # characters, rounded up to the next place where the text can be cut


class ShardedIds:
    """The ids of several mapped files as one sequence, (tokens,). A slice is a copy if it is long or crosses files."""

    def __init__(self, shards: Sequence[Ids]) -> None:
        self.dtype = shards[0].dtype
        self._shards = shards
        self._ends = list(accumulate(map(len, shards)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, part: slice, /) -> Ids:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"step={step}: only consecutive ids can be read")
        found = []
        shard = bisect_right(self._ends, start)
        while start < stop:
            end = self._ends[shard]
            base = end - len(self._shards[shard])
            found.append(_slice(self._shards[shard], start - base, min(stop, end) - base))
            start, shard = end, shard + 1
        if not found:
            return np.empty(0, self.dtype)
        return found[0] if len(found) == 1 else np.concatenate(found)


def _slice(shard: Ids, start: int, stop: int) -> Ids:
    """Return some ids of a shard; many are read from its file, because a map keeps what was read of it in memory."""
    if stop - start < LONG or not isinstance(shard, np.memmap) or shard.filename is None:
        return shard[start:stop]
    offset = shard.offset + start * shard.itemsize
    found: Ids = np.fromfile(shard.filename, shard.dtype, stop - start, offset=offset)
    return found


@dataclass(frozen=True, kw_only=True)
class Shard:
    """An entry of the index. stop: the character after its last. tokens: its ids. sha256: of its file."""

    stop: int
    tokens: int
    sha256: str


class Part(NamedTuple):
    """A part of the text that is encoded at once. stop: the character after it. last: whether a shard ends there."""

    text: str
    stop: int
    last: bool


def write_shards(
    text: Text,
    tokenizer: Tokenizer,
    path: Path,
    start: int,
    stop: int,
    report: Callable[[float], None] | None = None,
) -> ShardedIds:
    """Write the ids of text[start:stop] to shards, and map them into memory; whole shards of the same ids are kept.

    Args:
        path: a shard is named after this file and has a number before the suffix.
        report: is called with the finished share after each shard.
    """
    about: dict[str, Any] = {
        "format": 1,
        "sha256": text.sha256,
        "start": start,
        "stop": stop,
        "tokenizer": tokenizer.fingerprint,
        "shard": SHARD,
        "versions": {"jumok": __version__, "tokenizers": library_version},
    }
    shards = _whole_shards(path, about)
    if not shards:
        remove_shards(path)
    at = shards[-1].stop if shards else start
    with closing(_encoded_in_order(tokenizer, _parts(text, tokenizer, at, stop))) as results:
        while at < stop:
            if report is not None:
                report((at - start) / (stop - start))
            file, ends = _shard_file(path, len(shards)), list[int]()
            count = write_ids(file, _of_one_shard(results, ends), tokenizer.dtype)
            at = ends[0]
            shards.append(Shard(stop=at, tokens=count, sha256=sha256_of(file)))
            content = {**about, "shards": [asdict(shard) for shard in shards]}
            write_atomic(index_of(path), json.dumps(content, indent=1) + "\n")
    return map_shards(path)


def _whole_shards(path: Path, about: dict[str, Any]) -> list[Shard]:
    """Return the shards that an earlier start has left, up to the first one that is missing or damaged."""
    try:
        content = parse_json(index_of(path).read_text(encoding="utf-8"))
        found = [Shard(**entry) for entry in content.pop("shards")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    files = ((_shard_file(path, number), shard) for number, shard in enumerate(found if content == about else ()))
    return [shard for _, shard in takewhile(lambda one: one[0].is_file() and sha256_of(one[0]) == one[1].sha256, files)]


def _parts(text: Text, tokenizer: Tokenizer, at: int, stop: int) -> Iterator[Part]:
    while at < stop:
        end = min(at + SHARD, stop)
        for piece in tokenizer.cut(text.chunks(at, stop)):
            at += len(piece)
            yield Part(piece, at, at >= end)
            if at >= end:  # the next shard is cut as if the text began there, so that it can be written alone
                break


def _encoded_in_order(tokenizer: Tokenizer, parts: Iterable[Part]) -> Generator[tuple[Part, Ids], None, None]:
    """Encode parts side by side, and yield each with its ids, in order; only a few parts are held in memory."""
    waiting: deque[tuple[Part, Future[Ids]]] = deque()
    count = processors()
    threads = ThreadPoolExecutor(count)  # the library encodes without holding the lock of the interpreter
    try:
        for part in parts:
            waiting.append((part, threads.submit(tokenizer.encode, part.text)))
            if len(waiting) > 2 * count:
                part, future = waiting.popleft()
                yield part, future.result()
        for part, future in waiting:
            yield part, future.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _of_one_shard(results: Iterator[tuple[Part, Ids]], ends: list[int]) -> Iterator[Ids]:
    for part, ids in results:
        yield ids
        if part.last:
            ends.append(part.stop)
            return


def map_shards(path: Path, count: int | None = None) -> ShardedIds:
    """Map the shards that `write_shards` has written into memory; their checksums are not computed.

    Raises:
        RunError: a file is missing or damaged, or there are not `count` ids.
    """
    index = index_of(path)
    try:
        tokens = [int(entry["tokens"]) for entry in parse_json(index.read_text(encoding="utf-8"))["shards"]]
        if not tokens:
            raise ValueError("no shards")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(index, getattr(error, "strerror", None) or repr(error)) from None
    ids = ShardedIds([map_ids(_shard_file(path, number), size) for number, size in enumerate(tokens)])
    require_count(index, len(ids), count)
    return ids


def remove_shards(path: Path) -> None:
    """Remove the shards that are named after a file, and their index."""
    index_of(path).unlink(missing_ok=True)  # first: files without an index are not read
    for file in path.parent.glob(f"{path.stem}.[0-9][0-9][0-9][0-9][0-9]{path.suffix}"):
        file.unlink()


def has_shards(folder: Path) -> bool:
    """Return whether a folder contains any shards."""
    return any(folder.glob("*.index.json"))


def index_of(path: Path) -> Path:
    """Return the path of the index of the shards that are named after a file."""
    return path.with_suffix(".index.json")


def _shard_file(path: Path, number: int) -> Path:
    return path.with_suffix(f".{number:05}{path.suffix}")
