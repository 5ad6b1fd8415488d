"""The blocks of a model in training: torch.compile, where its code is kept, and recomputation."""

from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.device import instructions
from jumok.files import cache_folder, private_folder
from jumok.memory import collecting_nothing
from jumok.messages import reason_and_file, tr
from jumok.nn.blocks import Block
from jumok.training.tasks import Task

# fallback_random: dropout draws the numbers that it draws uncompiled. vec_isa_ok: torch takes the vector instructions
# that the processor reports. Otherwise it first compiles a test of each, and loads these tests in each run.
OPTIONS = {"fallback_random": True, "cpp.vec_isa_ok": True}


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


def compile_training(model: nn.Module, task: Task[Any], one_pass: Callable[[], object]) -> str:
    """Compile the blocks of a model and the loss of its task for the passes of training, and for nothing else.

    Elsewhere each length of a text would be compiled anew.

    Args:
        one_pass: computes a forward and a backward pass, with which the compiled code is tried.

    Returns:
        A message for the user if that failed, and training goes on without; "" if not.
    """
    try:
        keep_code_private()
        with (
            warnings.catch_warnings(),
            collecting_nothing(),
        ):  # torch warns about its own code
            warnings.simplefilter("ignore")
            _compile(model, task, one_pass, set())
        return ""
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler's own errors have no common base
        uncompile(model, task)
        return failed(error)


def failed(error: Exception) -> str:
    """Return the message of a run that could not be compiled."""
    text = reason_and_file(error).strip()
    reason = text.splitlines()[0][:200] if text else type(error).__name__
    return tr("Compiling failed, so training goes on without ({reason}).", reason=reason)


def uncompile(model: nn.Module, task: Task[Any]) -> None:
    """Make a model and its task plain ones again."""
    for block in _blocks(model):
        block._compiled_call_impl = None
    if task.token_losses is not None:
        task.token_losses = inspect.unwrap(task.token_losses)


def _blocks(model: nn.Module) -> list[Block]:
    return [part for part in model.modules() if isinstance(part, Block)]


def _compile(model: nn.Module, task: Task[Any], one_pass: Callable[[], object], removed: set[Path]) -> None:
    """Compile. Damaged libraries in the cache of torch are removed, each once."""
    uncompile(model, task)
    try:
        for block in _blocks(model):
            block.compile(dynamic=False, options=OPTIONS)
            compiled: Any = block._compiled_call_impl
            block._compiled_call_impl = partial(_call, block, compiled)
        if task.token_losses is not None:
            task.token_losses = torch.compile(task.token_losses, dynamic=False)
        one_pass()
    except Exception as error:
        damaged = _damaged_library(error)
        if damaged is None or damaged in removed:
            raise
        damaged.unlink(missing_ok=True)
        _compile(model, task, one_pass, removed | {damaged})


def _call(block: Block, compiled: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Call a block, compiled in training mode, which the model has in the passes of training alone."""
    found: Tensor = (compiled if block.training else block._call_impl)(*args, **kwargs)
    return found


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


def keep_code_private() -> Path:
    """Let torch keep what it compiles in the cache folder of jumok, unless TORCHINDUCTOR_CACHE_DIR names another one.

    The default of torch is torchinductor_USER in the folder for temporary files. Any user of the machine can create
    that folder first, and torch runs the libraries and unpickles the graphs that it finds there.

    Each set of instructions has a folder of its own inside. torch looks for code by its graph alone, and compiles what
    it finds for the processor at hand: code for vectors of 16 numbers, compiled for 8, computes NaN or writes beside
    its memory. Processors meet in one folder where a home is on the network, or ATEN_CPU_CAPABILITY limits one of them.

    Returns:
        The folder.

    Raises:
        JumokError, OSError: there is no folder that nobody else can write to.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"  # torch itself sets it to its default
    chosen = os.environ.get(name)
    if chosen is None or Path(chosen).parent == Path(tempfile.gettempdir()):
        folder = private_folder(cache_folder() / "torchinductor")
    else:
        folder = Path(chosen)
    if folder.name != (own := instructions()):
        folder = folder / own
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.environ[name] = str(folder)
    return folder
