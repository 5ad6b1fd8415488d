"""The processors: how many there are to use, how threads wait for each other where others use them, and GPUs."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

# The environment variables for how OpenMP threads wait: of the standard, of GNU, of LLVM and Intel.
WAITING_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
# Threads sleep if other programs keep at least one processor of so many busy, and half a processor at least. On two
# processors, steps with sleeping threads took 1.6 times as long as with spinning ones beside programs of a lower
# priority, and 0.7 times beside a busy loop of the same one (bench/LOG.md).
BUSY_PROCESSORS, LEAST_BUSY = 8, 0.5
MINUTE = 60.0  # seconds
LOWEST_PRIORITY, SCHED_IDLE = 20, b"5"  # a policy of sched(7) below that of nice 19


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


class Waiting(NamedTuple):
    """How the OpenMP threads of this process wait for each other.

    sleep: whether they sleep at once, by `OMP_WAIT_POLICY=PASSIVE`, or spin for a while, as is the default of OpenMP.
    reason: "others" (programs use the processors), "container" (it may use fewer processors than there are threads),
    "free" (neither), "alone" (there is one thread), "environment" (a variable was set), "loaded" (torch was, too
    early), "unknown" (there is no /proc). busy: processors that other programs use; processors: how many there are to
    share.
    """

    sleep: bool
    reason: str
    busy: float = 0.0
    processors: float = 0.0


_waiting: Waiting | None = None


def waiting_threads() -> Waiting:
    """Decide once how waiting threads wait, before torch is loaded, and set OMP_WAIT_POLICY=PASSIVE if they sleep.

    Waiting threads that spin are faster if each has a processor of its own. Otherwise they take the processor from the
    thread that they wait for. OpenMP reads the variable when torch is loaded. A choice in the environment is kept.
    """
    global _waiting
    if _waiting is None:
        _waiting = _choose(Path("/"))
        if _waiting.sleep:
            os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return _waiting


def _choose(root: Path) -> Waiting:
    """Choose how threads wait. root: of the file system whose `proc` and `sys` are read."""
    if WAITING_POLICIES & os.environ.keys():
        return Waiting(False, "environment")
    if "torch" in sys.modules:
        return Waiting(False, "loaded")
    if computing_threads() < 2:
        return Waiting(False, "alone")
    limit, busy = processor_limit(root), busy_processors(root)
    available = min(limit, os.cpu_count() or 1)
    if limit < computing_threads():
        return Waiting(True, "container", busy or 0.0, available)
    if busy is None:
        return Waiting(False, "unknown")
    sleep = busy >= max(LEAST_BUSY, available / BUSY_PROCESSORS)
    return Waiting(sleep, "others" if sleep else "free", busy, available)


def busy_processors(root: Path) -> float | None:
    """Return how many processors other programs have used in the last minute, and use now; None if not reported.

    Programs of a lower priority than this process do not count: the scheduler hardly lets them disturb it. A program
    counts as one processor if it runs now, and otherwise as the part of its life in which it has used one. Neither is
    the last minute, so the load average of that minute, less what programs of a lower priority have of it, is the most:
    no moment of work counts, and no program that has ended.

    Args:
        root: of the file system whose `proc` is read.
    """
    proc, own = root / "proc", str(os.getpid())
    try:
        load = float((proc / "loadavg").read_text(encoding="ascii").split()[0])
        uptime = float((proc / "uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    equal = lower = 0.0
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or folder.name == own or (stat := _read_stat(folder)) is None:
            continue
        lifetime = max(MINUTE, uptime - stat.began)
        used = max(float(stat.is_running), min(stat.seconds / lifetime, stat.threads))
        if stat.nice > niceness:
            lower += used
        else:
            equal += used
    return min(equal, max(0.0, load - lower))


class _Stat(NamedTuple):
    """A program in /proc. began: seconds after the start of the system. seconds: that it has used of a processor."""

    is_running: bool
    seconds: float
    nice: int
    threads: int
    began: float


def _read_stat(folder: Path) -> _Stat | None:
    """Read the state of a program by proc_pid_stat(5); None if it has ended."""
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()  # the name before may hold blanks
        ticks = os.sysconf("SC_CLK_TCK")
        return _Stat(
            is_running=fields[0] == b"R",
            seconds=(int(fields[11]) + int(fields[12])) / ticks,
            nice=LOWEST_PRIORITY if fields[38] == SCHED_IDLE else int(fields[16]),
            threads=int(fields[17]),
            began=int(fields[19]) / ticks,
        )
    except (OSError, AttributeError, ValueError, IndexError):
        return None


def processor_limit(root: Path) -> float:
    """Return how many processors the control groups of this process may use, as of a container; infinity: all.

    Args:
        root: of the file system whose `proc` and `sys` are read.
    """
    return min(map(_limit_of, control_groups("cpu", root)), default=math.inf)


def _limit_of(group: Path) -> float:
    """Return the limit of a control group, by version 2 or 1."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        return math.inf if int(quota) < 0 else int(quota) / int(period)
    return math.inf


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of the control groups that limit this process, of version 2 or 1; containers use them.

    Inside a container the path of a group may be that of the host. Then the highest folder holds the limits.

    Args:
        controller: "cpu" or "memory". root: of the file system whose `proc` and `sys` are named.
    """
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            group = Path(path.lstrip("/"))
            yield from (root / "sys" / "fs" / "cgroup" / controllers / part for part in (group, *group.parents))


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
