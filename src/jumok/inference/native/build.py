"""Load the compiled step of this processor: one that came with the package, or one that was compiled here.

A library of the package is trusted as its other files are; the checksum beside it finds damage. Without one, step.cpp
is compiled when it is first needed. That library is kept in jumok's cache folder. It is machine code, so it is loaded
only from a folder that nobody else can write to, and only if its content is what was written there.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

from jumok.errors import ConfigError, JumokError
from jumok.files import (
    atomic_path,
    cache_folder,
    locked,
    private_folder,
    require_private,
    sha256_of,
    write_atomic,
)
from jumok.inference.native.levels import (
    COMPILERS,
    FOLDER,
    LEVELS,
    PROCESSOR,
    SUFFIX,
    compile_library,
    find_compiler,
    library_name,
)
from jumok.messages import reason_and_file, tr

INSTALLED = FOLDER  # where the libraries are that setup.py compiles
AGAIN = 60.0  # seconds after which a build that failed is tried again: a full disk or too little memory can pass


class _Outcome(NamedTuple):
    """The library and its file, or a sentence that says why there is none.

    Attributes:
        until: when the sentence may no longer be true (`time.monotonic`).
    """

    library: ctypes.CDLL | None
    reason: str | None
    until: float = math.inf
    path: Path | None = None


_outcomes: dict[Path, _Outcome] = {}
_lock = threading.Lock()


def library(build: bool = True) -> ctypes.CDLL | None:
    """Return the compiled step, or None; `why_not` says why.

    Args:
        build: compile it if it is not there, which takes about ten seconds. Otherwise only one that is there is loaded.

    Raises:
        ConfigError: JUMOK_NATIVE names a level that there is not, or that this processor lacks.
    """
    return _outcome(build).library


def why_not() -> str | None:
    """Return why `library()` has no result, as a sentence; None if it has one, or could be built.

    Raises:
        ConfigError: as `library`.
    """
    return _outcome(build=False).reason


def library_path() -> Path | None:
    """Return the file of the compiled step if it is there. Its name begins with the level.

    Raises:
        ConfigError: as `library`.
    """
    return _outcome(build=False).path


def damaged_libraries() -> list[Path]:
    """Return the libraries of the package, of any level, whose content is not what was installed."""
    return [path for path in sorted(INSTALLED.glob(f"*{SUFFIX}")) if not _is_whole(path)]


def _outcome(build: bool) -> _Outcome:
    wanted = os.environ.get("JUMOK_NATIVE")
    if wanted == "0":
        return _Outcome(None, tr("JUMOK_NATIVE=0 is set; generation uses PyTorch."))
    if wanted and wanted not in LEVELS:
        _refuse(wanted, ("0", *LEVELS))
    processor = _library(PROCESSOR, build)
    if processor.library is None:
        return processor._replace(path=None)
    levels = list(LEVELS)[: processor.library.jumok_levels()]
    if wanted and wanted not in levels:
        _refuse(wanted, ("0", *levels))
    if not levels:
        oldest = next(iter(LEVELS))
        return _Outcome(None, tr("this processor is older than {level}; generation uses PyTorch.", level=oldest))
    return _library(wanted or levels[-1], build)


def _refuse(wanted: str, levels: tuple[str, ...]) -> NoReturn:
    raise ConfigError(
        "JUMOK_NATIVE={wanted!r}: on this machine it is one of {levels}; without it the best is used.",
        wanted=wanted, levels=", ".join(levels),
    )  # fmt: skip


def _library(name: str, build: bool) -> _Outcome:
    """Return the library of a level, or of PROCESSOR."""
    path = INSTALLED / library_name(name)
    installed = path.is_file()
    if not installed:
        path = cache_folder() / "native" / path.name
    if _is_known(path):
        return _outcomes[path]
    compiler = find_compiler()
    if _lock.acquire(blocking=build):  # another thread may build it just now
        try:
            if not _is_known(path):
                found = _installed(path) if installed else _existing(path)
                if found is None and build and compiler is not None:
                    found = _built(compiler, name, path)
                if found is not None:
                    _outcomes[path] = _Outcome(found, None, path=path)
        except (OSError, RuntimeError, JumokError) as error:
            reason = tr(
                "the C++ step cannot be used ({reason}); generation uses PyTorch.", reason=reason_and_file(error)
            )
            _outcomes[path] = _Outcome(None, reason, time.monotonic() + AGAIN)
        finally:
            _lock.release()
        if _is_known(path):
            return _outcomes[path]
    if compiler is None:
        names = ", ".join(COMPILERS)
        return _Outcome(None, tr("no C++ compiler was found ({names}); generation uses PyTorch.", names=names))
    return _Outcome(None, None)


def _is_known(path: Path) -> bool:
    return path in _outcomes and time.monotonic() < _outcomes[path].until


def _is_whole(path: Path) -> bool:
    digest = path.with_suffix(".sha256")
    return path.is_file() and digest.is_file() and digest.read_bytes() == sha256_of(path).encode()


def _installed(path: Path) -> ctypes.CDLL:
    if not _is_whole(path):
        raise JumokError("{path} is damaged: install jumok again", path=path)
    return ctypes.CDLL(str(path))


def _existing(path: Path) -> ctypes.CDLL | None:
    """Return the library at `path` of the cache if it is complete and ours, and of a system like this one."""
    if not path.is_file():
        return None
    require_private(path.parent)
    try:
        return ctypes.CDLL(str(path)) if _is_whole(path) else None
    except OSError:  # built beside another C library: home folders are shared
        return None


def _built(compiler: Path, name: str, path: Path) -> ctypes.CDLL:
    private_folder(path.parent)
    with locked(path.with_suffix(".lock"), wait=True):
        found = _existing(path)  # another process was faster
        if found is None:
            with atomic_path(path) as temporary:
                try:
                    compile_library(compiler, name, temporary)
                except subprocess.TimeoutExpired as error:
                    raise JumokError("{compiler} took too long", compiler=compiler) from error
                digest = sha256_of(temporary)
            write_atomic(path.with_suffix(".sha256"), digest)
            found = _existing(path)
    if found is None:
        raise JumokError("{compiler} made a file that cannot be used", compiler=compiler)
    return found
