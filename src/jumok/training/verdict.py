"""The verdict on a run at its end: what its figures mean, and the command to type next."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jumok.config import TrainConfig
from jumok.messages import message, shell, tr
from jumok.runs.events import Verdict
from jumok.training.alarms import FEWEST_STEPS
from jumok.training.run import TrainingRun
from jumok.training.tasks import Task
from jumok.training.tasks.task import Baseline

FEW = 5  # steps, of which the place of the best validation says nothing
EARLY = 0.5  # a best validation before this share of the steps lies far before the end
RECENT = 0.1  # share of the steps whose mean training loss is compared
LOWER = 3  # times lower rates are suggested after a divergence, as after losses that are not finite

USES = {
    "lm": message("Generate text:"),
    "mlm": message("Fill in masked tokens:"),
    "classify": message("Classify texts:"),
    "seq2seq": message("Generate an answer:"),
}


class TrainingLosses:
    """The training losses of a stage, NaN where one was not finite. A resumed run reads the earlier ones."""

    def __init__(self, run: TrainingRun, step: int) -> None:
        self.values = array("d")
        if step > run.first_step:
            for event in run.folder.logs.metrics():
                if event["event"] == "step" and event["step"] > run.first_step:
                    self.add(event["loss"])

    def add(self, loss: float | None) -> None:
        """Add the loss of the next step; None is how metrics.jsonl writes one that was not finite."""
        self.values.append(loss if loss is not None and math.isfinite(loss) else math.nan)


def pronounce(
    run: TrainingRun,
    figures: Mapping[str, float],
    reason: str,
    losses: TrainingLosses,
    *,
    step: int,
    best_step: int,
    lowest_step: int,
) -> Verdict:
    """Judge a run that has ended.

    Args:
        figures: the last ones, of the kept parameters; {} if there are none. reason: of the end, as in `Finish`.
        losses: of the training steps. step: the last one. best_step, lowest_step: see `Validation`.
    """
    first = run.first_step
    lowest = best_step if run.config.keep == "best" else lowest_step
    kind = judge(
        figures,
        run.task.baselines,
        reason,
        steps=step - first,
        lowest=max(0, lowest - first),
        losses=losses.values,
        validates=run.task.has_validation,
    )
    numbers: dict[str, float] = {"steps": step - first}
    if figures:
        numbers |= {"kept_step": best_step, "best_step": lowest}
        compared = _behind(figures, run.task.baselines) or run.task.baselines[:1]
        for baseline in compared[:1]:
            numbers |= {"found": figures[baseline.figure], "baseline": baseline.value}
    return Verdict(
        step=step,
        kind=kind,
        numbers=numbers,
        text=_text(kind, run, step, numbers, compared[0] if figures and compared else None),
        command=_command(kind, run, numbers),
    )


def judge(
    figures: Mapping[str, float],
    baselines: Sequence[Baseline],
    reason: str,
    *,
    steps: int,
    lowest: int,
    losses: Sequence[float],
    validates: bool = True,
) -> str:
    """Return the kind of a verdict; docs/training.md lists them.

    Args:
        figures, reason, losses: see `pronounce`. baselines: of the task. steps: of the stage. lowest: the one with the
            best validation, counted from the beginning of the stage. validates: whether anything is held out.
    """
    if not figures:
        return "diverged" if validates else "unvalidated"
    if steps >= FEW and lowest < EARLY * steps:
        return "diverged" if _has_risen(losses, steps, lowest) else "overfitted"
    if _behind(figures, baselines):
        return "too_short" if steps < FEWEST_STEPS else "nothing_learned"
    return {"reached": "reached", "early stop": "stopped_early"}.get(reason, "learned")


def use_command(task: Task[Any], config: TrainConfig, folder: object) -> str:
    """Return the command that uses the model of a run, with a prompt of its own material."""
    verb = "predict" if config.task.name == "classify" else "generate"
    return shell("jumok", verb, folder, task.example() or "...")


def _behind(figures: Mapping[str, float], baselines: Sequence[Baseline]) -> list[Baseline]:
    """Return the baselines that the figures are no better than."""
    return [one for one in baselines if one.figure in figures and not one.is_beaten(figures[one.figure])]


def _has_risen(losses: Sequence[float], steps: int, lowest: int) -> bool:
    """Return True if the training loss is higher at the end than at the best validation; then nothing was memorised."""
    values, width = np.asarray(losses, dtype=float), max(1, int(RECENT * steps))
    at = max(0, len(values) - steps + lowest)
    then, now = values[max(0, at - width) : max(width, at)], values[-width:]
    if np.isnan(now).all():
        return True
    return not np.isnan(then).all() and bool(np.nanmean(now) > np.nanmean(then))


def _text(kind: str, run: TrainingRun, step: int, numbers: Mapping[str, float], compared: Baseline | None) -> str:
    steps, kept, best = (int(numbers.get(name, 0)) for name in ("steps", "kept_step", "best_step"))
    last = run.config.keep == "last"
    sentences = {
        "learned": tr("The model has learned."),
        "reached": tr("The goal was reached."),
        "stopped_early": tr("Stopped early: more steps on this text no longer helped. More text does."),
        "overfitted": tr(
            "Overfitted: the best validation was after step {best:,} of {step:,}; after it the model learned the "
            "training part by heart. More text helps.",
            best=best,
            step=step,
        ),
        "too_short": tr("Too short: {steps:,} steps are too few. Train longer, or a smaller model.", steps=steps),
        "nothing_learned": tr(
            "Nothing learned: {steps:,} steps should be enough. A learning rate is far off, or the held-out part is "
            "another kind of text.",
            steps=steps,
        ),
        "diverged": tr("Diverged: the training loss rose again, or was not finite. The learning rates are too high."),
        "unvalidated": tr("Nothing was held out, so no figure says what the model has learned."),
    }
    found = [sentences[kind]]
    if compared is not None:
        facts = {
            "found": tr(compared.words, value=numbers["found"]),
            "name": tr(compared.name),
            "baseline": f"{compared.value:.3f}",
        }
        found.append(
            tr("Held out: {found}, better than {name} ({baseline}).", **facts)
            if compared.is_beaten(numbers["found"])
            else tr("Held out: {found}, not clearly better than {name} ({baseline}).", **facts)
        )
    if kept and kind in ("overfitted", "diverged"):
        found.append(
            tr("The parameters of the last step, {step:,}, are kept: they repeat the training part.", step=kept)
            if last and kind == "overfitted"
            else tr("The parameters of step {step:,} are kept.", step=kept)
        )
    found.append(_lead(kind, run))
    return " ".join(found)


def _lead(kind: str, run: TrainingRun) -> str:
    """Return the words before the command, which say what it is for."""
    if _wants_last(kind, run):
        return tr("For a text that is to be learned by heart, keep the parameters of the last step:")
    if kind in ("too_short", "nothing_learned"):
        return tr("Train further:")
    if kind == "diverged":
        return tr("Train with lower rates:")
    use = USES[run.config.task.name]
    return tr(use)


def _wants_last(kind: str, run: TrainingRun) -> bool:
    return kind == "overfitted" and run.config.task.name == "lm" and run.config.keep == "best"


def _command(kind: str, run: TrainingRun, numbers: Mapping[str, float]) -> str:
    config, folder = run.config, run.folder.path
    further, to = ("jumok", "train", "--resume"), ("--out", folder)
    if _wants_last(kind, run):
        return shell(*further, *_length(config, 1), "--keep", "last", *to)
    if kind in ("too_short", "nothing_learned"):
        return shell(*further, *_length(config, max(2, FEWEST_STEPS / max(1, numbers["steps"]))), *to)
    if kind == "diverged":
        rates = (
            *("--learning-rate", f"{config.learning_rate / LOWER:.2g}"),
            *("--matrix-learning-rate", f"{config.matrix_learning_rate / LOWER:.2g}"),
        )
        if numbers.keys() >= {"kept_step"}:
            return shell(*further, *_length(config, 1), *rates, *to)
        return shell("jumok", "train", "TEXT", *_length(config, 1), *rates)  # its parameters are of no use
    return use_command(run.task, config, folder)


def _length(config: TrainConfig, times: float) -> tuple[str, str]:
    """Return the options for so many times the length of a run."""
    if config.steps is not None:
        return "--steps", str(math.ceil(config.steps * times))
    assert config.minutes is not None
    minutes = config.minutes * times
    return "--minutes", f"{minutes if times == 1 or minutes < 1 else math.ceil(minutes):g}"
