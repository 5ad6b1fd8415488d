"""What ends a run before its time: validations that do not improve (early stopping), a goal that is reached, and losses
that are not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jumok.errors import JumokError, TrainingError
from jumok.messages import tr
from jumok.runs.events import Event, Notice, Step
from jumok.training.clock import Clock
from jumok.training.run import Stateful, TrainingRun
from jumok.training.validation import Validation

# The last figure over that of a validation, as long as neither is known: few windows may be hard ones.
FINAL_OVER_VALIDATION = 0.95
FIRST_LOOK_SHARE = 1 / 8  # of the tokens of the last figures is read first, because most first attempts come too early
FAILURES = 3  # steps in a row without a finite loss that end a run


class Stopping(Stateful):
    """Ends a run before its time.

    A run with a goal ends as soon as the held-out part has the figure `stop_at`. A validation reads little, so it
    decides nothing. Where it promises the goal, that is confirmed on what the last figures read; these then are the
    last figures. A confirmation that fails tells how far validations are from the whole: they read the same windows
    each time, which are harder or easier by about the same factor.

    Attributes:
        reached: the goal was. goal_ratio: last figures over those of a validation; None: not known.
        failures: steps in a row without a finite loss. figures: that confirmed the goal.
    """

    reached: bool = False
    goal_ratio: float | None = None
    failures: int = 0

    def __init__(self, run: TrainingRun, clock: Clock, validation: Validation) -> None:
        self._run, self._clock, self._validation = run, clock, validation
        self.figures = dict[str, float]()

    @property
    def is_over(self) -> bool:
        """Return True if the run has taken its last step."""
        return self.reached or self._clock.is_over

    def check_patience(self) -> Iterator[Event]:
        """Let the rate decay to zero after `patience` validations without a better one."""
        config, clock, worse = self._run.config, self._clock, self._validation.worse
        patience = config.patience * self._validation.times_as_often if config.keep == "best" else 0
        if patience and worse >= patience and clock.cooldown is None and not clock.is_over:
            clock.begin_cooldown()
            text = tr("Nothing better in {count} validations: the rate now decays quickly to zero.", count=worse)
            yield Notice(step=clock.step, text=text)

    def check_goal(self, validated: Mapping[str, float]) -> Iterator[Event]:
        """Find out whether the goal is reached. validated: the figures of a validation of the model as it is."""
        run, wanted, goal = self._run, self._run.config.stop_at, self._run.task.goal
        if wanted is None:
            return
        short = goal.shortfall(validated)
        if short * (self.goal_ratio or FINAL_OVER_VALIDATION) > abs(wanted - goal.best):
            return
        try:
            with run.evaluating():
                figures, whole = self._last_figures(wanted)
        except JumokError:  # the losses are not finite; the next validation says so
            return
        if short:
            self.goal_ratio = goal.shortfall(figures) / short
        if not whole:
            return
        if goal.reached(figures, wanted):
            self.reached, self.figures = True, figures
            self._validation.keep_best(figures, last=True)
            return
        step, said = self._clock.step, run.task.headline(figures)
        text = tr("step {step:,}: {figures}, not {wanted:g} yet.", step=step, figures=said, wanted=wanted)
        yield Notice(step=step, text=text)

    def _last_figures(self, wanted: float) -> tuple[dict[str, float], bool]:
        """Return what the last figures would be, and whether they are of all that these read.

        A loss is first taken from a part, without overlap: for the same time that reads more of a text. A part has too
        few wrong answers to tell their share.
        """
        task, tokens = self._run.task, self._clock.final_tokens
        if task.goal.best == 0:
            part = task.validate(self._run.model, int(FIRST_LOOK_SHARE * tokens))
            if not task.goal.reached(part, wanted):
                return part, False
        return task.final(self._run.model, tokens), True

    def error_after(self, step: Step) -> TrainingError | None:
        """Return the error of a run whose last three steps had no finite loss; None if one of them had."""
        self.failures = self.failures + 1 if step.skipped else 0
        if self.failures < FAILURES:
            return None
        config = self._run.config
        return TrainingError(
            "the loss was not finite in {failures} steps in a row (up to step {step}); the state is saved in {path}. "
            "Start a new run with lower rates, for example {--learning-rate {rate:.2g}}"
            "{matrix_rate}{precision}.",
            failures=FAILURES,
            step=self._clock.step,
            path=self._run.folder.path,
            rate=config.learning_rate / 3,
            matrix_rate=tr(" {--matrix-learning-rate {rate:.2g}}", rate=config.matrix_learning_rate / 3)
            if "matrix_learning_rate" in config.rates
            else "",
            precision="" if config.precision == "float32" else tr(", or with {--precision float32}"),
        )
