"""What ends a run before its time: validations that do not improve (early stopping), a goal that is reached, and losses
that are not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jumok.errors import JumokError, TrainingError
from jumok.messages import tr
from jumok.runs.events import Event, Notice
from jumok.training.state import TrainingRun

COOLDOWN = 0.1  # length of an early stop's decay, as a share of the training of the model so far
HOPE = 0.95  # the last figure over that of a validation, as long as neither is known: few windows may be hard ones
PART = 1 / 8  # of the tokens of the last figures is read first, because most first attempts come too early
FAILURES = 3  # steps in a row without a finite loss that end a run


def is_over(run: TrainingRun) -> bool:
    """Whether the stage has taken its last step."""
    return run.state.reached or run.model_is_trained


class EarlyStopping:
    """Ends a run after `patience` validations without a better one; the rate decays to zero before."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run

    def check(self, times_as_often: int) -> Iterator[Event]:
        """Begin the decay if it is time. times_as_often: validations are, so patience counts as many more."""
        run, state = self._run, self._run.state
        patience = run.config.patience * times_as_often if run.config.keep == "best" else 0
        if patience and state.worse >= patience and state.cooldown is None and not run.model_is_trained:
            state.cooldown = (state.progress, min(1.0, state.progress * (1 + COOLDOWN)))
            text = tr("Nothing better in {count} validations: the rate now decays quickly to zero.", count=state.worse)
            yield Notice(step=state.step, text=text)


class StoppingAt:
    """Ends a run as soon as the held-out part has the figure `stop_at`.

    A validation reads little, so it decides nothing. Where it promises the goal, that is confirmed on what the last
    figures read; these then are the last figures. A confirmation that fails tells how far validations are from the
    whole: they read the same windows each time, which are harder or easier by about the same factor.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self.figures: dict[str, float] = {}  # that confirmed the goal

    def check(self, validated: Mapping[str, float]) -> Iterator[Event]:
        """Whether the goal is reached. validated: the figures of a validation of the model as it is."""
        run, state, wanted, goal = self._run, self._run.state, self._run.config.stop_at, self._run.task.goal
        if wanted is None:
            return
        short = goal.shortfall(validated)
        if short * (state.goal_ratio or HOPE) > abs(wanted - goal.best):
            return
        try:
            with run.evaluating():
                figures, whole = self._last_figures(wanted)
        except JumokError:  # the losses are not finite; the next validation says so
            return
        if short:
            state.goal_ratio = goal.shortfall(figures) / short
        if not whole:
            return
        if goal.reached(figures, wanted):
            state.reached, self.figures = True, figures
            run.keep_best(figures, last=True)
            return
        said = run.task.headline(figures)
        text = tr("step {step:,}: {figures}, not {wanted:g} yet.", step=state.step, figures=said, wanted=wanted)
        yield Notice(step=state.step, text=text)

    def _last_figures(self, wanted: float) -> tuple[dict[str, float], bool]:
        """What the last figures would be, and whether they are of all that these read.

        A loss is first taken from a part, without overlap: for the same time that reads more of a text. A part has too
        few wrong answers to tell their share.
        """
        task, tokens = self._run.task, self._run.final_tokens
        if task.goal.best == 0:
            part = task.validate(self._run.model, int(PART * tokens))
            if not task.goal.reached(part, wanted):
                return part, False
        return task.final(self._run.model, tokens), True


def steps_error(run: TrainingRun) -> TrainingError | None:
    """Return the error of a run after three steps in a row without a finite loss; None before."""
    if run.state.failures < FAILURES:
        return None
    facts = {
        "failures": FAILURES,
        "step": run.state.step,
        "path": run.folder.path,
        "rate": run.config.learning_rate / 3,
        "matrix_rate": run.config.matrix_learning_rate / 3,
    }
    if run.config.precision == "float32":
        return TrainingError(
            "the loss was not finite in {failures} steps in a row (up to step {step}); the state is saved in "
            "{path}. Start a new run with lower rates, for example {--learning-rate {rate:.2g}} "
            "{--matrix-learning-rate {matrix_rate:.2g}}.",
            **facts,
        )
    return TrainingError(
        "the loss was not finite in {failures} steps in a row (up to step {step}); the state is saved in "
        "{path}. Start a new run with lower rates, for example {--learning-rate {rate:.2g}} "
        "{--matrix-learning-rate {matrix_rate:.2g}}, or with {--precision float32}.",
        **facts,
    )
