"""torch.compile in training: the blocks and the loss are compiled for the passes of training, and for nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from jumok.messages import tr
from jumok.nn.blocks import Block
from jumok.training.compiled_code import CompileTimes, keep_code_private
from jumok.training.run import TrainingRun

# fallback_random: dropout draws the numbers that it draws uncompiled. vec_isa_ok: torch takes the vector instructions
# that the processor reports. Otherwise it first compiles a test of each, and loads these tests in each run.
OPTIONS = {"fallback_random": True, "cpp.vec_isa_ok": True}


class Compilation:
    """The compiled blocks of a model. Between two passes, and after the run, the model is a plain one.

    Generating with compiled blocks would compile them for each length of a prompt.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._calls: dict[Block, Any] = {}
        self._failed = False

    def start(self, one_pass: Callable[[], object]) -> str:
        """Compile, and try it with one pass. Returns a message for the user if that failed; "" if not.

        Training goes on without compiling then.
        """
        self._run.report(tr("compiling, which can take a minute"))
        blocks = [part for part in self._run.trained.modules() if isinstance(part, Block)]
        began, run = time.perf_counter(), self._run
        try:
            keep_code_private()
            self._compile(blocks, one_pass, set())
            if run.group.rank == 0:
                CompileTimes(run.device).keep(run.model.config, run.config, time.perf_counter() - began)
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
            self._run.task.compile()
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
