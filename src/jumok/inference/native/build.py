"""Compile step.cpp with the compiler of this machine, and load the result.

The library is kept in jumok's cache folder, under a name that holds the source, the options, the compiler and the
processor. It is machine code, so it is loaded only from a folder that nobody else can write to, and only if its content
is what was written there.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from jumok.errors import JumokError
from jumok.files import (
    atomic_path,
    cache_folder,
    locked,
    private_folder,
    require_private,
    sha256_of,
    write_atomic,
)
from jumok.messages import tr

SOURCE = Path(__file__).with_name("step.cpp")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=fast", "-fvisibility=hidden", "-Wno-psabi")
PROCESSOR = (("-march=native",), ("-mcpu=native",), ())  # not all compilers know all of them; the first that works
COMPILERS = ("c++", "g++", "clang++")
SUFFIX = ".dll" if os.name == "nt" else ".so"
LONGEST = 300  # seconds for the compiler
AGAIN = 60.0  # seconds after which a build that failed is tried again: a full disk or too little memory can pass


class _Outcome(NamedTuple):
    """The library, or a sentence that says why there is none, and when that may have changed (`time.monotonic`)."""

    library: ctypes.CDLL | None
    reason: str | None
    until: float = math.inf


_outcomes: dict[Path, _Outcome] = {}
_lock = threading.Lock()


def library(build: bool = True) -> ctypes.CDLL | None:
    """Return the compiled step, or None; `why_not` says why.

    Args:
        build: compile it if it is not there, which takes about ten seconds. Otherwise only one that is there is loaded.
    """
    return _outcome(build).library


def why_not() -> str | None:
    """Return why `library()` has no result, as a sentence; None if it has one, or could be built."""
    return _outcome(build=False).reason


def _outcome(build: bool) -> _Outcome:
    if os.environ.get("JUMOK_NATIVE") == "0":
        return _Outcome(None, tr("JUMOK_NATIVE=0 is set; generation uses PyTorch."))
    compiler = _compiler()
    if compiler is None:
        names = ", ".join(COMPILERS)
        return _Outcome(None, tr("no C++ compiler was found ({names}); generation uses PyTorch.", names=names))
    try:
        path = cache_folder() / "native" / f"step-{_key(compiler)}{SUFFIX}"
    except OSError as error:
        return _failed(error)
    if not _is_known(path) and _lock.acquire(blocking=build):  # another thread may build it just now
        try:
            if not _is_known(path):
                found = _existing(path) or (_built(compiler, path) if build else None)
                if found is not None:
                    _outcomes[path] = _Outcome(found, None)
        except (OSError, JumokError) as error:
            _outcomes[path] = _failed(error)
        finally:
            _lock.release()
    return _outcomes[path] if _is_known(path) else _Outcome(None, None)


def _is_known(path: Path) -> bool:
    return path in _outcomes and time.monotonic() < _outcomes[path].until


def _failed(error: Exception) -> _Outcome:
    reason = tr("the C++ step cannot be built ({reason}); generation uses PyTorch.", reason=error)
    return _Outcome(None, reason, time.monotonic() + AGAIN)


def _compiler() -> Path | None:
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return Path(found)
    return None


def _key(compiler: Path) -> str:
    """Names a library that can be used here. A compiler is known by its file, so that it need not be started."""
    file = compiler.stat()
    parts = (SOURCE.read_bytes(), FLAGS, PROCESSOR, compiler.resolve(), file.st_size, file.st_mtime_ns, _processor())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _processor() -> tuple[str, ...]:
    """Return what is known of the processor: home folders are shared, and other processors lack some instructions."""
    names = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return (sys.platform, platform.machine(), *sorted({line for line in lines if line.startswith(names)}))


def _existing(path: Path) -> ctypes.CDLL | None:
    """Return the library at `path` if it is complete and ours."""
    digest = path.with_suffix(".sha256")
    if not path.is_file() or not digest.is_file():
        return None
    require_private(path.parent)
    if digest.read_text(encoding="utf-8") != sha256_of(path):
        return None
    return ctypes.CDLL(str(path))


def _built(compiler: Path, path: Path) -> ctypes.CDLL:
    private_folder(path.parent)
    with locked(path.with_suffix(".lock"), wait=True):
        found = _existing(path)  # another process was faster
        if found is None:
            with atomic_path(path) as temporary:
                _compile(compiler, temporary)
                digest = sha256_of(temporary)
            write_atomic(path.with_suffix(".sha256"), digest)
            found = _existing(path)
    if found is None:
        raise JumokError("{compiler} made a file that cannot be used", compiler=compiler)
    return found


def _compile(compiler: Path, target: Path) -> None:
    complaint = ""
    for processor in PROCESSOR:
        command = [str(compiler), *FLAGS, *processor, str(SOURCE), "-o", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST)
        except subprocess.TimeoutExpired as error:
            raise JumokError("{compiler} took too long", compiler=compiler) from error
        if done.returncode == 0:
            return
        complaint = complaint or next(iter(done.stderr.strip().splitlines()), str(done.returncode))
    raise JumokError("{compiler}: {complaint}", compiler=compiler, complaint=complaint)
