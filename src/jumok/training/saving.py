"""Training states: when one is saved, what is in it, and the way back."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch import Tensor

from jumok.messages import tr
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.events import Save
from jumok.runs.parameters import parameters_of, restore_parameters
from jumok.training.clock import Clock
from jumok.training.state import TrainingRun, TrainingState

SAVE_AT_MOST = 20  # times as long as a save takes lies between two of them, unless save_every is 0
LOGS = ("metrics.jsonl", "samples.txt")


class Saving:
    """Saves the state of a run every `save_every` seconds."""

    def __init__(self, run: TrainingRun, clock: Clock) -> None:
        self._run, self._clock = run, clock
        self._saved_at = time.monotonic()

    def start(self) -> None:
        """Count the time to the next save from now on."""
        self._saved_at = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for the next save."""
        every = self._run.config.save_every
        pause = every and max(every, SAVE_AT_MOST * self._clock.save_seconds)
        return time.monotonic() - self._saved_at >= pause

    def save(self) -> Save:
        """Write the state to the run folder."""
        began = time.perf_counter()
        write_checkpoint(self._run)
        self._clock.save_seconds = time.perf_counter() - began
        self._saved_at = time.monotonic()
        return Save(step=self._run.state.step, seconds=self._clock.save_seconds)


def write_checkpoint(run: TrainingRun) -> None:
    """Add a training state to the run folder: parameters, moments of the optimizers, and numbers."""
    tensors = {f"model.{name}": tensor for name, tensor in parameters_of(run.model).items()}
    for number, optimizer in enumerate(run.optimizers):
        for index, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{index}.{key}": moment for key, moment in moments.items()}
    run.state.seconds = run.seconds
    run.state.logs = {name: run.folder.logs.size(name) for name in LOGS}
    run.folder.write_checkpoint(Checkpoint(step=run.state.step, tensors=tensors, numbers=run.state.to_numbers()))


def restore_checkpoint(run: TrainingRun, saved: Checkpoint) -> None:
    """Go back to a saved state: the reverse of `write_checkpoint`. The logs are left as they are.

    Raises:
        RunError: the parameters do not fit the model.
    """
    named = {name.removeprefix("model."): t for name, t in saved.tensors.items() if name.startswith("model.")}
    restore_parameters(run.model, named, where=f"the training state of {run.folder.path}")
    for number, optimizer in enumerate(run.optimizers):
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in saved.tensors.items():
            kind, *place = name.split(".", 3)
            if kind == "optimizer" and int(place[0]) == number:
                moments.setdefault(int(place[1]), {})[place[2]] = tensor
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    planned = run.state.planned_tokens
    run.state = TrainingState.from_numbers(saved.step, {"planned_tokens": planned, **saved.numbers})
    run.began -= run.state.seconds


def cut_logs(run: TrainingRun, sizes: Mapping[str, int]) -> None:
    """Cut the logs back to what they were at a step to go on from; say what they have lost."""
    damaged = {name for name, size in sizes.items() if not run.folder.truncate(name, size)}
    if run.folder.logs.has_damaged_metrics():
        damaged.add("metrics.jsonl")
    if damaged:
        run.notices.append(
            tr(
                "A part of {names} was lost or damaged after it was written, perhaps by a power cut. The training is "
                "not affected; the loss curve and the samples have a gap.",
                names=", ".join(sorted(damaged)),
            )
        )
