"""Check a reader's file in a process of its own, with limits on time, memory and output.

The process protects the terminal and the reader's other work from endless loops, crashes and floods of output. It is
no protection against malicious code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from jumok.course.practice.catalogue import Exercise
from jumok.course.words import Words, words_in

SECONDS = 20.0  # for the reader's code
STARTING = 60.0  # in addition, to import torch
PRINTED = 4000  # characters of output that are kept
ENVIRONMENT = {  # of the process: one thread, and output in UTF-8 whatever the locale is
    "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8:backslashreplace",
}  # fmt: skip

SAID = words_in(Path(__file__).parent / "known_errors.toml", "process")

Status = Literal["right", "wrong", "open"]


@dataclass(frozen=True)
class Fault:
    """Something that is wrong. mistake: its name if it is a known one. line: in the reader's file."""

    words: Words
    mistake: str | None = None
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found.

    right: what is right, in order. faults: what is not, the first of each function. printed: what the code printed.
    status: "open" if a hole is left, and all else is right.
    """

    status: Status
    right: tuple[Words, ...] = ()
    faults: tuple[Fault, ...] = ()
    printed: str = ""


def check(path: Path, exercise: Exercise, *, seconds: float = SECONDS) -> Verdict:
    """Check a file against an exercise.

    Args:
        seconds: for the reader's code; importing torch has its own allowance.
    """
    with tempfile.TemporaryDirectory(prefix="jumok-check-") as folder:
        result = Path(folder) / "result.json"
        command = [
            sys.executable, "-P", "-X", "utf8", "-m", "jumok.course.practice.child",
            str(path.resolve()), exercise.slug, str(result), str(seconds),
        ]  # fmt: skip  # -P: a file random.py in the current folder must not take the place of Python's
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
        )  # fmt: skip
        assert process.stdout is not None
        kept = _Kept(process.stdout)
        try:
            process.wait(timeout=seconds + STARTING)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            process.kill()  # no effect on a process that has ended
            process.wait()
        printed = kept.text()
        verdict = _read(result, printed)
        if verdict is not None:
            return verdict
        where = Path(f"{result}.where")
        stack = where.read_text(encoding="utf-8") if where.exists() else ""
        if stack or late:
            fault = Fault(SAID["endless"].filled(seconds=seconds), "endless", _line(stack, path))
        else:
            fault = Fault(SAID["crash"].filled(code=process.returncode), "crash")
        return Verdict(status="wrong", faults=(fault,), printed=printed)


def _read(result: Path, printed: str) -> Verdict | None:
    """Return the verdict that the process wrote; None if it did not, or not completely."""
    try:
        found = json.loads(result.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return Verdict(
        status=found["status"],
        right=tuple(Words(**words) for words in found["right"]),
        faults=tuple(Fault(Words(**one["words"]), one["mistake"], one["line"]) for one in found["faults"]),
        printed=printed,
    )


def _line(stack: str, path: Path) -> int | None:
    """The innermost line of the reader's file in a stack of faulthandler, which lists the innermost frame first."""
    name = str(path.resolve()).encode("ascii", "backslashreplace").decode()  # Hangul is \\ud55c there
    match = re.search(rf'File "{re.escape(name)}", line (\d+)', stack)
    return int(match[1]) if match else None


class _Kept(threading.Thread):
    """Reads a stream to its end, keeps the first characters, and closes it."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream, self._kept = stream, bytearray()
        self.start()

    def run(self) -> None:
        """Read until the stream ends. A process that the reader's code started may hold it open for longer."""
        with self._stream:
            while block := os.read(self._stream.fileno(), 65536):
                if len(self._kept) < 4 * PRINTED:
                    self._kept += block

    def text(self) -> str:
        """Return what was kept; waits a little for the end of the stream."""
        self.join(timeout=5)
        return self._kept.decode("utf-8", "replace")[:PRINTED].strip()
