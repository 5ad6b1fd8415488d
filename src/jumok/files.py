"""Files and folders that are written atomically: beside their place, flushed, renamed into it. File locks."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_cache_path

from jumok.messages import tr


def cache_folder() -> Path:
    """Where jumok keeps what can be downloaded again: JUMOK_CACHE, or else the cache folder of the platform."""
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
        _settle(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):  # must not hide what went wrong before
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` to put files into; it takes the place of `path` when the block ends well.

    A folder that is at `path` already is moved aside, and removed when the new one is in place. If anything goes wrong,
    it is moved back. A kill between these two renames leaves both folders beside `path`, whole, as `new` and `old` in
    a folder whose name begins with a dot and ends in .tmp; at any other moment one of them is at `path`.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent))
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        yield new
        for file in new.iterdir():
            _settle(file)
        sync_folder(new)
        if path.exists():
            path.rename(old)
        new.rename(path)
        sync_folder(path.parent)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(temporary, ignore_errors=True)


def copy_or_link(source: Path, target: Path) -> None:
    """Give a file that is never changed, only replaced, a second name; on a file system without links copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file atomically: after an error or a kill the old one is unchanged.

    Text is UTF-8 with "\\n" newlines. Half surrogates, which stand for the bytes of a file name that is not UTF-8, are
    written as JSON writes them: \\udcb0.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


class LockHeld(Exception):
    """The lock is held already, and `wait` was false."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock at `path` inside the block; the system releases it when the process ends, however it ends.

    The lock is exclusive between processes and inside this one. `path` is an empty file, which may outlive the lock and
    then means nothing.

    wait: until it is free, looking some twenty times a second.

    Raises:
        LockHeld: it is held already, and `wait` is false.
        OSError: the file cannot be made.
    """
    from filelock import FileLock, Timeout  # takes longer to load than the rest of this package without torch

    lock = FileLock(path, thread_local=False)  # another thread may be the one that ends
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


def space(path: Path, needed: int = 0) -> str:
    """What the disk of `path` has left, and what is needed, in bytes, where that is known; in words, for a message."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free / 1e6
    if not needed:
        return tr("{free:,.1f} MB free on that disk", free=free)
    return tr("{needed:,.1f} MB needed, {free:,.1f} MB free on that disk", needed=needed / 1e6, free=free)


def _settle(file: Path) -> None:
    """Flush a file to the disk, and give it the permissions of any new file; some libraries keep theirs private."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())
    file.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
