"""The memory of this process: how much it can still take, and the refusal of what needs more.

`require_memory` is called before memory is taken, where a size comes from the user or from a file: a model, a training
step, texts to generate, a recording, a table. What no estimate foresees ends in an error for which `is_out_of_memory`
is true; the command line turns it into a message.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.processors import control_groups

MARGIN = 1.2  # a need up to this multiple of the free memory is accepted: both are estimates
# What torch says on CPUs, on MPS and on CUDA, and of sizes beyond 64 bits, in plain RuntimeErrors; safetensors; and the
# dynamic linker and Python under a limit of the address space.
SAYINGS = re.compile(
    r"DefaultCPUAllocator|out of memory|Storage size calculation overflowed|integer multiplication overflow"
    r"|CUBLAS_STATUS_ALLOC_FAILED|[Cc]annot allocate memory|failed to map segment|can't start new thread"
)
# Of a control group of version 2 and 1: the files of its limit and of what is used, and the field of pages of files.
GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_memory(device: Any = "cpu") -> int | None:
    """Return the bytes that this process can still allocate, or None if unknown.

    For a GPU this is the free memory that the driver reports, and what PyTorch has taken and does not use. Otherwise it
    is the available memory plus the free swap space; or what is left of a limit of the container (cgroup) or of the
    process (`ulimit -v`, `ulimit -d`), if that is less. On systems that report only the total, it is the total.

    Args:
        device: a torch.device, or its name.
    """
    if str(device).startswith("cuda"):
        import torch

        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    known = [_free_of_system(), *_free_of_groups(), *_free_of_limits()]
    return min((memory for memory in known if memory is not None), default=None)


def _free_of_system() -> int | None:
    try:
        facts = _facts("/proc/meminfo")
        return 1024 * (facts["MemAvailable"] + facts["SwapFree"])
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _free_on_windows()


def _facts(path: str) -> dict[str, int]:
    """Return the numbers of a file of lines such as "MemFree:  1024 kB", by name."""
    lines = (line.replace(":", " ").split() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return {fields[0]: int(fields[1]) for fields in lines if len(fields) > 1 and fields[1].isdecimal()}


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "total_page", "free_page", "virtual", "free_virtual")),
        ("extended", ctypes.c_uint64),
    )


def _free_on_windows() -> int | None:
    if sys.platform == "win32":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return int(status.free_page)  # memory and page file
    return None


def _free_of_groups() -> Iterator[int]:
    """Yield what is left in the control groups of this process.

    Pages of files that were not used for long count as free, because the system drops them first.
    """
    for group in control_groups("memory"):
        for limit, used, droppable in GROUP_FILES:
            with suppress(OSError, ValueError, KeyError):  # "max", the other version, or not visible inside a container
                most, taken = (int((group / name).read_text(encoding="ascii")) for name in (limit, used))
                yield max(0, most - taken + _facts(str(group / "memory.stat"))[droppable])


def _free_of_limits() -> Iterator[int]:
    """Yield what is left of the limits of this process on its address space and on its data."""
    if sys.platform != "linux":
        return  # others do not report what is used, or do not enforce the limits
    import resource

    for which, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(which)
        if most != resource.RLIM_INFINITY:
            with suppress(OSError, KeyError):
                yield max(0, most - 1024 * _facts("/proc/self/status")[name])


def require_memory(
    needed: float, what: str | Callable[[], str], remedy: str | None = None, *, free: int | None = None
) -> None:
    """Raise ConfigError if `what` needs more than MARGIN times the free memory.

    Args:
        needed: bytes; a lower bound.
        what: name of what needs the memory, for the message, or a function that returns it.
        remedy: what to do, for the message; None: "choose smaller sizes".
        free: free bytes; None: `free_memory()`.
    """
    free = free_memory() if free is None else free
    if free is not None and needed > MARGIN * free:
        raise ConfigError(
            "{what} takes {needed} of memory at least, and {free} are free here; {remedy}.",
            what=what if isinstance(what, str) else what(),
            needed=bytes_of(int(needed)),
            free=bytes_of(free),
            remedy=remedy or tr("choose smaller sizes"),
        )


def bytes_of(count: int) -> str:
    """Format a number of bytes: 940 kB, 21 GB, 16 TB, 1.0e+18 TB."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB")):
        if count >= 10**power:
            amount = count / 10**power
            return f"{amount:.1e} {unit}" if amount >= 10_000 else f"{amount:,.{0 if amount >= 10 else 1}f} {unit}"
    return f"{count / 1000:,.0f} kB"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that memory ran out, of Python, NumPy, torch (any device) or the system."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if type(error).__name__ == "OutOfMemoryError":  # of torch, which is not imported for this
        return True
    speaks = isinstance(error, RuntimeError | ImportError) or type(error).__name__ == "SafetensorError"
    return isinstance(error, MemoryError) or (speaks and bool(SAYINGS.search(str(error))))


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """Leave garbage in cycles alone inside the block.

    Python looks for it again and again while imports make objects that stay: for a tenth of a second each time beside
    those of torch.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
