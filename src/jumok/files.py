"""Files that are whole or not there, written beside their place, flushed and moved into it; and locks on files."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Where jumok keeps what it could fetch again: JUMOK_CACHE, or else the platform's place for such."""
    chosen = os.environ.get("JUMOK_CACHE")
    return Path(chosen) if chosen else user_cache_path("jumok")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to write to; it takes the place of `path` when the block ends well.

    Whatever goes wrong, a kill included, `path` keeps its old content; only a kill leaves the temporary file behind
    (its name begins with a dot and ends in .tmp).
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a whole file at once, or leave the old one as it was. Text is UTF-8 with "\\n" newlines."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


class LockHeld(Exception):
    """Somebody else holds a lock that was not to be waited for."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock at `path` inside the block; the system takes it back even from a process that is killed.

    It keeps out whoever asks for the same lock, in other processes and in this one, and nobody else. What is at `path`
    is an empty file, which may outlive the lock and then means nothing.

    wait: until it is free, looking some twenty times a second.

    Raises:
        LockHeld: somebody else holds it, and `wait` is false.
        OSError: the file cannot be made.
    """
    from filelock import FileLock, Timeout  # takes longer to load than the rest of this package without torch

    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise LockHeld(path) from None
    except NotImplementedError as error:  # a file system without locks
        raise OSError(errno.ENOLCK, f"{error}", os.fspath(path)) from None
    try:
        yield
    finally:
        lock.release()


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut, where the system can (not on Windows)."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
