"""Writing a file that may not replace the work of its reader."""

from __future__ import annotations

from pathlib import Path

from jumok.errors import LessonError
from jumok.files import write_atomic


def write_new(path: Path, content: str, *, force: bool = False) -> None:
    """Write a new file, or replace an existing one if `force`.

    Raises `LessonError` if `path` exists, because it may contain someone's work, or if it cannot be written. An
    existing file is then unchanged.
    """
    if path.exists() and not force:
        raise LessonError("{path} exists already; give another name, or {--force}.", path=path)
    try:
        write_atomic(path, content)
    except FileNotFoundError:
        raise LessonError(
            "cannot write {path}: there is no folder {parent}. Make it first.", path=path, parent=path.parent
        ) from None
    except OSError as error:
        raise LessonError(
            "cannot write {path}: {reason}. Give a file in a folder of yours.", path=path, reason=error.strerror
        ) from None
