"""The processes other than rank 0: they open the run that rank 0 has made, and take the same steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from jumok.config import to_dict
from jumok.device import keeping_memory, own_random
from jumok.errors import JumokError, RunError, SharedFault
from jumok.messages import tr
from jumok.runs.checkpoints import stored_tensors
from jumok.runs.config import training_of
from jumok.runs.folder import RunFolder
from jumok.training.compilation import Compilation
from jumok.training.distributed import Command, Order, World
from jumok.training.memory import memory_errors
from jumok.training.run_record import RunRecord
from jumok.training.saving import restore_together, tensors_of, write_part
from jumok.training.start import new_run
from jumok.training.state import TrainingRun
from jumok.training.steps import Steps


def lead(run: TrainingRun) -> None:
    """Let the other ranks open a run that rank 0 has made or resumed, with the same parameters and moments.

    Raises:
        SharedFault: one of them cannot open it.
    """
    world, restoring = run.world, run.restoring
    if world.size == 1:
        if run.config.shard:
            run.notices.append(tr("{--shard} has no effect: this is one process, which has all parameters."))
        return
    content = {
        "folder": str(run.folder.path.resolve()),
        "config": to_dict(run.config),  # config.json does not have that of a new stage yet
        "sha256": run.folder.read_config()["data"]["sha256"],
        "state": [] if restoring is None else [str(file.resolve()) for file in restoring.files],
    }
    with world.command(Order(command=Command.OPEN, content=content)):
        world.agree()
        _begin(run)


def follow(world: World, device: torch.device) -> int:
    """Do what rank 0 says until it ends.

    Returns:
        The exit code: 0, or 1 after a failure that rank 0 reports.

    Raises:
        JumokError: this process fails, or it loses the connection to another one.
    """
    run: TrainingRun | None = None
    with keeping_memory(device):
        while True:
            order = world.receive()
            match order.command:
                case Command.SEE:
                    world.see(Path(order.content["path"]))
                case Command.OPEN:
                    run, fault = _attempt(world, order.content, device)
                    world.agree(fault)
                    assert run is not None
                    _begin(run)
                    steps, compilation = Steps(run), Compilation(run)
                case Command.COMPILE:
                    assert run is not None
                    with memory_errors(run.model.config, run.config), own_random(device):
                        compilation.start(steps.try_a_pass)  # rank 0 reports a failure
                case Command.STEP:
                    assert run is not None
                    with memory_errors(run.model.config, run.config), compilation.in_use(), own_random(device):
                        steps.take(order.number, order.rate)
                case Command.GATHER:
                    assert run is not None
                    assert run.shards is not None
                    run.shards.gather()
                case Command.SAVE:
                    assert run is not None
                    with suppress(OSError):  # rank 0 reports it
                        write_part(run, tensors_of(run), Path(order.content["folder"]))
                case Command.END:
                    return order.number


def _attempt(world: World, content: Mapping[str, Any], device: torch.device) -> tuple[TrainingRun | None, str]:
    """The run, or what is wrong with it."""
    try:
        run = _opened(world, content, device)
        if content["state"]:
            run.restoring = stored_tensors([Path(file) for file in content["state"]])
        return run, ""
    except JumokError as error:
        return None, str(error)
    except (RuntimeError, OSError, ValueError, SafetensorError) as error:  # too little memory, for example
        return None, f"{type(error).__name__}: {error}"


def _opened(world: World, content: Mapping[str, Any], device: torch.device) -> TrainingRun:
    """A run as rank 0 has it, except for its parameters; its folder is only read."""
    folder, config = RunFolder.open(Path(content["folder"])), training_of(content["config"])
    record = RunRecord.of(folder)
    if record.data["sha256"] != content["sha256"]:
        raise RunError("{path} holds the run of another text than on rank 0.", path=folder.path)
    tokenizer = folder.read_tokenizer()
    task = record.task(folder, record.data, tokenizer, record.shape, config)
    with memory_errors(record.shape, config):
        return new_run(
            folder, task, record.shape, config, tokenizer, device, record.data, time.monotonic(), _silent, world
        )


def _begin(run: TrainingRun) -> None:
    """Give all ranks the same parameters and moments, or their shards: those of a saved state, or those of rank 0."""
    if run.restoring is None:
        run.world.copy([tensor.detach() for tensor in (*run.model.parameters(), *run.model.buffers())])
    if run.config.shard:
        from jumok.training.sharding import shard  # slow to import

        shard(run)
    if run.restoring is not None:
        try:
            restore_together(run, run.restoring)
        except OSError as error:
            path = run.folder.path
            raise SharedFault("cannot read the training state of {path}: {error}.", path=path, error=error) from None


def _silent(text: str) -> None:
    pass
