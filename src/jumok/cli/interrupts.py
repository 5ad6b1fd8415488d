"""Ctrl-C, SIGTERM and SIGHUP during a training: finish the step, save, and end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Protocol

from jumok.messages import tr

INTERRUPTED = 130  # the exit code


def hangup() -> list[signal.Signals]:
    """Return SIGHUP, sent when the terminal is closed; [] on Windows, and under nohup, which ignores it."""
    number = getattr(signal, "SIGHUP", None)
    return [] if number is None or signal.getsignal(number) == signal.SIG_IGN else [number]


class Stoppable(Protocol):
    """A training that can be asked to end early."""

    def request_stop(self) -> None:
        """Finish the step, save, and end. Called from a signal handler."""


@contextmanager
def stopping(training: Stoppable, say: Callable[[str], None], notice: str | None = None) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the training after its step; a second Ctrl-C ends it at once.

    torchrun passes the first Ctrl-C on to its processes, and sends SIGTERM after the second one.

    Args:
        notice: what is said at the first Ctrl-C; by default that the training is saved.
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

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, *hangup())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            saying.join()
