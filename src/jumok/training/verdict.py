"""The verdict on a run at its end: what its figures mean, and the command to type next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jumok.config import TrainConfig
from jumok.messages import message, shell, tr
from jumok.runs.events import Verdict
from jumok.training.alarms import FEWEST_STEPS
from jumok.training.run import TrainingRun
from jumok.training.run_record import further_command
from jumok.training.tasks import Task
from jumok.training.tasks.task import Baseline

FEW = 5  # steps, of which the place of the best validation says nothing
EARLY = 0.5  # a best validation before this share of the steps lies far before the end
RECENT = 0.1  # share of the steps whose mean training loss is compared
LOWER = 3  # times lower rates are suggested after a divergence, as after losses that are not finite

SENTENCES = {
    "learned": message("The model has learned."),
    "reached": message("The goal was reached."),
    "stopped_early": message("Stopped early: more steps on this text no longer helped. More text does."),
    "overfitted": message(
        "Overfitted: the best validation was after step {best:,} of {step:,}; after it the model learned the "
        "training part by heart. More text helps."
    ),
    "too_short": message("Too short: {steps:,} steps are too few. Train longer, or a smaller model."),
    "nothing_learned": message(
        "Nothing learned: {steps:,} steps should be enough. A learning rate is far off, or the held-out part is "
        "another kind of text."
    ),
    "diverged": message("Diverged: the training loss rose again, or was not finite. The learning rates are too high."),
    "unvalidated": message("Nothing was held out, so no figure says what the model has learned."),
}


def pronounce(
    run: TrainingRun,
    figures: Mapping[str, float],
    reason: str,
    *,
    step: int,
    best_step: int,
    lowest_step: int,
) -> Verdict:
    """Judge a run that has ended.

    Args:
        figures: the last ones, of the kept parameters; {} if there are none. reason: of the end, as in `Finish`.
        step: the last one. best_step, lowest_step: see `Validation`.
    """
    lowest = best_step if run.config.keep == "best" else lowest_step
    kind = judge(
        figures,
        run.task.baselines,
        reason,
        steps=step,
        lowest=lowest,
        losses=_training_losses(run),
        validates=run.task.has_validation,
        worsened=_has_worsened(run, lowest),
    )
    numbers: dict[str, float] = {"steps": step}
    sentence = SENTENCES[kind]
    found = [tr(sentence, steps=step, best=lowest, step=step)]
    if figures:
        numbers |= {"kept_step": best_step, "best_step": lowest}
        for compared in (_behind(figures, run.task.baselines) or run.task.baselines)[:1]:
            value = figures[compared.figure]
            numbers |= {"found": value, "baseline": compared.value}
            found.append(_comparison(compared, value))
        if kind == "overfitted" and run.config.keep == "last":
            kept = tr("The parameters of the last step, {step:,}, are kept: they repeat the training part.", step=step)
            found.append(kept)
        elif best_step and kind in ("overfitted", "diverged"):
            found.append(tr("The parameters of step {step:,} are kept.", step=best_step))
    lead, command = _next_command(kind, run, numbers)
    return Verdict(step=step, kind=kind, numbers=numbers, text=" ".join([*found, lead]), command=command)


def judge(
    figures: Mapping[str, float],
    baselines: Sequence[Baseline],
    reason: str,
    *,
    steps: int,
    lowest: int,
    losses: Sequence[float],
    validates: bool = True,
    worsened: bool = True,
) -> str:
    """Return the kind of a verdict; docs/training.md lists them.

    Args:
        figures, reason: see `pronounce`; "failed": losses were not finite. baselines: of the task. steps: of the run.
            lowest: the one with the best validation. losses: of the training steps, NaN where one was not finite.
            validates: whether anything is held out. worsened: whether the last validation is worse than the best one.
    """
    if not figures:
        return "diverged" if validates or reason == "failed" else "unvalidated"
    if worsened and steps >= FEW and lowest < EARLY * steps:
        return "diverged" if _has_risen(losses, steps, lowest) else "overfitted"
    if _behind(figures, baselines):
        return "too_short" if steps < FEWEST_STEPS else "nothing_learned"
    return {"reached": "reached", "early stop": "stopped_early"}.get(reason, "learned")


def use_command(task: Task[Any], folder: object) -> str:
    """Return the command that uses the model of a run, with a prompt of its own material."""
    return shell("jumok", task.verb, folder, task.example() or "...")


def _training_losses(run: TrainingRun) -> list[float]:
    """Read the losses of the steps."""
    steps = (event for event in run.folder.logs.metrics() if event["event"] == "step")
    return [math.nan if event["loss"] is None else event["loss"] for event in steps]


def _has_worsened(run: TrainingRun, lowest: int) -> bool:
    """Return True if the last validation is worse than that of step `lowest`; equal ones say that nothing changed."""
    events = (event for event in run.folder.logs.metrics() if event["event"] == "eval" and event["step"] >= lowest)
    found = [run.task.to_minimise(event["figures"]) for event in events]
    return not found or found[-1] > found[0]


def _behind(figures: Mapping[str, float], baselines: Sequence[Baseline]) -> list[Baseline]:
    """Return the baselines that the figures are no better than."""
    return [one for one in baselines if one.figure in figures and not one.is_beaten(figures[one.figure])]


def _has_risen(losses: Sequence[float], steps: int, lowest: int) -> bool:
    """Return True if the training loss is higher at the end than at the best validation, or was not finite between.

    Then nothing was memorised.
    """
    values, width = np.asarray(losses, dtype=float), max(1, int(RECENT * steps))
    at = max(0, len(values) - steps + lowest)
    then, now = values[max(0, at - width) : max(width, at)], values[-width:]
    if len(values) == 0:  # nobody has written them
        return False
    if np.isnan(values[at:]).any():
        return True
    return not np.isnan(then).all() and bool(now.mean() > np.nanmean(then))


def _comparison(baseline: Baseline, found: float) -> str:
    facts = {
        "found": tr(baseline.words, value=found),
        "name": tr(baseline.name),
        "baseline": f"{baseline.value:.3f}",
    }
    if baseline.is_beaten(found):
        return tr("Held out: {found}, better than {name} ({baseline}).", **facts)
    return tr("Held out: {found}, not clearly better than {name} ({baseline}).", **facts)


def _next_command(kind: str, run: TrainingRun, numbers: Mapping[str, float]) -> tuple[str, str]:
    """Return what to do next, in words and as a command."""
    config, folder = run.config, run.folder.path
    further = partial(further_command, folder, run.task.data, run.model.config, config)
    if kind == "overfitted" and config.task.name == "lm" and config.keep == "best":
        lead = tr("For a text that is to be learned by heart, keep the parameters of the last step:")
        return lead, further(keep="last")
    if kind in ("too_short", "nothing_learned"):
        times = max(2, FEWEST_STEPS / max(1, numbers["steps"]))
        return tr("Train further:"), further(**_length(config, times))
    if kind == "diverged":
        rates = {name: f"{value / LOWER:.2g}" for name, value in config.rates.items()}
        lead = tr("Train with lower rates:")
        if numbers.keys() >= {"kept_step"}:
            return lead, further(**rates)
        return lead, shell(
            "jumok", "train", "TEXT", *(f"--{name.replace('_', '-')}={rate}" for name, rate in rates.items())
        )  # its parameters are of no use
    return tr(run.task.use), use_command(run.task, folder)


def _length(config: TrainConfig, times: float) -> dict[str, float]:
    """Return so many times the length of a run, by the name of its setting."""
    if config.steps is not None:
        return {"steps": math.ceil(config.steps * times)}
    assert config.minutes is not None
    minutes = config.minutes * times
    return {"minutes": minutes if minutes < 1 else math.ceil(minutes)}
