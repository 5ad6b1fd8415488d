"""Stages: a finished run is trained further, with a new schedule and fresh optimizers, from its best parameters.

Steps and batches are counted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from jumok.errors import RunError
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.events import Event, Stage
from jumok.training.planning.plan import most_tokens
from jumok.training.run_record import RunRecord
from jumok.training.saving import LOGS, cut_logs
from jumok.training.state import TrainingRun
from jumok.training.stopping import StoppingAt
from jumok.training.validation import Validation


def add_stage(run: TrainingRun, record: RunRecord, saved: Checkpoint | None, machine: Mapping[str, Any]) -> None:
    """Plan another stage of a finished run, by its configuration; nothing is written yet."""
    ended, metrics = record.content["finished"], record.content["metrics"]
    seconds = 0.0 if saved is None else saved.numbers["seconds"]
    per_step = run.tokens_per_step
    if run.config.steps is not None:
        run.state.planned_tokens = run.config.steps * per_step
    elif seconds:  # as fast as so far
        expected = ended["step"] * per_step / seconds * 60 * (run.config.minutes or 0)
        most = most_tokens(run.config, run.task, run.train_tokens)
        run.state.planned_tokens = max(per_step, int(min(expected, most)))
    run.stages.append(
        {
            "step": ended["step"],
            "best_step": metrics.get("step", ended["step"]),
            "ended": ended["reason"],
            "metrics": metrics,
            "seconds": seconds,
            "logs": {name: run.folder.logs.size(name) for name in LOGS},
            "train": {**run.config.to_dict(), "planned_tokens": run.state.planned_tokens},
            "machine": machine,
        }
    )


def go_to_stage(run: TrainingRun, metrics: Mapping[str, Any], saved: Checkpoint | None) -> None:
    """To the beginning of the newest stage, with the best parameters; no state is needed for that without adapters.

    Args:
        metrics: of these parameters, as config.json has them. saved: the newest state.

    Raises:
        RunError: the parameters or the adapters are missing or damaged.
    """
    if run.adapters is None:
        run.folder.read_parameters(run.model)
    else:
        run.adapters.restore(adapters_in(saved, run.folder.path), where=str(run.folder.path), best=True)
    stage, state = run.stages[-1], run.state
    if run.config.minutes is not None:  # not from the plan, which a limit on passes may have shortened
        state.seconds_per_step = stage["seconds"] / max(1, stage["step"])
    state.step = state.validated = stage["step"]
    state.best_step, state.best_metrics = metrics.get("step", stage["best_step"]), dict(metrics)
    state.stage_began = stage["seconds"]
    run.began -= state.stage_began
    cut_logs(run, stage["logs"])


def adapters_in(saved: Checkpoint | None, path: Path) -> dict[str, Tensor]:
    """The tensors of the adapters in a training state. Raises RunError if there is no state."""
    if saved is None:
        raise RunError(
            "{path} has no whole training state left, which has its adapters; start a new run with {--init {path}}.",
            path=path,
        )
    return {name.removeprefix("model."): t for name, t in saved.tensors.items() if name.startswith("model.")}


def begin_stage(run: TrainingRun, validation: Validation, stopping_at: StoppingAt) -> Iterator[Event]:
    """Record the stage, and validate the parameters it begins with as it will validate its own."""
    state, config = run.state, run.config
    state.stage = len(run.stages)
    figures = validation.figures() if run.task.has_validation else {}
    recorded = run.folder.read_config()
    recorded.pop("finished", None)
    run.folder.write_config({**recorded, "stages": run.stages})
    yield Stage(
        step=state.step,
        number=state.stage + 1,
        best_step=state.best_step,
        steps=config.steps,
        minutes=config.minutes,
    )
    if figures:
        state.best = run.task.to_minimise(figures)
        if config.keep == "last":  # the parameters of the stage are compared with those that it begins with
            state.lowest, state.lowest_step = state.best, state.step
        yield validation.event(figures, best=config.keep == "best")
        yield from stopping_at.check(figures)  # or the first parameters that reach it would replace better ones
