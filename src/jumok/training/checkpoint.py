"""Training states: when one is saved, what is in it, and the way back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jumok.messages import tr
from jumok.runs.checkpoints import Checkpoint, stored_tensors
from jumok.runs.events import Save
from jumok.runs.parameters import parameters_of, restore_parameters
from jumok.training.clock import Clock
from jumok.training.run import Stateful, TrainingRun

if TYPE_CHECKING:
    from jumok.runs.stored import StoredTensors

SAVE_AT_MOST = 20  # times as long as a save takes lies between two of them, unless save_every is 0
LOGS = ("metrics.jsonl", "samples.txt")


class Saving:
    """Saves the state of a run every `save_every` seconds. parts: whose states it collects."""

    def __init__(self, run: TrainingRun, clock: Clock, parts: Sequence[Stateful]) -> None:
        self._run, self._clock, self._parts = run, clock, parts
        self._saved_at = time.monotonic()

    def start(self) -> None:
        """Count the time to the next save from now on."""
        self._saved_at = time.monotonic()

    @property
    def due(self) -> bool:
        """Return True if it is time for the next save."""
        every = self._run.config.save_every
        pause = every and max(every, SAVE_AT_MOST * self._clock.save_seconds)
        return time.monotonic() - self._saved_at >= pause

    def save(self) -> Save:
        """Write the state to the run folder."""
        began = time.perf_counter()
        write_checkpoint(self._run, {name: value for part in self._parts for name, value in part.state_dict().items()})
        self._clock.save_seconds = time.perf_counter() - began
        self._saved_at = time.monotonic()
        return Save(step=self._clock.step, seconds=self._clock.save_seconds)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_checkpoint(run: TrainingRun, numbers: Mapping[str, Any]) -> None:
    """Add a training state to the run folder: parameters, moments of the optimizers, and the numbers of the parts.

    Rank 0 writes it. Shards are written by all processes, which call this at the same time.
    """
    if run.shards is None and run.group.rank:
        return
    tensors = tensors_of(run)
    if run.group.rank:
        with suppress(OSError):  # rank 0 reports it
            write_part(run, tensors, run.group.broadcast())
        return
    logs = {name: run.folder.logs.size(name) for name in LOGS}
    others = {name: value for name, value in numbers.items() if name != "step"}
    state = Checkpoint(step=numbers["step"], tensors=tensors, numbers={**others, "logs": logs})

    def write_parts(folder: Path) -> Mapping[str, str]:
        return write_part(run, tensors, run.group.broadcast(folder.resolve()))

    run.folder.write_checkpoint(state, None if run.shards is None else write_parts)


def write_part(run: TrainingRun, tensors: dict[str, Tensor], folder: Path) -> Mapping[str, str]:
    """Write the part of this process of a state; the others do the same. Returns the SHA-256 of each file, on rank 0.

    Raises:
        OSError: some process cannot write; the text names its rank.
    """
    from jumok.runs import stored  # slow to import

    return run.group.together(lambda: stored.write_part(tensors, folder))


def tensors_of(run: TrainingRun) -> dict[str, Tensor]:
    """Return what is trained, and the moments of the optimizers, by their names in a state."""
    trained = parameters_of(run.trained) if run.adapters is None else run.adapters.tensors
    tensors = {f"model.{name}": tensor for name, tensor in trained.items()}
    for number, optimizer in enumerate(run.optimizers):
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{index}.{key}": moment for key, moment in moments.items()}
    return tensors


# --- reading ----------------------------------------------------------------------------------------------------------


def restore_checkpoint(run: TrainingRun, saved: Checkpoint) -> None:
    """Go back to a saved state: the reverse of `write_checkpoint`. The logs are left as they are.

    Shards are read by `restore_together`, once all processes have opened the run.

    Raises:
        RunError: the parameters do not fit the model.
    """
    if run.config.shard and run.group.size > 1:
        run.history.restoring = stored_tensors(saved.files)
    else:
        restore_tensors(run, saved.tensors)
    run.history.numbers |= {**saved.numbers, "step": saved.step}


def restore_tensors(run: TrainingRun, tensors: Mapping[str, Tensor]) -> None:
    """Take over the parameters, or the adapters, and the moments of a saved state.

    Raises:
        RunError: the parameters do not fit the model.
    """
    named = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    where = f"the training state of {run.folder.path}"
    if run.adapters is None:
        restore_parameters(run.model, named, where=where)
    else:
        run.adapters.restore(named, where=where)
    _put_moments(run, tensors)


def restore_together(run: TrainingRun, stored: StoredTensors) -> None:
    """Read the tensors of a saved state; each process reads what it has of them, and all do so at the same time.

    Raises:
        OSError: some process cannot read; the text names its rank.
    """
    tensors = {f"model.{name}": tensor for name, tensor in parameters_of(run.trained).items()}
    moments = {name: _blank(run, name, stored) for name in stored if name not in tensors}
    run.group.together(lambda: stored.read_into(tensors | moments))
    _put_moments(run, moments)
    run.history.restoring = None


def _put_moments(run: TrainingRun, tensors: Mapping[str, Tensor]) -> None:
    for number, optimizer in enumerate(run.optimizers):
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, *place = name.split(".", 3)
            if kind == "optimizer" and int(place[0]) == number:
                moments.setdefault(int(place[1]), {})[place[2]] = tensor
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})


def _blank(run: TrainingRun, name: str, stored: StoredTensors) -> Tensor:
    """Make room for a moment, divided if its parameter is; a number, such as AdamW's `step`, never is."""
    _, number, index, _ = name.split(".", 3)
    parameters = [each for group in run.optimizers[int(number)].param_groups for each in group["params"]]
    shape, parameter = stored.shapes[name], parameters[int(index)]
    if shape == parameter.shape:
        return torch.zeros_like(parameter, dtype=stored.dtype(name), requires_grad=False)
    return torch.zeros(shape, dtype=stored.dtype(name))


def cut_logs(run: TrainingRun, sizes: Mapping[str, int]) -> None:
    """Cut the logs back to what they were at a step to go on from; say what they have lost."""
    damaged = {name for name, size in sizes.items() if not run.folder.truncate(name, size)}
    if run.folder.logs.has_damaged_metrics():
        damaged.add("metrics.jsonl")
    if damaged:
        run.history.notices.append(
            tr(
                "A part of {names} was lost or damaged after it was written, perhaps by a power cut. The training is "
                "not affected; the loss curve and the samples have a gap.",
                names=", ".join(sorted(damaged)),
            )
        )
