"""Time in a run: how far it is, what rate that means, how long it still takes. Its length is in steps or in minutes.

In a run by steps nothing depends on the time, so that its figures do not either.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator

from jumok.messages import tr
from jumok.runs.events import Notice
from jumok.training.optim import rate
from jumok.training.planning.plan import most_tokens
from jumok.training.state import TrainingRun

# The time per step is the median of at least so many steps over so many seconds, so that one slow step changes nothing.
WATCHED_STEPS = 5
WATCHED_SECONDS = 5.0
OTHERWISE = 2.0  # times as long or as short as expected must a step take for a new plan


class Clock:
    """The progress of a stage, from 0 to 1, and what follows from it."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._budget = None if run.config.minutes is None else 60 * run.config.minutes  # seconds of the stage
        self._since = (0.0, 0.0)  # progress and seconds of the stage from which a budget is counted on
        self._last_width = 0.0  # progress made by the last step
        self._watched: list[float] = []  # seconds of the newest steps
        self._told = False  # that steps take another time than expected
        self.tokens_per_second = 0.0  # a running mean over the last steps
        # What is measured of the work between steps, for the reserve.
        self.evaluation_speed = 0.0  # tokens a second
        self.evaluation_seconds = 0.0  # of a validation and its sample
        self.save_seconds = 0.0

    @property
    def stage_seconds(self) -> float:
        """How long the stage has taken, which counts against its minutes."""
        return self._run.seconds - self._run.state.stage_began

    def start(self) -> Iterator[Notice]:
        """Count a budget from now on, straight to its end: what came before took time and made no progress."""
        state = self._run.state
        self._since, self._watched = (state.progress, self.stage_seconds), []
        if self._budget and self.stage_seconds > 0.8 * self._budget and state.progress == 0:
            text = tr(
                "{spent:.0f} of {budget:.0f} seconds are gone before training: the time is too short.",
                spent=self.stage_seconds,
                budget=self._budget,
            )
            yield Notice(step=state.step, text=text)

    # --- progress -----------------------------------------------------------------------------------------------------

    def advance(self, began: float, tokens: float) -> None:
        """Count a step that was just taken.

        Args:
            began: `time.perf_counter()` before the step. tokens: that it was trained on, about.
        """
        state = self._run.state
        before, state.progress = state.progress, self._progress()
        self._last_width = state.progress - before
        mean, speed = self.tokens_per_second, tokens / (time.perf_counter() - began)
        self.tokens_per_second = speed if mean == 0 else 0.9 * mean + 0.1 * speed

    def _progress(self) -> float:
        run, state = self._run, self._run.state
        if run.config.steps is not None:
            return (state.step - run.first_step) / run.config.steps
        progress, since = self._since
        end = (self._budget or 0) - self._reserve()
        now = min(1.0, progress + (1 - progress) * (self.stage_seconds - since) / max(1e-3, end - since))
        now = max(now, min(1.0, run.tokens_seen / self._most_tokens))
        return max(state.progress, now)  # the reserve may have grown meanwhile

    def _reserve(self) -> float:
        """Seconds to keep for what follows the last step: the last figures and the last save."""
        budget = self._budget or 0
        if self.evaluation_speed == 0:
            return 0.05 * budget
        figures = self._run.task.final_reads(self._run.final_tokens) / self.evaluation_speed
        return min(0.2 * budget, figures + 2 * self.evaluation_seconds + 3 * self.save_seconds + 1.0)

    @property
    def _most_tokens(self) -> float:
        return most_tokens(self._run.config, self._run.task, self._run.train_tokens)

    # --- what follows from it -----------------------------------------------------------------------------------------

    def rate(self) -> float:
        """The learning rate of the next step, as a share of its peak."""
        config, state = self._run.config, self._run.state
        if config.steps is None:  # as long as the last step, or as one of those that are planned
            width = self._last_width or self._run.tokens_per_step / max(1, state.planned_tokens)
        else:
            width = 1 / config.steps
        # The middle of the step: no rate is zero. The last step may be longer than what is left.
        end = 1.0 if state.cooldown is None else min(1.0, state.cooldown[1])
        progress = max(0.0, min(state.progress + 0.5 * width, end - 0.25 * width))
        if state.cooldown is None:
            return rate(config, progress)
        begin, end = state.cooldown
        return rate(config, begin) * min(1.0, (end - progress) / (end - begin))

    def remaining(self) -> float:
        """Seconds to the end, about; 0 if not known."""
        run = self._run
        by_time = math.inf if self._budget is None else max(0.0, self._budget - self.stage_seconds)
        tokens = self._most_tokens if run.config.steps is None else float(run.config.steps * run.tokens_per_step)
        left = max(0.0, tokens - run.tokens_seen)
        by_tokens = left / self.tokens_per_second if self.tokens_per_second else math.inf
        remaining = min(by_time, by_tokens)
        if run.state.cooldown is not None:  # the stage ends with it
            progress, end = run.state.progress, run.state.cooldown[1]
            remaining *= max(0.0, end - progress) / max(1e-9, 1 - progress)
        return remaining if math.isfinite(remaining) else 0.0

    # --- steps that take another time than expected -------------------------------------------------------------------

    def watch(self, seconds: float) -> Iterator[Notice]:
        """Report steps that take another time than expected, and plan a run by minutes anew.

        Args:
            seconds: that the last step took.
        """
        self._watched.append(seconds)
        if len(self._watched) < WATCHED_STEPS or sum(self._watched) < WATCHED_SECONDS:
            return
        state, now, self._watched = self._run.state, statistics.median(self._watched), []
        before = state.seconds_per_step or now
        slower, faster = now > OTHERWISE * before, before > OTHERWISE * now
        state.seconds_per_step = now if slower or faster else before
        if not (slower or faster):
            return
        times = {"now": f"{now:.2g}", "before": f"{before:.2g}"}
        text = tr("A step takes {now} s, not {before} s as expected.", **times) if slower else ""
        if self._budget is not None:
            planned, steps = self._plan_anew(self._budget)
            text = tr(
                "A step takes {now} s, not {before} s as expected: about {steps} steps are planned now, not {planned}.",
                **times,
                steps=f"{steps:,}",
                planned=f"{planned:,}",
            )
            if steps == planned:  # as many as the limit on passes allows, however long they are
                return
        if text and not self._told:  # how busy a machine is may change often; the time that is left is always shown
            self._told = True
            yield Notice(step=state.step, text=text)

    def _plan_anew(self, budget: float) -> tuple[int, int]:
        """Plan with the steps as long as they are; how many were planned, and are now."""
        run, state = self._run, self._run.state
        planned = state.planned_tokens
        left = max(0.0, budget - self._reserve() - self.stage_seconds)
        tokens = run.tokens_seen + left / state.seconds_per_step * run.tokens_per_step
        state.planned_tokens = int(min(self._most_tokens, tokens))
        return round(planned / run.tokens_per_step), round(state.planned_tokens / run.tokens_per_step)
