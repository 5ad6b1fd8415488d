"""torch.compile in training: the blocks and the loss are compiled for the passes of training, and for nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from jumok.files import cache_folder, private_folder
from jumok.messages import tr
from jumok.nn.blocks import Block
from jumok.training.state import TrainingRun


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
        try:
            keep_code_private()
            for block in blocks:
                block.compile(dynamic=False, options={"fallback_random": True})
            self._run.task.compile()
            one_pass()
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

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Passes inside the block use what was compiled."""
        for block, call in self._calls.items():
            block._compiled_call_impl = call
        try:
            with torch.compiler.set_stance("force_eager" if self._failed else "default"):
                yield
        finally:
            for block in self._calls:
                block._compiled_call_impl = None


def keep_code_private() -> None:
    """Let torch keep what it compiles in the cache folder of jumok, unless TORCHINDUCTOR_CACHE_DIR names another one.

    The default of torch is torchinductor_USER in the folder for temporary files. Any user of the machine can create
    that folder first, and torch runs the libraries and unpickles the graphs that it finds there.

    Raises:
        JumokError, OSError: there is no folder that nobody else can write to.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"  # torch itself sets it to its default
    chosen = os.environ.get(name)
    if chosen is None or Path(chosen).parent == Path(tempfile.gettempdir()):
        os.environ[name] = str(private_folder(cache_folder() / "torchinductor"))
