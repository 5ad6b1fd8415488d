"""Ctrl-C, SIGTERM, SIGHUP and a stop file during a training: finish the step, save, and end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from jumok.messages import tr

INTERRUPTED = 130  # the exit code
LOOK_SECONDS = 1.0  # between two looks for a stop file


def hangup() -> list[signal.Signals]:
    """Return SIGHUP, sent when the terminal is closed; [] on Windows, and under nohup, which ignores it."""
    number = getattr(signal, "SIGHUP", None)
    return [] if number is None or signal.getsignal(number) == signal.SIG_IGN else [number]


class Stoppable(Protocol):
    """A training that can be asked to end early."""

    def request_stop(self) -> None:
        """Finish the step, save, and end. Called from a signal handler."""


@contextmanager
def stopping(
    training: Stoppable, say: Callable[[str], None], notice: str | None = None, *, stop_file: Path | None = None
) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the training after its step; a second Ctrl-C ends it at once.

    torchrun passes the first Ctrl-C on to its processes, and sends SIGTERM after the second one.

    Args:
        notice: what is said at the first Ctrl-C; by default that the training is saved.
        stop_file: a file with which another process, such as `jumok serve`, stops the training. It is removed.
    """
    asked = 0  # the first signal
    notice = notice or tr(
        "Finishing this step and saving ... (Ctrl-C again stops at once and loses the steps since the last save)"
    )
    # In a thread of its own: the signal may come while this one prints and holds the lock of the terminal.
    saying = Thread(target=lambda: say(notice), daemon=True)

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            if signal.SIGINT in (number, asked):
                raise KeyboardInterrupt
            return
        asked = number
        training.request_stop()
        saying.start()

    over = Event()

    def look() -> None:
        assert stop_file is not None
        while not over.wait(LOOK_SECONDS):
            if stop_file.exists():
                stop_file.unlink(missing_ok=True)
                training.request_stop()
                return

    looking = Thread(target=look, daemon=True)
    if stop_file is not None:
        looking.start()
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, *hangup())}
    try:
        yield
    finally:
        over.set()
        if stop_file is not None:
            looking.join()  # a thread that wakes while the interpreter ends aborts the process
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            saying.join()
