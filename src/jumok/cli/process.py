"""This process: how long it has been running, how its threads wait for each other, and whether it lacks memory."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from jumok.messages import tr

IMPORTED = time.monotonic()
# The environment variables for how OpenMP threads wait: of the standard, of GNU, of LLVM and Intel.
WAITING_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
BUSY_PROCESSORS = 8  # threads sleep if other programs keep at least one processor of this many busy
# In messages of torch, of the dynamic linker and of Python, under a limit of the memory or of the address space.
NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "annot allocate memory", "failed to map segment", "new thread")
SAMPLES, SAMPLE_SECONDS = 5, 0.01


def process_seconds() -> float:
    """Wall-clock seconds since this process began, with the start of Python where the system reports it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # the name before may hold blanks
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5), in seconds since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - IMPORTED


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
    """How many threads of the machine, other than this one, run or wait for a processor; 0 if it is not reported.

    The smallest of several samples.
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


def lacks_memory(error: Exception) -> bool:
    """Return whether an error means that this process cannot get more memory. torch is not loaded."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


def too_little_memory(error: Exception) -> str:
    """The message about an error of `lacks_memory`."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return tr(
        "there is too little memory ({reason}). Close other programs, raise the limit (ulimit -v, or that of the "
        "container), or take a smaller model or a shorter text.",
        reason=reason,
    )
