"""How all processes of a launch come to train one run: rank 0 has made or resumed it, and the others open it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from jumok.config import TrainConfig
from jumok.errors import JumokError, RunError, SharedFault
from jumok.messages import tr
from jumok.runs.checkpoints import stored_tensors
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.training.checkpoint import restore_tensors, restore_together
from jumok.training.memory import memory_errors
from jumok.training.optim import make_optimizers
from jumok.training.parallel import ProcessGroup, Shards, replicate
from jumok.training.run import TrainingRun
from jumok.training.run_record import RunRecord
from jumok.training.start import new_run


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run as rank 0 has opened it. files: of the training state that it has read. sha256: of its text."""

    folder: Path
    config: TrainConfig  # config.json does not have that of a new stage yet
    sha256: str
    numbers: dict[str, Any]
    files: tuple[Path, ...]
    result: Finish | None


def share(run: TrainingRun, files: tuple[Path, ...]) -> None:
    """Let the other processes open a run that rank 0 has made or resumed, and begin it with them.

    Args:
        files: of the training state that it goes on from; none: the others have its parameters from rank 0.

    Raises:
        SharedFault: one of them cannot open it.
    """
    group = run.group
    if group.size == 1 and run.config.shard:
        run.notices.append(tr("{--shard} has no effect: this is one process, which has all parameters."))
    if group.size > 1:
        group.broadcast(
            Opened(
                folder=run.folder.path.resolve(),
                config=run.config,
                sha256=run.folder.read_config()["data"]["sha256"],
                numbers=run.numbers,
                files=tuple(file.resolve() for file in files),
                result=run.result,
            )
        )
        group.raise_if_any_failed()
    _begin(run)


def join(group: ProcessGroup, device: torch.device) -> TrainingRun:
    """Open the run that rank 0 makes or resumes, in another process. Its folder is only read.

    Raises:
        SharedFault: a process cannot open it. ProcessLost: another one has failed.
    """
    group.check_shared_file()
    opened: Opened = group.broadcast()
    run, fault = None, ""
    try:
        run = _open(opened, group, device)
    except JumokError as error:
        fault = str(error)
    except (RuntimeError, OSError, ValueError, SafetensorError) as error:  # too little memory, for example
        fault = f"{type(error).__name__}: {error}"
    group.raise_if_any_failed(fault)
    assert run is not None
    _begin(run)
    return run


def _open(opened: Opened, group: ProcessGroup, device: torch.device) -> TrainingRun:
    folder, config = RunFolder.open(opened.folder), opened.config
    record = RunRecord.of(folder)
    if record.data["sha256"] != opened.sha256:
        raise RunError("{path} holds the run of another text than on rank 0.", path=folder.path)
    tokenizer = folder.read_tokenizer()
    task = record.task(folder, record.data, tokenizer, record.shape, config)
    with memory_errors(record.shape, config):
        run = new_run(
            folder, task, record.shape, config, tokenizer, device, record.data, time.monotonic(), _silent, group
        )
    run.numbers, run.result = opened.numbers, opened.result
    if opened.files and run.result is None:
        stored = stored_tensors(opened.files)
        if config.shard:
            run.restoring = stored
        else:
            restore_tensors(run, stored)
    return run


def _begin(run: TrainingRun) -> None:
    """Give all processes the same parameters and moments, or their shards: those of a saved state, or of rank 0."""
    group = run.group
    if run.result is not None or group.size == 1:
        return
    if not run.config.shard:
        with group.connected():
            run.objective = replicate(run.objective)
        return
    run.shards = Shards(run.task, run.model, group, run.config.precision, run.device)
    run.objective = run.shards.objective
    run.optimizers = make_optimizers(run.shards.model, run.config, group.orthogonalise)
    if run.restoring is not None:
        try:
            restore_together(run, run.restoring)
        except OSError as error:
            path = run.folder.path
            raise SharedFault("cannot read the training state of {path}: {error}.", path=path, error=error) from None


def _silent(text: str) -> None:
    pass
