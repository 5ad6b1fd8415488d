"""A disk below the file functions of Python: it fails at the n-th operation, or loses what was not flushed.

`watched` passes every write, flush, rename and removal of a block through a `Disk`, which can fail. `Recorder` is one
that remembers after each operation what a power cut would leave. safetensors writes below Python; its function is
replaced by one that writes the same bytes through Python.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from jumok.files import write_atomic
from jumok.interop.huggingface import folder as export
from jumok.training.subscribers import pictures

CHANGING = ("replace", "rename", "unlink", "rmdir", "mkdir", "link", "truncate", "chmod", "fsync")
TAKING_ROOM = {"write", "flush", "open", "mkdir", "link", "fsync"}


class Disk:
    """Counts file operations and makes the n-th one fail; n=None: none.

    A full disk stays full for all operations that need space; an input/output error and Ctrl-C occur once.
    """

    def __init__(self, n: int | None, fault: str) -> None:
        self.n, self.fault, self.count = n, fault, 0

    def passes(self, operation: str) -> bool:
        """Return whether to do this operation; raises its error, and does not return from a kill."""
        self.count += 1
        if self.n is None or self.count - 1 < self.n:
            return True
        if self.fault == "full":
            if operation in TAKING_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return True
        if self.count - 1 == self.n:
            match self.fault:
                case "error":
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                case "interrupt":
                    raise KeyboardInterrupt
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        return True


class WatchedFile:
    """A file that is open for writing; a write that fails writes its first half."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> int:
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()  # so that it is written when the process is killed
        self._disk.passes("write")
        self._file.write(content[half:])
        return len(content)

    def flush(self) -> None:
        self._disk.passes("flush")
        self._file.flush()

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def watched(n: int | None = None, fault: str = "error", disk: Disk | None = None) -> Iterator[Disk]:
    """Pass all file operations of Python inside the block through a `Disk`; pictures are replaced by small files."""
    disk = disk or Disk(n, fault)
    opened = io.open

    def open_watched(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+"):
            return opened(file, mode, *arguments, **options)
        disk.passes("open")
        return WatchedFile(opened(file, mode, *arguments, **options), disk)

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            disk.passes(name)
            return function(*arguments, **options)

        return call

    def save_watched(tensors: dict[str, torch.Tensor], path: Path, **options: Any) -> None:
        saved(tensors, path, **options)
        content = path.read_bytes()
        with opened(path, "wb") as file:
            WatchedFile(file, disk).write(content)

    saved = safetensors.torch.save_file
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, guarded(name, getattr(os, name)))
        patch.setattr(tempfile, "mkstemp", guarded("open", tempfile.mkstemp))
        patch.setattr(io, "open", open_watched)
        patch.setattr(builtins, "open", open_watched)
        for module in (safetensors.torch, export):
            patch.setattr(module, "save_file", save_watched)
        patch.setattr(
            pictures, "draw_loss", lambda events, path, label: write_atomic(path, f"{sum(1 for _ in events)}")
        )
        patch.setattr(pictures, "DRAW_EVERY", 0.0)
        yield disk


# --- power cuts -------------------------------------------------------------------------------------------------------

Entries = dict[str, int]  # of a folder: what each name is
ROOT = 1  # the folder that is recorded


@dataclass
class Moment:
    """What is on a disk, and what of it was flushed: folders and files have numbers, which are never used again.

    Attributes:
        live, durable: the entries of each folder, now and when it was flushed last. contents, flushed: the bytes of
            each file, likewise. saved: the last step that was reported as saved.
    """

    live: dict[int, Entries]
    durable: dict[int, Entries]
    contents: dict[int, bytes]
    flushed: dict[int, bytes]
    saved: int = 0


@dataclass
class Recorder(Disk):
    """Remembers, before each operation, what the operations so far have left in a folder that exists."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    saved: int = 0

    def __post_init__(self) -> None:
        super().__init__(None, "")
        self._numbers: dict[int, int] = {}  # of an inode that is in use
        self._next = 0
        self._durable: dict[int, Entries] = {}
        self._flushed: dict[int, bytes] = {}
        live, contents = self._look()
        self._durable.update({number: dict(entries) for number, entries in live.items()})  # what was there before
        self._flushed.update(contents)

    def passes(self, operation: str) -> bool:
        live, contents = self._look()
        self.moments.append(Moment(live, dict(self._durable), contents, dict(self._flushed), self.saved))
        return super().passes(operation)

    def flush(self, handle: int) -> None:
        """A file or a folder is flushed; `handle` is its descriptor."""
        live, contents = self._look()
        number = self._numbers.get(os.fstat(handle).st_ino)
        if number in live:
            self._durable[number] = live[number]
        elif number in contents:
            self._flushed[number] = contents[number]

    def _look(self) -> tuple[dict[int, Entries], dict[int, bytes]]:
        live: dict[int, Entries] = {}
        contents: dict[int, bytes] = {}
        seen: dict[int, int] = {}

        def number_of(path: Path) -> int:
            inode = path.stat().st_ino
            if inode not in seen:
                if inode not in self._numbers:
                    self._next += 1
                    self._numbers[inode] = self._next
                seen[inode] = self._numbers[inode]
            return seen[inode]

        def look(place: Path) -> int:
            number = number_of(place)
            if place.is_dir():
                live[number] = {entry.name: look(entry) for entry in sorted(place.iterdir())}
            elif number not in contents:
                contents[number] = place.read_bytes()
            return number

        look(self.root)
        self._numbers = seen  # the inode of a removed file can be used again
        return live, contents


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Record the operations of a block in a folder, as `watched` sees them."""
    disk, fsync = Recorder(root), os.fsync

    def flush(handle: int) -> None:
        fsync(handle)
        disk.flush(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        with watched(disk=disk):
            yield disk


def after_power_cut(moments: list[Moment], n: int, target: Path, dice: random.Random | None) -> None:
    """Write to the folder `target` what a power cut at moment `n` leaves.

    Args:
        dice: None: everything that was not flushed is lost. Otherwise each entry of a folder is the flushed or the
            present one, in any combination, so later operations can survive earlier ones; and of a file that was not
            flushed nothing, a beginning, zeros or all of it is there.
    """
    moment = moments[n]
    bytes_of: dict[int, bytes] = {}
    for earlier in moments[: n + 1]:  # also of files that are removed now
        bytes_of.update(earlier.contents)
    folders = set().union(*(earlier.live for earlier in moments[: n + 1]))

    def content(number: int) -> bytes:
        flushed, now = moment.flushed.get(number, b""), bytes_of[number]
        if dice is None or flushed == now:
            return flushed
        pairs = zip(flushed, now, strict=False)
        least = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(flushed), len(now)))
        part = now[: dice.randint(least, len(now))]
        return dice.choice([flushed, now, part, part + bytes(len(now) - len(part))])

    def build(number: int, place: Path) -> None:
        if number not in folders:
            place.write_bytes(content(number))
            return
        place.mkdir()
        durable, now = moment.durable.get(number, {}), moment.live.get(number, {})
        for name in sorted(durable.keys() | now.keys()):
            kept = durable.get(name) if dice is None else dice.choice([durable.get(name), now.get(name)])
            if kept is not None:
                build(kept, place / name)

    build(ROOT, target)
