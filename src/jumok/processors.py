"""The processors: how many there are to use, and how threads wait for each other where others use them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# The environment variables for how OpenMP threads wait: of the standard, of GNU, of LLVM and Intel.
WAITING_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
BUSY_PROCESSORS = 8  # threads sleep if other programs keep at least one processor of this many busy
SAMPLES, SAMPLE_SECONDS = 5, 0.01


def processors() -> int:
    """Return how many processors this process may use, as `os.process_cpu_count` of Python 3.13 does."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def let_waiting_threads_sleep() -> bool:
    """Set OMP_WAIT_POLICY=PASSIVE if other programs keep the processors busy.

    Waiting threads that spin are faster if each has a processor of its own. Otherwise they take the processor from the
    thread that they wait for. OpenMP reads the variable when torch is loaded, so this must be called before. A choice
    in the environment is kept.

    Returns:
        Whether the variable was set.
    """
    chosen = WAITING_POLICIES & os.environ.keys()
    if chosen or "torch" in sys.modules or other_running_threads() * BUSY_PROCESSORS < (os.cpu_count() or 1):
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True


def other_running_threads() -> int:
    """Count the threads of the machine other than this one that run or wait for a processor; 0 if it is not reported.

    The smallest of several samples counts.
    """
    samples = []
    for _ in range(SAMPLES):
        try:
            running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
            samples.append(int(running) - 1)
        except (OSError, ValueError, IndexError):
            return 0
        time.sleep(SAMPLE_SECONDS)
    return max(0, min(samples))
