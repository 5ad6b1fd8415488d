"""Where compiled code is kept, and how long compiling will take: as long as the last time, or an estimate."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch

from jumok import config as configuration
from jumok.config import ModelConfig, TrainConfig
from jumok.device import cpp_compiler, processor_name
from jumok.errors import JumokError
from jumok.files import cache_folder, parse_json, private_folder, write_atomic
from jumok.processors import processors

UNKNOWN = 30.0  # seconds, where nothing is known and nothing can be tried: on GPUs, and with the compiler of Microsoft
# Compiling a step for the first time is as much work as so many compilations of SMALL_FILE: 13 to 18.5 s on two
# processors against 0.12 s on one (bench/LOG.md). The longest counts, so that it never takes more of a run than it may.
# The compiler of C++ does most of it, on all processors.
SMALL_FILES = 310
SMALL_FILE = """
#include <algorithm>
#include <vector>
float largest(std::vector<float> of) { std::sort(of.begin(), of.end()); return of.empty() ? 0.0f : of.back(); }
"""
CACHED_SHARE = 0.2  # of the first time, if the code is in the cache: 0.08 to 0.17 were measured (bench/LOG.md)
TRIED = 10.0  # seconds for SMALL_FILE, at most
# Settings that the code of a pass depends on, besides the shape of the model.
CODE_SETTINGS = (
    "task", "batch_size", "precision", "attention", "recompute", "lora", "lm_weight", "label_smoothing",
    "class_weights", "shard",
)  # fmt: skip


def keep_code_private() -> Path:
    """Let torch keep what it compiles in the cache folder of jumok, unless TORCHINDUCTOR_CACHE_DIR names another one.

    The default of torch is torchinductor_USER in the folder for temporary files. Any user of the machine can create
    that folder first, and torch runs the libraries and unpickles the graphs that it finds there.

    Returns:
        The folder.

    Raises:
        JumokError, OSError: there is no folder that nobody else can write to.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"  # torch itself sets it to its default
    chosen = os.environ.get(name)
    if chosen is None or Path(chosen).parent == Path(tempfile.gettempdir()):
        os.environ[name] = str(private_folder(cache_folder() / "torchinductor"))
    return Path(os.environ[name])


class CompileTimes:
    """Seconds that compiling has taken on this machine, in a file beside the code, with which it is removed.

    Args:
        device: that the code is for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        machine = (processor_name(device), torch.backends.cpu.get_cpu_capability(), processors(), torch.__version__)
        self._machine = _hash(machine)

    def expected(self, shape: ModelConfig, config: TrainConfig) -> float:
        """Return how many seconds compiling a run will take, about."""
        known = self._read()
        found = known.get(self._code(shape, config), known.get("first"))
        return self._estimated() if found is None else found

    def keep(self, shape: ModelConfig, config: TrainConfig, seconds: float) -> None:
        """Remember how long compiling a run has taken."""
        known, code = self._read(), self._code(shape, config)
        # The code is in the cache from now on. Of several starts with it the shortest counts: others were disturbed.
        new = {code: min(known[code], seconds)} if code in known else {"first": seconds, code: CACHED_SHARE * seconds}
        try:
            write_atomic(self._file(), json.dumps({**known, **new}))
        except (OSError, JumokError):  # then the next run estimates
            return

    def _read(self) -> dict[str, float]:
        try:
            found = parse_json(self._file().read_bytes())
            return {name: value for name, value in found.items() if isinstance(value, float) and 0 < value < math.inf}
        except (OSError, ValueError, AttributeError, JumokError):  # absent, or damaged
            return {}

    def _file(self) -> Path:
        return keep_code_private() / f"seconds-{self._machine}.json"

    def _code(self, shape: ModelConfig, config: TrainConfig) -> str:
        """Name what torch compiles for a run."""
        settings = {name: value for name, value in config.to_dict().items() if name in CODE_SETTINGS}
        return _hash((configuration.to_dict(shape), settings, str(self._device), torch.get_num_threads()))

    def _estimated(self) -> float:
        """Estimate the time of the first compilation on this machine, as busy as it is, by a small file."""
        compiler = cpp_compiler()
        if self._device.type != "cpu" or compiler is None:
            return UNKNOWN
        with tempfile.TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
            source = Path(folder) / "small.cpp"
            source.write_text(SMALL_FILE, encoding="utf-8")
            began = time.perf_counter()
            try:
                command = [compiler, "-O3", "-c", str(source), "-o", str(source.with_suffix(".o"))]
                with suppress(subprocess.TimeoutExpired):  # the machine is as busy as that
                    subprocess.run(command, capture_output=True, timeout=TRIED, check=True)
            except (OSError, subprocess.CalledProcessError):  # the compiler of Microsoft has other options
                return UNKNOWN
            return SMALL_FILES * (time.perf_counter() - began) / min(processors(), torch.get_num_threads())


def _hash(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]
