"""The device of a computation: choice, precision, kept memory, random numbers, and a description of the machine."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from jumok.config import require_choice
from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.processors import processors
from jumok.version import __version__

DEVICES = ("auto", "cpu", "cuda", "mps")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # parameters of mallopt(3)


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called `name`; for "auto", the fastest available one.

    Raises:
        ConfigError: the name is unknown, or the device is not available.
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
    """Return a context that computes matrix products in bfloat16 if `precision` is "bfloat16"."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


@cache
def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the device computes products in bfloat16 itself, so that they are worth trying.

    On a CPU oneDNN computes them if the processor has the instructions and ONEDNN_MAX_CPU_ISA allows them. PyTorch asks
    it, and otherwise emulates each product: that takes 20 to 300 times as long as in float32. The answer is asked for
    and not measured, so that it is the same in all processes of a run.
    """
    if device.type != "cpu":
        return True
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return torch.backends.mkldnn.is_available() and (supported is None or bool(supported()))


def processor_name(device: torch.device) -> str:
    """Return the name of the GPU, or of the processor, as the system reports it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _name_on_macos() if platform.system() == "Darwin" else _fact_on_linux("model name")
    return name or platform.processor() or "unknown processor"


def _fact_on_linux(*names: str) -> str:
    """Return what the system says of the first processor by one of these names, or ""."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def _name_on_macos() -> str:
    """Return the name of the chip, such as "Apple M2 Pro" (`platform.processor` returns only "arm"), or ""."""
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        answer = subprocess.run(asked, capture_output=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.decode(errors="replace").strip()


def has_avx512() -> bool:
    """Return whether PyTorch uses the AVX-512 instructions of this processor."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def instructions() -> str:
    """Return a name for the instructions that PyTorch may use: a file name, different for different processors."""
    features = f"{processor_name(torch.device('cpu'))} {_fact_on_linux('flags', 'Features')}"
    return f"{torch.backends.cpu.get_cpu_capability()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return versions, processor, instruction set, number of threads and device, as plain values."""
    libraries = {name: version(name) for name in ("torch", "numpy", "tokenizers")}
    return {
        "versions": {"jumok": __version__, "python": platform.python_version(), **libraries},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(device),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": device.type,  # a run may go on with another GPU of the same kind
    }


def measure_machine(device: torch.device) -> dict[str, Any]:
    """Measure the speed of the machine, for a second or two.

    Returns:
        The fields of `describe_machine`, versions among them; the number of cores that this process may use; GFLOP/s
        (10⁹ operations per second) of a square matrix product in float32 and in bfloat16, None where that is
        emulated; GB/s (10⁹ bytes per second) read in a matrix-vector product.
    """
    found = describe_machine(device)
    width = 1024 if device.type == "cpu" else 8192

    def shortest(work: Callable[[], object]) -> float:
        return min(seconds_of(work, device) for _ in range(9))  # the first one warms up

    def gflops(dtype: torch.dtype) -> float:
        a, b = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))  # (N, N) each
        return 2 * width**3 / shortest(lambda: a @ b) / 1e9

    matrix, vector = torch.ones(8192, 8192, device=device), torch.ones(8192, device=device)  # (N, N), (N,)
    return {
        **found.pop("versions"),
        **found,
        "cores": processors(),
        "float32_gflops": gflops(torch.float32),
        "bfloat16_gflops": gflops(torch.bfloat16) if multiplies_bfloat16(device) else None,
        "memory_gb_per_second": matrix.nbytes / shortest(lambda: matrix @ vector) / 1e9,
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of two machines that can change rounding errors, such as "threads: 2 before, 1 now".

    Args:
        before, now: results of `describe_machine`.
    """
    flat = [{**machine["versions"], **machine} for machine in (before, now)]
    names = ("jumok", "torch", "numpy", "system", "processor", "instructions", "threads", "device")
    return [
        tr("{name}: {before} before, {now} now", name=name, before=flat[0].get(name), now=flat[1][name])
        for name in names
        if flat[0].get(name) != flat[1][name]
    ]


@contextmanager
def keeping_memory(device: torch.device) -> Iterator[None]:
    """Keep freed memory in the process inside the block, instead of returning it to the system (CPU and glibc only).

    glibc returns the memory of a tensor of more than 32 MB as soon as it is freed, although each training step needs it
    again. The setting holds for the whole process. At the end of the block unused memory is returned, and the limits
    become those that glibc reaches by itself after a large tensor was freed; limits that were set before, and the
    adaptation of the limits, are not restored. bench/LOG.md has the time and the memory.
    """
    if device.type == "cpu":
        keep_memory()
    try:
        yield
    finally:
        if device.type == "cpu":
            _give_memory_back()


def keep_memory() -> None:
    """Keep freed memory in the process until it ends; see `keeping_memory`."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):  # not in musl
        libc.mallopt(M_MMAP_MAX, 0)  # allocate everything on the heap
        libc.mallopt(M_TRIM_THRESHOLD, -1)  # never shrink the heap


def _give_memory_back() -> None:
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.mallopt(M_MMAP_MAX, 65_536)  # the default
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the highest value that glibc adapts it to; the next is twice that
        libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
        libc.malloc_trim(0)


@contextmanager
def own_random(device: torch.device) -> Iterator[None]:
    """Restore torch's random state on the CPU and on `device` when the block ends."""
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
    """Seed torch's random numbers on the CPU and on `device`; other devices are not seeded."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.manual_seed(seed)


def wait(device: torch.device) -> None:
    """Wait until the device has finished its work; operations on devices other than CPUs are asynchronous."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return how long one call takes, until the device has finished."""
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def has_compiler(device: torch.device) -> bool:
    """Return whether torch.compile can run: it needs a C++ compiler on CPUs and Triton on CUDA."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return device.type == "cpu" and cpp_compiler() is not None


def cpp_compiler() -> str | None:
    """Return the path of the C++ compiler that torch.compile uses, or None."""
    names = (os.environ.get("CXX"), "g++", "clang++", "cl")
    return next((found for name in names if name and (found := shutil.which(name))), None)
