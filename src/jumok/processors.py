"""The processors: how many there are to use, how threads wait for each other where others use them, and GPUs."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import cache
from pathlib import Path

# The environment variables for how OpenMP threads wait: of the standard, of GNU, of LLVM and Intel.
WAITING_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
BUSY_PROCESSORS = 8  # threads sleep if other programs keep at least one processor of this many busy
SAMPLES, SAMPLE_SECONDS = 5, 0.01


def processors() -> int:
    """Return how many processors this process may use, as `os.process_cpu_count` of Python 3.13 does."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def computing_threads() -> int:
    """Return how many threads compute together: as many as PyTorch uses, or would use if it were loaded.

    They are as many as OMP_NUM_THREADS says, or one for each core: two threads of one core share its arithmetic units.
    """
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)  # another thread may just be loading it
    return _default_threads() if of_torch is None else int(of_torch())


@cache
def _default_threads() -> int:
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, int(chosen)) if chosen.isdecimal() else _cores()


def _cores() -> int:
    """Return how many cores the processors have that this process may use; if unknown, as many as processors."""
    if not hasattr(os, "sched_getaffinity"):
        return processors()
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        return len({Path(siblings.format(cpu)).read_text(encoding="ascii") for cpu in os.sched_getaffinity(0)})
    except OSError:
        return processors()


def import_numpy() -> None:
    """Import NumPy without the threads of its matrix products, which take half of the time; writing does not use them.

    A number of threads in the environment is kept.
    """
    if "numpy" in sys.modules or {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # is read when the library is loaded
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]


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


def may_have_gpu() -> bool:
    """Return False if PyTorch surely finds no GPU on this machine; PyTorch, which takes seconds, is not imported."""
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"  # Apple silicon; others have no MPS
    if Path("/dev/kfd").exists():  # the driver of AMD
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")  # the driver of NVIDIA
    except OSError:
        return False
    return True
