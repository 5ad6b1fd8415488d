"""Stages: a finished run is trained further, with a new schedule and fresh optimizers, from its best parameters.

Steps and batches are counted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from jumok.errors import RunError
from jumok.runs.checkpoints import Checkpoint
from jumok.training.checkpoint import LOGS, cut_logs
from jumok.training.policy import most_tokens
from jumok.training.run import TrainingRun
from jumok.training.run_record import RunRecord


def add_stage(run: TrainingRun, record: RunRecord, saved: Checkpoint | None, machine: Mapping[str, Any]) -> None:
    """Plan another stage of a finished run, by its configuration; nothing is written yet."""
    ended, metrics = record.content["finished"], record.content["metrics"]
    seconds = 0.0 if saved is None else saved.numbers["seconds"]
    per_step = run.tokens_per_step
    if run.config.steps is not None:
        run.numbers["planned_tokens"] = run.config.steps * per_step
    elif seconds:  # as fast as so far
        expected = ended["step"] * per_step / seconds * 60 * (run.config.minutes or 0)
        most = most_tokens(run.config, run.task, run.train_tokens)
        run.numbers["planned_tokens"] = max(per_step, int(min(expected, most)))
    run.stages.append(
        {
            "step": ended["step"],
            "best_step": metrics.get("step", ended["step"]),
            "ended": ended["reason"],
            "metrics": metrics,
            "seconds": seconds,
            "logs": {name: run.folder.logs.size(name) for name in LOGS},
            "train": {**run.config.to_dict(), "planned_tokens": run.numbers["planned_tokens"]},
            "machine": machine,
        }
    )


def go_to_stage(run: TrainingRun, metrics: Mapping[str, Any], saved: Checkpoint | None) -> None:
    """Go to the beginning of the newest stage, with the best parameters; no state is needed for that without adapters.

    Args:
        metrics: of these parameters, as config.json has them. saved: the newest state.

    Raises:
        RunError: the parameters or the adapters are missing or damaged.
    """
    if run.adapters is None:
        run.folder.read_parameters(run.model)
    else:
        run.adapters.restore(adapters_in(saved, run.folder.path), where=str(run.folder.path), best=True)
    stage = run.stages[-1]
    if run.config.minutes is not None:  # not from the plan, which a limit on passes may have shortened
        run.numbers["seconds_per_step"] = stage["seconds"] / max(1, stage["step"])
    run.numbers |= {
        "step": stage["step"],
        "validated": stage["step"],
        "best_step": metrics.get("step", stage["best_step"]),
        "best_metrics": dict(metrics),
        "stage_began": stage["seconds"],
        "seconds": stage["seconds"],
    }
    cut_logs(run, stage["logs"])


def adapters_in(saved: Checkpoint | None, path: Path) -> dict[str, Tensor]:
    """Return the tensors of the adapters in a training state. Raises RunError if there is no state."""
    if saved is None:
        raise RunError(
            "{path} has no whole training state left, which has its adapters; start a new run with {--init {path}}.",
            path=path,
        )
    return {name.removeprefix("model."): t for name, t in saved.tensors.items() if name.startswith("model.")}
