"""Validation: when it is due, how much of the held-out part it reads, which parameters are the best, and samples."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from jumok.errors import JumokError
from jumok.messages import tr
from jumok.runs.events import Eval, Event, Notice, Sample
from jumok.training.clock import EVALUATION_COST, Clock
from jumok.training.run import Stateful, TrainingRun

VALIDATIONS = 12  # in a run, each with a sample, unless eval_every says otherwise
FEWEST = 4  # however long they take
MOST_WITH_A_GOAL = 5  # times as many where a goal is asked for
# Shares of the training tokens, for 2% and, with a goal, 6% of the training time.
VALIDATION_TOKENS = 0.02 / EVALUATION_COST
TOKENS_WITH_A_GOAL = 0.06 / EVALUATION_COST
# Of the time of a run by minutes. There are fewer validations than above if they would take more, with their samples,
# pictures and parameters.
SHARE = 0.04
SHARE_WITH_A_GOAL = 0.12


class Validation(Stateful):
    """Validates the model of a run, keeps its best parameters, and lets it write samples.

    Attributes:
        eval_tokens: that each validation reads, always the same so that they compare; 0 before the first.
        validated: step of the last validation. validation_read: tokens or rows that it read.
        best: `Task.to_minimise` of the best parameters. best_step: of these. best_metrics: of these, as config.json has
            them. lowest: `Task.to_minimise` of the best validation. lowest_step: of that one.
        worse: validations since that one.
    """

    eval_tokens: int = 0
    validated: int = 0
    validation_read: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, Any]
    lowest: float | None = None
    lowest_step: int = 0
    worse: int = 0

    def __init__(self, run: TrainingRun, clock: Clock) -> None:
        self._run, self._clock, self.best_metrics = run, clock, {}
        self._looked = self._sampled = 0.0  # progress at the last validation; and at the last with a sample

    def load_state_dict(self, numbers: Mapping[str, Any]) -> None:
        """Take over the fields; the next validation is due by the progress since now."""
        super().load_state_dict(numbers)
        self._looked = self._sampled = numbers.get("progress", 0.0)

    # --- when ---------------------------------------------------------------------------------------------------------

    @property
    def times_as_often(self) -> int:
        """Return how many validations there are for one that has a sample: with a goal, as many as may be afforded."""
        run = self._run
        if run.config.stop_at is None or run.config.eval_every:
            return 1
        least = run.config.eval_tokens or run.task.fewest_tokens(run.model.config.context_length)
        return max(
            1, min(MOST_WITH_A_GOAL, int(TOKENS_WITH_A_GOAL * self._clock.planned_tokens / (VALIDATIONS * least)))
        )

    def due(self, before: float) -> bool:
        """Return True if the model is to be validated now. before: progress before the last step."""
        return self._passed(before, self._looked, self._affordable(VALIDATIONS * self.times_as_often))

    def sample_due(self, before: float) -> bool:
        """Return True if the validation goes with a sample."""
        return self._passed(before, self._sampled, self._affordable(VALIDATIONS))

    def _affordable(self, count: int) -> int:
        """Of `count` validations in a run, as many as its minutes allow. A run by steps does not depend on times."""
        config, seconds = self._run.config, self._clock.evaluation_seconds
        if config.minutes is None or not seconds:
            return count
        share = SHARE if config.stop_at is None else SHARE_WITH_A_GOAL
        return min(count, max(FEWEST, int(share * 60 * config.minutes / seconds)))

    def _passed(self, before: float, last: float, parts: int) -> bool:
        """Return True if the last step ended one of so many equal parts of the run.

        Args:
            before: progress before that step. last: progress when that was so before. In a run by minutes half a part
                lies between both at least: what it can afford changes, and with it where the parts end.
        """
        config, progress = self._run.config, self._clock.progress
        if config.eval_every:
            return self._clock.step % config.eval_every == 0
        if config.minutes is not None and progress < last + 0.5 / parts:
            return False
        return int(progress * parts) > int(before * parts)

    # --- how much -----------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Return how many tokens each validation reads."""
        run = self._run
        if run.config.eval_tokens:
            return run.config.eval_tokens
        if not self.eval_tokens:
            often = self.times_as_often
            if run.config.eval_every:
                count = max(1.0, self._clock.planned_tokens / run.tokens_per_step / run.config.eval_every)
            else:
                count = VALIDATIONS * often
            share = TOKENS_WITH_A_GOAL if often > 1 else VALIDATION_TOKENS
            affordable = int(share * self._clock.planned_tokens / count)
            self.eval_tokens = max(run.task.fewest_tokens(run.model.config.context_length), affordable)
        return self.eval_tokens

    # --- doing it -----------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, float]:
        """Return the figures of the model as it is.

        Raises:
            JumokError: the losses are not finite.
        """
        with self._run.evaluating():
            found: dict[str, float] = self._run.task.validate(self._run.model, self.tokens)
        self.validation_read = int(found[self._run.task.unit])
        return found

    def run(self) -> Generator[Event, None, dict[str, float]]:
        """Validate, and keep the parameters if they are the best so far.

        Without a held-out part the newest parameters are the best.

        Returns:
            The figures; {} where there are none.
        """
        run = self._run
        self.validated, self._looked = self._clock.step, self._clock.progress
        if not run.task.has_validation:
            run.write_parameters()
            return {}
        run.report(tr("validating"))
        began = time.perf_counter()
        try:
            figures = self.figures()
        except JumokError as error:
            self.worse += 1
            yield Notice(step=self._clock.step, text=tr("This validation failed: {error}", error=error))
            return {}
        self._clock.evaluation_speed = figures["tokens"] / (time.perf_counter() - began)
        found = run.task.to_minimise(figures)
        lower = self.lowest is None or found < self.lowest
        self.worse = 0 if lower else self.worse + 1
        if lower:
            self.lowest, self.lowest_step = found, self._clock.step
        keeps_last = run.config.keep == "last"
        best = lower if keeps_last else self.best is None or found < self.best
        if best or keeps_last:
            self.keep_best(figures)
        yield self.event(figures, best=best)
        return figures

    def keep_best(self, figures: Mapping[str, float], *, last: bool = False) -> None:
        """Make the parameters of now the best ones of the run, which the folder then holds with these figures.

        Args:
            figures: of a validation, which config.json has under "validation". last: they are the last ones, which it
                has by their own names.
        """
        step = self._clock.step
        self.best, self.best_step = self._run.task.to_minimise(figures), step
        self._run.write_parameters()
        self.best_metrics = {"step": step, **(figures if last else {"validation": dict(figures)})}
        self._run.put_metrics(self.best_metrics)

    def final(self) -> dict[str, float]:
        """Return the figures to quote. They read more than a validation does."""
        with self._run.evaluating():
            figures: dict[str, float] = self._run.task.final(self._run.model, self._clock.final_tokens)
        return figures

    def sample(self, *, kept: bool = False) -> Iterator[Event]:
        """Let the model write a sample. kept: it has the parameters that the finished run keeps."""
        run, config = self._run, self._run.config
        self._sampled = self._clock.progress
        if not config.sample_tokens:
            return
        try:
            with run.evaluating():
                text = run.task.sample(run.model, config.sample_tokens, seed=config.seed)
        except JumokError as error:  # the logits are not finite; the training may still recover
            yield Notice(step=self._clock.step, text=tr("No sample: {error}", error=error))
            return
        step = self.best_step if kept and self.best is not None else self._clock.step
        yield Sample(step=step, text=text, kept=kept)

    def event(self, figures: dict[str, float], *, best: bool) -> Eval:
        """Return the event of a validation."""
        run = self._run
        headline = run.task.headline(figures)
        return Eval(step=self._clock.step, figures=figures, headline=headline, best=best, seconds=self._clock.seconds)
