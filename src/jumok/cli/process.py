"""This process: how long it has been running, and what it says about threads that wait for each other."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jumok.messages import message, tr
from jumok.processors import computing_threads, waiting_threads

IMPORTED = time.monotonic()
SLEEPING = {
    "others": message(
        "Other programs keep {busy:.1f} of {processors:g} processors busy, so waiting threads sleep "
        "(OMP_WAIT_POLICY=PASSIVE). Training is faster without those programs."
    ),
    "container": message(
        "{threads} threads share the {processors:g} processors that this container may use, so waiting threads sleep "
        "(OMP_WAIT_POLICY=PASSIVE). Training may be faster with as many threads as processors: OMP_NUM_THREADS."
    ),
}


def process_seconds() -> float:
    """Return the wall-clock seconds since this process began, with the start of Python where the system reports it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # the name before may hold blanks
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5), in seconds since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - IMPORTED


def sleep_where_busy() -> str:
    """Let waiting threads sleep if other programs use the processors. Call this before torch is loaded.

    Returns:
        A notice for the user, or "". Show it once it is known that there is something to train.
    """
    waiting = waiting_threads()
    if not waiting.sleep:
        return ""
    facts = {"busy": waiting.busy, "processors": waiting.processors, "threads": computing_threads()}
    sentence = SLEEPING[waiting.reason]
    return tr(sentence, **facts)
