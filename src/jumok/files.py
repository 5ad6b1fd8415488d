"""Atomic writes of files and folders, and file locks.

A file is written under a temporary name in the same folder, flushed to the disk, and renamed to its final name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from jumok.errors import ConfigError, JumokError, RunError
from jumok.memory import bytes_of
from jumok.messages import tr


def on_disk(path: str | os.PathLike[str]) -> Path:
    """Return a path as the disk spells it: macOS separates the letters of a syllable in names (NFD).

    Whatever a person names passes through here. Each part that is there as it is stays so; otherwise it becomes the
    entry whose name differs only in its normal form, if there is one.
    """
    path = Path(path)
    if str(path).isascii() or os.path.lexists(path):
        return path
    actual = Path(path.anchor)
    for part in path.parts[bool(path.anchor) :]:
        if not part.isascii() and not os.path.lexists(actual / part):
            composed = unicodedata.normalize("NFC", part)
            with suppress(OSError, ValueError):  # there is no such folder, or it cannot be listed
                alike = (name for name in os.listdir(actual) if unicodedata.normalize("NFC", name) == composed)
                part = min(alike, default=part)
        actual /= part
    return actual


def cache_folder() -> Path:
    """Return the folder for downloads: $JUMOK_CACHE, or the cache folder of the platform."""
    if chosen := os.environ.get("JUMOK_CACHE"):
        return on_disk(chosen)
    from platformdirs import user_cache_path  # slow to import, as others below

    return user_cache_path("jumok")


def private_folder(path: Path) -> Path:
    """Create a folder for machine code, and return it. Who can write to it can run code as this user.

    On POSIX its mode is 0700. Windows has folders of the user instead.

    Raises:
        JumokError: others own it, or may enter it. OSError: it cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    require_private(path)
    return path


def require_private(path: Path) -> None:
    """Raise JumokError for a folder that others own or may enter; see `private_folder`."""
    if os.name != "posix":
        return
    state = path.stat()
    if state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
        raise JumokError("others can write to {folder}; its mode must be 0700, and you must be its owner", folder=path)


def require_writable(path: str | os.PathLike[str], example: str = "page.html") -> Path:
    """Return the path, if a file can be written to it.

    Args:
        example: a name of such a file, for the message.

    Raises:
        ConfigError: it is a folder, or its folder is not there.
    """
    path = on_disk(path)
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        raise ConfigError(
            "cannot write {path}: it is a folder. Name a file in it: {file}.", path=path, file=path / example
        )
    if not os.path.isdir(path.parent):
        raise ConfigError(
            "cannot write {path}: there is no folder {parent}. Make it first.", path=path, parent=path.parent
        )
    return path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary file in the folder of `path`; it replaces `path` when the block ends without an error.

    After an error or a kill, `path` has its old content, or all of the new one if flushing the folder has failed. The
    temporary file is removed, except after a kill. Its name begins with a dot and ends in .tmp.
    """
    import tempfile

    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        _settle(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:  # a full disk names no file, and a folder that refuses the temporary one
        if error.errno is not None and (temporary is None or error.filename is None):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # must not replace an error from the block
            if temporary is not None:
                temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder in the parent of `path`; it replaces `path` when the block ends without an error.

    An existing folder at `path` is moved aside before the new one is renamed, and removed afterwards. After an error it
    is moved back. A kill between the two renames leaves nothing at `path`; both folders are then complete, as `new` and
    `old` in a folder whose name begins with a dot and ends in .tmp.
    """
    import shutil
    import tempfile

    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent))
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        yield new
        for inside in new.rglob("*"):
            sync_folder(inside) if inside.is_dir() else _settle(inside)
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
    """Create a hard link `target` to `source`, or a copy where the file system has no links.

    The file must never be modified in place, only replaced.
    """
    try:
        os.link(source, target)
    except OSError:
        import shutil

        shutil.copyfile(source, target)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file atomically: after an error or a kill the old file is unchanged.

    Text is written as UTF-8 with "\\n" newlines. Lone surrogates, which represent the bytes of a file name that is not
    UTF-8, are escaped as in JSON: \\udcb0.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


PROBE_SECONDS = 0.2  # for which `is_locked`, in another process, may hold a lock by far


class LockHeld(Exception):
    """The lock is already held, and `wait` is false."""


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock at `path` inside the block. The system releases it when the process ends, also after a kill.

    The lock is exclusive between processes and between threads. `path` is an empty file; it may remain after the lock
    is released.

    Args:
        wait: wait until the lock is free; it is polled about twenty times a second.

    Raises:
        LockHeld: the lock is already held, and `wait` is false.
        OSError: the file cannot be created.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False)  # another thread may release it
    try:
        lock.acquire(timeout=-1 if wait else PROBE_SECONDS)
    except Timeout:
        raise LockHeld(path) from None
    except NotImplementedError as error:  # a file system without locks
        raise OSError(errno.ENOLCK, f"{error}", os.fspath(path)) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at `path`; nothing is created. False if it cannot be found out.

    The lock is taken for a moment, which `locked` waits for.
    """
    from filelock import FileLock, Timeout

    if not path.is_file():
        return False
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return False
    lock.release()
    return False


def parse_json(content: str | bytes) -> Any:
    """Return the value of a JSON document, as `json.loads`.

    Raises:
        ValueError: it is no JSON, has a number with thousands of digits, or nests deeper than Python recurses, for
            which `json.loads` raises RecursionError.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(tr("lists and objects are nested too deeply")) from None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that renames inside it survive a power failure. Does nothing on Windows."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, and flush their entries. An existing folder is left as it is.

    Without the flush, a power failure can lose a new folder with all that was saved and flushed in it.
    """
    new = [one for one in (path.absolute(), *path.absolute().parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in new:
        sync_folder(one.parent)


@contextmanager
def writing(path: Path, needed: int = 0, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """Turn errors of the file system inside the block into a RunError with the reason and the free space.

    Args:
        path: what is written. needed: bytes that are needed; 0 if unknown. errors: those of the file system.
    """
    try:
        yield
    except errors as error:
        room = space(path, needed)
        raise RunError("cannot write {path}: {reason} ({room}).", path=path, reason=error, room=room) from error


def space(path: Path, needed: int = 0) -> str:
    """Return the free space on the disk of `path`, as a phrase for a message.

    Args:
        needed: bytes that are needed; 0 if unknown.
    """
    import shutil

    # Path.is_dir raises for a name that is too long.
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.isdir(folder))
    free = shutil.disk_usage(there).free / 1e6
    if not needed:
        return tr("{free:,.1f} MB free on that disk", free=free)
    return tr("{needed:,.1f} MB needed, {free:,.1f} MB free on that disk", needed=needed / 1e6, free=free)


def require_space(stream: IO[bytes], needed: float) -> None:
    """Raise ConfigError if `stream` is a file on a disk with less free space than `needed` bytes, a lower bound.

    Nothing is known of pipes, and of Windows.
    """
    try:
        number = stream.fileno()
        disk = os.fstatvfs(number)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return
    except (OSError, AttributeError):
        return
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise ConfigError(
            "this takes {needed} on the disk at least, and {free} are free there; ask for less, or write to another "
            "disk.",
            needed=bytes_of(int(needed)),
            free=bytes_of(free),
        )


def _settle(file: Path) -> None:
    """Flush a file to the disk and give it the default permissions; temporary files are private to their owner."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())
    file.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
