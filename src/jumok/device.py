"""The device of a computation: which there are, how fast they are, and how much memory is free."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from jumok.config import require_choice
from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.version import __version__

DEVICES = ("auto", "cpu", "cuda", "mps")
MARGIN = 1.2  # times the free memory that may be asked for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # parameters of mallopt(3)


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`, or the fastest one there is for "auto".

    Raises:
        ConfigError: there is no such device, or not here.
    """
    kind, _, number = name.partition(":")
    require_choice("device", kind, DEVICES)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if there[kind]))
    numbers = {""} | {str(n) for n in range(torch.cuda.device_count() if kind == "cuda" else 1)}
    if not there.get(kind, False) or number not in numbers:
        found = ", ".join(kind for kind, ok in there.items() if ok)
        raise ConfigError(
            "device={name!r} is not available here; the available devices are: {found}. Leave it out "
            "to use the fastest.",
            name=name,
            found=found,
        )
    return torch.device(name)


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 where precision is "bfloat16"; no change for "float32"."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def processor_name(device: torch.device) -> str:
    """The name of the GPU, or else of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _name_on_macos() if platform.system() == "Darwin" else _name_on_linux()
    return name or platform.processor() or "unknown processor"


def _name_on_linux() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _name_on_macos() -> str:
    """Such as "Apple M2 Pro", or "". platform.processor() is "arm" for every chip."""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        answer = subprocess.run(asked, capture_output=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.decode(errors="replace").strip()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The machine as plain values: versions, processor, instruction set, threads and device."""
    libraries = {name: version(name) for name in ("torch", "numpy", "tokenizers")}
    return {
        "versions": {"jumok": __version__, "python": platform.python_version(), **libraries},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(device),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": str(device),
    }


def measure_machine(device: torch.device) -> dict[str, Any]:
    """The machine and its speed, measured for a second or two.

    Returns:
        The fields of `describe_machine`, versions among them; the number of cores that this process may use; GFLOP/s
        (10⁹ operations per second) of a square matrix product in float32 and in bfloat16; GB/s (10⁹ bytes per second)
        read in a matrix-vector product.
    """
    found = describe_machine(device)
    width = 1024 if device.type == "cpu" else 8192

    def shortest(work: Callable[[], object]) -> float:
        return min(seconds_of(work, device) for _ in range(9))  # the first one is never the shortest

    def gflops(dtype: torch.dtype) -> float:
        a, b = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))  # (N, N) each
        return 2 * width**3 / shortest(lambda: a @ b) / 1e9

    matrix, vector = torch.ones(8192, 8192, device=device), torch.ones(8192, device=device)  # (N, N), (N,)
    return {
        **found.pop("versions"),
        **found,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "float32_gflops": gflops(torch.float32),
        "bfloat16_gflops": gflops(torch.bfloat16),
        "memory_gb_per_second": matrix.nbytes / shortest(lambda: matrix @ vector) / 1e9,
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences of two machines that can change the last bits of a sum, such as "threads: 2 before, 1 now"."""
    flat = [{**machine["versions"], **machine} for machine in (before, now)]
    names = ("jumok", "torch", "numpy", "system", "processor", "instructions", "threads", "device")
    return [
        tr("{name}: {before} before, {now} now", name=name, before=flat[0].get(name), now=flat[1][name])
        for name in names
        if flat[0].get(name) != flat[1][name]
    ]


@contextmanager
def keeping_memory(device: torch.device) -> Iterator[None]:
    """On a CPU, with glibc, keep the memory that this process frees inside the block.

    By default glibc returns the memory of a tensor of more than 32 MB to the system at once. The next training step
    needs as much again, and the system has to find and clear the pages. bench/LOG.md has the cost in time and memory.

    The setting holds for the whole process, including other threads. When the last such block ends, unused memory is
    returned, and the limits become those that glibc sets itself in a process that has freed a large tensor. Two things
    cannot be restored: limits that the process had set before, because glibc does not report them; and their dynamic
    adjustment, which any setting turns off.
    """
    global _keeping
    if device.type != "cpu":
        yield
        return
    with _lock:
        _keeping += 1
        if _keeping == 1:
            keep_memory()
    try:
        yield
    finally:
        with _lock:
            _keeping -= 1
            if _keeping == 0:
                _give_memory_back()


_lock = Lock()
_keeping = 0  # blocks of `keeping_memory` that are open


def keep_memory() -> None:
    """Keep the memory that this process frees, until it ends; see `keeping_memory`."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):  # musl has none
        libc.mallopt(M_MMAP_MAX, 0)  # all from the heap
        libc.mallopt(M_TRIM_THRESHOLD, -1)  # which does not shrink by itself


def _give_memory_back() -> None:
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.mallopt(M_MMAP_MAX, 65_536)  # the default
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # as far as glibc raises it, and twice that
        libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
        libc.malloc_trim(0)


@contextmanager
def own_random(device: torch.device) -> Iterator[None]:
    """Save torch's random number generators before the block and restore them after it."""
    if device.type == "mps":
        there = torch.mps.get_rng_state()
    devices = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        if device.type == "mps":
            torch.mps.set_rng_state(there)


def seed_random(device: torch.device, seed: int) -> None:
    """Seed torch's random number generators of the CPU and of `device`, and of no other device."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.manual_seed(seed)


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes that this process may still allocate, or None if that is unknown.

    Of a GPU the free memory. Otherwise what the system can free without swapping, and the swap, within the limit of a
    container; or all memory, on systems that report no more.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = [memory for memory in (_free_of_system(), *_limits_of_groups()) if memory is not None]
    return min(known, default=None)


def _free_of_system() -> int | None:
    try:
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return sum(int(facts[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _free_on_windows()


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


def _limits_of_groups() -> Iterator[int]:
    """Limits of the control groups of this process and of their parents, by which containers are limited."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top, name = (
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes") if controllers else ("/sys/fs/cgroup", "memory.max")
        )
        place = Path(path.lstrip("/"))
        for group in (place, *place.parents):
            with suppress(OSError, ValueError):  # "max", or not visible from inside
                yield int((top / group / name).read_text(encoding="ascii"))


def require_memory(needed: int, what: str, free: int | None = None) -> None:
    """Raise ConfigError if `what` needs clearly more memory than there is.

    Args:
        needed: bytes, a lower bound. free: bytes; None: `free_memory()`.
    """
    free = free_memory() if free is None else free
    if free is not None and needed > MARGIN * free:
        raise ConfigError(
            "{what} takes {needed} of memory at least, and {free} are free here; choose smaller sizes.",
            what=what,
            needed=bytes_of(needed),
            free=bytes_of(free),
        )


def bytes_of(count: int) -> str:
    """A number of bytes for people: 940 kB, 21 GB, 16 TB, 1.0e+30 bytes."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB")):
        if count >= 10**power:
            amount = count / 10**power
            return f"{amount:.1e} {unit}" if amount >= 10_000 else f"{amount:,.{0 if amount >= 10 else 1}f} {unit}"
    return f"{count / 1000:,.0f} kB"


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error is about too little memory. On CPUs it is a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def wait(device: torch.device) -> None:
    """Wait until the device has finished. Devices other than CPUs work asynchronously."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """How long one call takes, until the device has finished."""
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile has what it needs: a C++ compiler on CPUs, Triton on CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    names = (os.environ.get("CXX"), "g++", "clang++", "cl")
    return device.type == "cpu" and any(name is not None and shutil.which(name) for name in names)
