"""Explanations of the errors that readers' code raises most often, and the line where an error was raised."""

from __future__ import annotations

import traceback
from pathlib import Path

from jumok.course.words import Words, read_toml, words_in

TEXTS = Path(__file__).parent / "known_errors.toml"


def explained(error: BaseException) -> tuple[Words, str | None]:
    """Return what an error of the reader's code means, and the name of the mistake if it is a known one."""
    text = f"{type(error).__name__}: {error}".strip()
    for known in read_toml(TEXTS)["error"]:
        if any(part in text for part in known["message"]):
            return Words(f"{known['ko']}\n{text}", f"{known['en']}\n{text}"), known["mistake"]
    said = words_in(TEXTS, "other")
    if isinstance(error, MemoryError):
        return said["memory"], "memory"
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or '').name}:{error.lineno}"
        return said["syntax"].filled(where=where, message=error.msg), "syntax"
    if isinstance(error, SystemExit):
        return said["exit"], "exit"
    return said["error"].filled(text=text), None


def line_of(error: BaseException | None, path: Path) -> int | None:
    """Return the innermost line of the reader's file in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
