"""Compile step.cpp: one library for each level of processors, from one source.

One library with all levels would not do: the linker keeps one copy of an inline function, which may be that of a level
that the processor lacks. processor.cpp is one more library, which says what levels it has.

setup.py runs this file where jumok is not installed, so it imports nothing of jumok.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PROCESSOR = "processor"
X86 = platform.machine().lower() in ("x86_64", "amd64") and sys.maxsize > 2**32
# Options of the compiler by name, from the oldest processors to the newest, as processor.cpp counts them.
LEVELS: dict[str, tuple[str, ...]] = (
    {
        "x86-64-v2": ("-march=x86-64-v2",),
        # Tuned for Zen, GCC splits some fused products; so the bits do not depend on what it is tuned for by default.
        "x86-64-v3": ("-march=x86-64-v3", "-mtune=haswell"),
        "x86-64-v4": ("-march=x86-64-v4",),
    }
    if X86
    else {"baseline": ()}
)
# numpy needs a libstdc++, too, but it may be older than the one of the compiler. Not every system has the static one.
STATIC = "-static-libstdc++"
SYSTEM = {
    # MinGW does not align vectors on the stack (bug 54412 of GCC), and its libraries are not on other machines.
    "win32": ("-static", "-s", "-Wa,-muse-unaligned-vector-move"),
    "darwin": ("-fPIC", "-pthread", "-arch", platform.machine(), "-Wl,-dead_strip", "-Wl,-x"),
}.get(sys.platform, ("-fPIC", "-pthread", "-s", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", STATIC))
FLAGS = ("-O3", "-std=c++17", "-shared", "-ffp-contract=fast", "-fvisibility=hidden", "-Wno-psabi", *SYSTEM)
COMPILERS = ("c++", "g++", "clang++")
SUFFIX = ".dll" if sys.platform == "win32" else ".so"
LONGEST = 300  # seconds for the compiler


def library_name(name: str) -> str:
    """Return the file name of the library of a level, or of PROCESSOR.

    It holds a hash of what the library is made of, so that none is used beside a source that has changed.
    """
    parts = (_source(name).read_bytes(), FLAGS, LEVELS.get(name), platform.system(), platform.machine())
    return f"{name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}{SUFFIX}"


def find_compiler() -> Path | None:
    """Return the C++ compiler: $CXX, or the first that is on the path."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        if name and (found := shutil.which(name)):
            return Path(found)
    return None


def compile_library(compiler: Path, name: str, target: Path) -> None:
    """Compile the library of a level, or of PROCESSOR, to the file `target`. It takes about ten seconds.

    Raises:
        RuntimeError: the compiler refuses, with its first line. OSError: it cannot be run.
        subprocess.TimeoutExpired: it took longer than LONGEST.
    """
    options = LEVELS.get(name, ())
    flags = tuple(flag for flag in FLAGS if not (flag.startswith("-Wa") and "clang" in compiler.name))
    for tried in dict.fromkeys((flags, tuple(flag for flag in flags if flag != STATIC))):
        command = [str(compiler), *options, *tried, str(_source(name)), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST)
        if done.returncode == 0:
            return
    complaint = next(iter(done.stderr.strip().splitlines()), str(done.returncode))
    raise RuntimeError(f"{compiler}: {complaint}")


def _source(name: str) -> Path:
    return FOLDER / ("processor.cpp" if name == PROCESSOR else "step.cpp")
