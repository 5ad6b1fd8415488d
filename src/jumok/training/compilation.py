"""The blocks of a model in training: torch.compile, how long it takes and where its code is kept, and recomputation.

The blocks and the loss are compiled for the passes of training, and for nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok import config as configuration
from jumok.config import ModelConfig, TrainConfig
from jumok.device import cpp_compiler, processor_name
from jumok.errors import JumokError
from jumok.files import cache_folder, parse_json, private_folder, write_atomic
from jumok.messages import tr
from jumok.nn.blocks import Block
from jumok.processors import processors
from jumok.training.tasks import Task

# fallback_random: dropout draws the numbers that it draws uncompiled. vec_isa_ok: torch takes the vector instructions
# that the processor reports. Otherwise it first compiles a test of each, and loads these tests in each run.
OPTIONS = {"fallback_random": True, "cpp.vec_isa_ok": True}
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


def recompute_blocks(model: nn.Module) -> None:
    """Let the blocks of a model keep only their input and compute the rest again in the backward pass.

    This is activation checkpointing (https://arxiv.org/abs/1604.06174) with one segment for each block. Parameters,
    their names and the results stay the same.

    `forward` is replaced, not the call of the module, so hooks on a block run once: those of `fully_shard` gather the
    parameters before the backward pass of the block, which includes the second forward pass.
    """
    for block in model.modules():
        if isinstance(block, Block):
            # An attribute of the instance, which __setattr__ does not take for a parameter or a module.
            block.forward = partial(_recomputed, block.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # Dropout is the same in both passes: the random state is kept with the input.
    found: Tensor = checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return found


class Compilation:
    """The compiled blocks of a model. Between two passes, and after the run, the model is a plain one.

    Generating with compiled blocks would compile them for each length of a prompt.
    """

    def __init__(self, model: nn.Module, task: Task[Any]) -> None:
        self._model, self._task = model, task
        self._calls: dict[Block, Any] = {}
        self._failed = False

    def start(self, one_pass: Callable[[], object]) -> str:
        """Compile, and try it with one pass. Returns a message for the user if that failed; "" if not.

        Training goes on without compiling then.
        """
        blocks = [part for part in self._model.modules() if isinstance(part, Block)]
        try:
            keep_code_private()
            self._compile(blocks, one_pass, set())
            self._calls = {block: block._compiled_call_impl for block in blocks}
            return ""
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler's own errors have no common base
            self._failed = True
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            return tr("Compiling failed, so training goes on without ({reason}).", reason=reason)
        finally:
            for block in blocks:
                block._compiled_call_impl = None

    def _compile(self, blocks: list[Block], one_pass: Callable[[], object], removed: set[Path]) -> None:
        """Compile. Damaged libraries in the cache of torch are removed, each once."""
        try:
            for block in blocks:
                block.compile(dynamic=False, options=OPTIONS)
            self._task.compile()
            one_pass()
        except Exception as error:
            damaged = _damaged_library(error)
            if damaged is None or damaged in removed:
                raise
            damaged.unlink(missing_ok=True)
            self._compile(blocks, one_pass, removed | {damaged})

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Passes inside the block use what was compiled."""
        for block, call in self._calls.items():
            block._compiled_call_impl = call
        try:
            # Only after a failure, because this call imports the compiler.
            with torch.compiler.set_stance("force_eager") if self._failed else nullcontext():
                yield
        finally:
            for block in self._calls:
                block._compiled_call_impl = None


def _damaged_library(error: BaseException | None) -> Path | None:
    """Return the library in the cache of torch that could not be loaded; None if the error is another one.

    Ctrl-C reaches the linker, too, and leaves an empty file. torch finds it again in each later run.
    """
    while error is not None:
        if isinstance(error, ImportError) and error.path:
            path = Path(error.path)
            return path if path.is_relative_to(os.environ["TORCHINDUCTOR_CACHE_DIR"]) else None
        error = error.__cause__ or error.__context__
    return None


# --- the code, and the time that it takes -----------------------------------------------------------------------------


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
