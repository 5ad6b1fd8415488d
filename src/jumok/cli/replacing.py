"""Which files a command may replace: those that jumok wrote."""

from __future__ import annotations

import os
from pathlib import Path

from jumok.errors import ConfigError, RunError

# One of these is near the beginning or the end of each file that jumok writes for others.
MARKS = (
    b'<meta name="generator" content="jumok">',
    b"jumok.version\x08\0\0\0",  # a key of GGUF, and the type of its value
    b"# Written by jumok.",
    b"\x12\x05jumok",  # the producer of an ONNX file
)


def refuse_to_replace(path: Path) -> None:
    """Raise ConfigError if `path` is something other than a file of jumok, RunError if it cannot be read."""
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe or a device may never end
        raise ConfigError("cannot write {path}: it is not a file; give the name of one.", path=path)
    try:
        with path.open("rb") as file:
            ends = file.read(1 << 14)
            file.seek(max(0, path.stat().st_size - (1 << 14)))
            ends += file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError("cannot write {path}: {reason}; choose another place.", path=path, reason=error) from None
    if ends and not any(mark in ends for mark in MARKS):
        raise ConfigError("{path} exists and was not written by jumok; give another name, or {--force}.", path=path)
