"""The way back into a run: from its last whole state, or to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from jumok.config import named_settings
from jumok.device import describe_machine, differences
from jumok.errors import RunError
from jumok.messages import tr
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.training.checkpoint import LOGS, cut_logs, restore_checkpoint
from jumok.training.loop import Loop
from jumok.training.parallel import ProcessGroup
from jumok.training.policy import slow_precision
from jumok.training.run import TrainingRun
from jumok.training.run_record import (
    RunRecord,
    of_this_launch,
    refuse_other_settings,
    refuse_other_texts,
)
from jumok.training.start import reopen


def resume(
    out: Path,
    text: Text | Table | None,
    settings: Mapping[str, Any],
    size: str | None,
    val_text: Text | Table | None,
    device: torch.device,
    began: float,
    report: Callable[[str], None],
    group: ProcessGroup,
) -> tuple[TrainingRun, tuple[Path, ...]]:
    """Open the run in a folder where it goes on. The arguments are those of `Trainer.resume`.

    Returns:
        The run, and the files of the training state that it has taken over.
    """
    folder = RunFolder.open(out)
    with ExitStack() as held:
        held.enter_context(folder.lock())  # before anything is read that another process may be about to change
        folder.finish_swap()
        record, machine = RunRecord.of(folder), {**describe_machine(device), "processes": group.size}
        by_name = {name: value for name, value in settings.items() if value is not None}
        given = named_settings(by_name, size, type(record.shape), type(record.config.task))
        refuse_other_settings(record, given)
        refuse_other_texts(record, text, val_text)
        config = of_this_launch(record.config, by_name)
        run = reopen(record, config, device, began, report, group)
        run.history.numbers = {"planned_tokens": record.planned_tokens}
        saved, run.history.notices = folder.checkpoints.newest()
        goes_back = _place(run, record, saved)
        if run.history.result is None:
            if changed := run.begin_task(by_name):
                _change(run, record.data, changed)
            run.history.notices += slow_precision(config, device)
        moved = differences(record.machine, machine)
        if moved and run.history.result is None:
            run.history.notices.append(
                tr(
                    "The machine or the versions are not those that this run began with ({differences}). The run "
                    "continues, but the last bits of its parameters may differ from those of a run on the first "
                    "machine.",
                    differences="; ".join(moved),
                )
            )
        run.lock = held.pop_all()
    return run, saved.files if saved is not None and goes_back else ()


def _change(run: TrainingRun, data: dict[str, Any], changed: Mapping[str, Any]) -> None:
    """Record that a run is judged by something else from now on; what it had found best was so by what was before.

    The state comes first: without it the change is found once more.
    """
    step = run.history.numbers.get("step", 0)
    run.history.numbers |= {"best": None, "best_metrics": {}, "lowest": None, "worse": 0, "validated": -1}
    run.history.notices.append(run.task.changed)
    Loop(run).checkpoint.save()
    before = {"until_step": step, **{name: data.get(name) for name in changed}}
    data |= {**changed, "before": [*data.get("before", ()), before]}
    run.folder.write_config({**run.folder.read_config(), "data": data, "metrics": {}})


def _place(run: TrainingRun, record: RunRecord, saved: Checkpoint | None) -> bool:
    """Put a run where it goes on, and return True if that is in a saved state."""
    ended, folder = record.finished, run.folder
    at_end = saved is None or saved.step < (ended or {}).get("step", 0) or folder.has_parameters_of(saved)
    if ended is not None and at_end and not _unreadable(run):
        _go_to_end(run, ended, record.content["metrics"], saved)
        return False
    _go_back(run, record, saved)
    return True


# --- to the last state ------------------------------------------------------------------------------------------------


def _go_back(run: TrainingRun, record: RunRecord, saved: Checkpoint | None) -> None:
    """Go to a saved state; without one, to the beginning."""
    folder = run.folder
    if saved is None and (run.history.notices or record.data.get("init")):
        raise _without_state(run)
    if record.finished is not None:  # and its end is damaged
        folder.write_config({key: value for key, value in record.content.items() if key != "finished"})
    if saved is None:
        for name in LOGS:
            folder.truncate(name, 0)
        run.put_metrics({})
        return
    lost = _lost_parameters(run, saved)
    restore_checkpoint(run, saved)
    cut_logs(run, saved.numbers.get("logs", {}))
    if saved.numbers["best"] is None or lost:  # what metrics there are belong to parameters that are gone
        run.put_metrics({})
    if lost:
        # So that the next validation writes them, also at the end.
        run.history.numbers |= {"best": None, "validated": -1}
        run.history.notices.append(
            tr("{lost} The best parameters are chosen anew from step {step} on.", lost=lost, step=saved.step)
        )


def _lost_parameters(run: TrainingRun, saved: Checkpoint) -> str:
    """Put the best parameters back that belong to a state; what is wrong with them if that cannot be, or ""."""
    if saved.best is not None and not run.folder.has_parameters_of(saved):
        run.put_metrics(saved.numbers["best_metrics"])  # first, or a kill in between would leave them wrong
        if not run.folder.put_back_parameters(saved):
            path = run.folder.path / "model.safetensors"
            return tr("{path} is damaged, and so is its copy in the training state.", path=path)
    expected = saved.numbers["best"] is not None if run.task.has_validation else saved.numbers["validated"] > 0
    return _unreadable(run) if expected else ""


def _unreadable(run: TrainingRun) -> str:
    """Return what is wrong with the best parameters that should be there, or ""."""
    try:
        with run.whole():
            run.folder.read_parameters(run.model)
    except RunError as error:
        return str(error)
    return ""


# --- to the end of a finished run -------------------------------------------------------------------------------------


def _go_to_end(
    run: TrainingRun, ended: Mapping[str, Any], metrics: Mapping[str, float], saved: Checkpoint | None
) -> None:
    """Go to the best parameters of a finished run, in eval mode, and to its result."""
    run.read_best()
    run.model.eval()
    step, best_step = ended["step"], metrics.get("step", ended["step"])
    run.history.numbers = {"step": step, "best_step": best_step}
    if saved is not None:
        run.history.numbers |= {name: saved.numbers[name] for name in ("lowest_step", "validation_read", "seconds")}
        run.history.began = time.monotonic()
    try:
        run.history.result = run.finish(
            ended["reason"],
            {name: metrics[name] for name in metrics if name != "step"},
            step=step,
            seconds=run.history.numbers.get("seconds", time.monotonic() - run.history.began),
            read=run.history.numbers.get("validation_read", 0),
        )
    except KeyError as error:  # a figure of the task
        path = run.folder.path / "config.json"
        raise RunError("{path} is damaged: metrics lacks {missing}.", path=path, missing=error) from None


def _without_state(run: TrainingRun) -> RunError:
    """Return the error for a run that has no whole training state any more, with what was found of them."""
    return RunError(
        "{path} has no whole training state left to continue. {damaged} Start a new run in another folder; "
        "{--init {path}} begins it with the best parameters of this one.",
        path=run.folder.path,
        damaged=" ".join(run.history.notices),
    )
