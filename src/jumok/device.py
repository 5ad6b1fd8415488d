"""What the machine at hand is good at: found out by measuring, not by its name."""

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
MARGIN = 1.2  # times the free memory must be wanted before it is refused
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
    """Matrix products in bfloat16 where precision is "bfloat16"; everything as it is for "float32"."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def processor_name(device: torch.device) -> str:
    """The name of the GPU, or else of the processor, as the system tells it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _name_on_macos() if platform.system() == "Darwin" else _name_on_linux()
    return name or platform.processor() or "unknown processor"


def _name_on_linux() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _name_on_macos() -> str:
    """Such as "Apple M2 Pro", where platform.processor() says "arm" of every chip; "" if there is no answer."""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        answer = subprocess.run(asked, capture_output=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.decode(errors="replace").strip()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """What computes here: versions, processor, instruction set, threads and device, as plain values."""
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
    """What computes here, and how fast: a second or two of measuring.

    Returns:
        names of the parts and their versions; cores that this process may use; GFLOP/s (10⁹ operations per second) of a
        square matrix product in float32 and in bfloat16; GB/s (10⁹ bytes per second) read in a matrix-vector product.
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
    """What two machines differ in that can change the last bits of a sum, such as "threads: 2 before, 1 now"."""
    flat = [{**machine["versions"], **machine} for machine in (before, now)]
    names = ("jumok", "torch", "numpy", "system", "processor", "instructions", "threads", "device")
    return [
        tr("{name}: {before} before, {now} now", name=name, before=flat[0].get(name), now=flat[1][name])
        for name in names
        if flat[0].get(name) != flat[1][name]
    ]


@contextmanager
def keeping_memory(device: torch.device) -> Iterator[None]:
    """On a CPU this process keeps the memory that it frees inside the block, where the C library is glibc.

    glibc gives what a tensor of more than 32 MB held back to the system at once, which then has to find and clear pages
    for the next one, although a training step wants again what the one before it freed. What that costs, and how much
    memory keeping it takes: bench/LOG.md.

    It holds for the whole process, so also for what else runs there meanwhile. When the last such block ends, memory
    that nothing uses is given back, and the C library has the limits that it comes to by itself in a process that has
    freed a large tensor. Two things cannot be restored: other limits that the process was started with or had set
    itself, for glibc does not tell them; and that glibc adapts them, which any setting ends.
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
    """Let this process keep the memory that it frees, to its end; see `keeping_memory`."""
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
    """torch's random numbers inside the block are nobody else's: afterwards they go on where they were before it."""
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
    """Seed torch's random numbers on the CPU and, where it is another, on the device; those of no other device."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.manual_seed(seed)


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes that this process may still take, or None where the system does not tell.

    Of a GPU what its driver says is free. Else what the system could free without swapping, and the swap; within the
    limit of a container. Systems that only tell how much memory there is at all are taken at their word.
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
    """What the control groups of this process may take, each with all its parents: containers are limited by them."""
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
    """Raise ConfigError if `what` cannot fit: it needs more, by a clear margin, than there is.

    Args:
        needed: bytes, rather too few than too many. free: bytes that there are; None: those that a CPU has now.
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
    """Whether there was too little memory. On CPUs torch raises a plain RuntimeError then."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def wait(device: torch.device) -> None:
    """Until the device has done all it was asked for: others than CPUs only note what they are to do."""
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
