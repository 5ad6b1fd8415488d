"""Ctrl-C and SIGTERM during a training: finish the step, save, and end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Protocol

from jumok.messages import tr

INTERRUPTED = 130  # the exit code


class Stoppable(Protocol):
    """A training that can be asked to end early."""

    def request_stop(self) -> None:
        """Finish the step, save, and end. Called from a signal handler."""


@contextmanager
def stopping(training: Stoppable, say: Callable[[str], None], notice: str | None = None) -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM stop the training after its step; a second Ctrl-C ends it at once.

    Args:
        notice: what is said at the first Ctrl-C; by default that the training is saved.
    """
    asked = False
    notice = notice or tr(
        "Finishing this step and saving ... (Ctrl-C again stops at once and loses the steps since the last save)"
    )
    # In a thread of its own: the signal may come while this one prints and holds the lock of the terminal.
    saying = Thread(target=lambda: say(notice), daemon=True)

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        asked = True
        training.request_stop()
        saying.start()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            saying.join()
