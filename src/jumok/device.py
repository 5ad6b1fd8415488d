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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from jumok import __version__
from jumok.config import require_choice
from jumok.errors import ConfigError
from jumok.messages import tr

DEVICES = ("auto", "cpu", "cuda", "mps")
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
        raise ConfigError(f"device={name!r} is not available here; there is {found}. Leave it out to use the fastest.")
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


def wait(device: torch.device) -> None:
    """Until the device has done all it was asked for: others than CPUs only note what they are to do."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds_per_call(
    work: Callable[[], object], device: torch.device, repeats: int = 2, *, warm_up: bool = True
) -> float:
    """The shortest of a few timed calls, after one that is not counted, unless the work was done before."""
    times = []
    for _ in range(repeats + warm_up):
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return min(times[warm_up:])


def has_compiler(device: torch.device) -> bool:
    """Whether torch.compile has what it needs: a C++ compiler on CPUs, Triton on CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    names = (os.environ.get("CXX"), "g++", "clang++", "cl")
    return device.type == "cpu" and any(name is not None and shutil.which(name) for name in names)
