"""Time in a run: how far it is, what rate that means, how long it still takes. Its length is in steps or in minutes.

In a run by steps nothing depends on the time, so that its figures do not either.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jumok.messages import tr
from jumok.runs.events import Notice
from jumok.training.optim import rate
from jumok.training.run import Stateful, TrainingRun

# The time per step is the median of at least so many steps over so many seconds, so that one slow step changes nothing.
WATCHED_STEPS = 5
WATCHED_SECONDS = 5.0
REPLAN_FACTOR = 2.0  # times as long or as short as expected must a step take for a new plan
COOLDOWN = 0.1  # length of an early stop's decay, as a share of the training so far
EVALUATION_COST = 0.5  # of a token in a validation, about, where one in compiled training costs 1
# The last figures read this share of the training tokens, for 2.25% of the training time. Where they decide whether a
# goal is reached, they read more.
FINAL_TOKENS = 0.0225 / EVALUATION_COST
LEAST_WITH_A_GOAL = 1 << 18


class Clock(Stateful):
    """The steps and the progress of a run, and what follows from them.

    Attributes:
        step: optimizer steps taken. progress: of the run, 0 to 1.
        planned_tokens: to be trained on, about. seconds_per_step: expected; 0 if not known.
        cooldown: progress at which the decay of an early stop begins and ends.
    """

    step: int = 0
    progress: float = 0.0
    planned_tokens: int = 0
    seconds_per_step: float = 0.0
    cooldown: list[float] | None = None

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._began = run, run.history.began
        self._budget = None if run.config.minutes is None else 60 * run.config.minutes  # seconds
        self._since = (0.0, 0.0)  # progress and seconds from which a budget is counted on
        self._last_width = 0.0  # progress made by the last step
        self._watched: list[float] = []  # seconds of the newest steps
        self._told = False  # that steps take another time than expected
        self.tokens_per_second = 0.0  # a running mean over the last steps
        # What is measured of the work between steps, for the reserve.
        self.evaluation_speed = 0.0  # tokens a second
        self.evaluation_seconds = 0.0  # of a validation and its sample
        self.save_seconds = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the fields, and how long the run has taken."""
        return {**super().state_dict(), "seconds": self.seconds}

    def load_state_dict(self, numbers: Mapping[str, Any]) -> None:
        """Take over the fields, and count on from the seconds that the run has taken."""
        super().load_state_dict(numbers)
        self._began = self._run.history.began - numbers.get("seconds", 0.0)

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken, all its parts together."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Return True if the model has taken its last step, unless it reaches a goal before."""
        return self.progress >= (1.0 if self.cooldown is None else self.cooldown[1])

    @property
    def tokens_seen(self) -> int:
        """Return how many tokens were trained on."""
        return self.step * self._run.tokens_per_step

    @property
    def final_tokens(self) -> int:
        """Return how many tokens the last figures read."""
        run = self._run
        least = LEAST_WITH_A_GOAL if run.config.stop_at is not None else 256 * run.model.config.context_length
        return max(least, int(FINAL_TOKENS * self.planned_tokens))

    def begin_cooldown(self) -> None:
        """Let the rate decay to zero, and the training end then."""
        self.cooldown = [self.progress, min(1.0, self.progress * (1 + COOLDOWN))]

    def start(self) -> Iterator[Notice]:
        """Count a budget from now on, straight to its end: what came before took time and made no progress."""
        self._since, self._watched = (self.progress, self.seconds), []
        if self._budget and self.seconds > 0.8 * self._budget and self.progress == 0:
            text = tr(
                "{spent:.0f} of {budget:.0f} seconds are gone before training: the time is too short.",
                spent=self.seconds,
                budget=self._budget,
            )
            yield Notice(step=self.step, text=text)

    # --- progress -----------------------------------------------------------------------------------------------------

    def advance(self, began: float, tokens: float) -> None:
        """Count a step that was just taken.

        Args:
            began: `time.perf_counter()` before the step. tokens: that it was trained on, about.
        """
        self.step += 1
        before, self.progress = self.progress, self._progress()
        self._last_width = self.progress - before
        mean, speed = self.tokens_per_second, tokens / (time.perf_counter() - began)
        self.tokens_per_second = speed if mean == 0 else 0.9 * mean + 0.1 * speed

    def _progress(self) -> float:
        run = self._run
        if run.config.steps is not None:
            return self.step / run.config.steps
        progress, since = self._since
        end = (self._budget or 0) - self._reserve()
        now = min(1.0, progress + (1 - progress) * (self.seconds - since) / max(1e-3, end - since))
        now = max(now, min(1.0, self.tokens_seen / self._most_tokens))
        return max(self.progress, now)  # the reserve may have grown meanwhile

    def _reserve(self) -> float:
        """Return the seconds to keep for what follows the last step: the last figures and the last save."""
        budget = self._budget or 0
        if self.evaluation_speed == 0:
            return 0.05 * budget
        figures = self._run.task.final_reads(self.final_tokens) / self.evaluation_speed
        return min(0.2 * budget, figures + 2 * self.evaluation_seconds + 3 * self.save_seconds + 1.0)

    @property
    def _most_tokens(self) -> float:
        return self._run.task.most_tokens(self._run.config)

    # --- what follows from it -----------------------------------------------------------------------------------------

    def rate(self) -> float:
        """Return the learning rate of the next step, as a share of its peak."""
        config = self._run.config
        if config.steps is None:  # as long as the last step, or as one of those that are planned
            width = self._last_width or self._run.tokens_per_step / max(1, self.planned_tokens)
        else:
            width = 1 / config.steps
        # The middle of the step: no rate is zero. The last step may be longer than what is left.
        end = 1.0 if self.cooldown is None else min(1.0, self.cooldown[1])
        progress = max(0.0, min(self.progress + 0.5 * width, end - 0.25 * width))
        if self.cooldown is None:
            return rate(config, progress)
        begin, end = self.cooldown
        return rate(config, begin) * min(1.0, (end - progress) / (end - begin))

    def remaining(self) -> float:
        """Return the seconds to the end, about; 0 if not known."""
        by_time = math.inf if self._budget is None else max(0.0, self._budget - self.seconds)
        left = max(0.0, self._most_tokens - self.tokens_seen)
        by_tokens = left / self.tokens_per_second if self.tokens_per_second else math.inf
        remaining = min(by_time, by_tokens)
        if self.cooldown is not None:  # the run ends with it
            progress, end = self.progress, self.cooldown[1]
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
        now, self._watched = statistics.median(self._watched), []
        before = self.seconds_per_step or now
        slower, faster = now > REPLAN_FACTOR * before, before > REPLAN_FACTOR * now
        self.seconds_per_step = now if slower or faster else before
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
            yield Notice(step=self.step, text=text)

    def _plan_anew(self, budget: float) -> tuple[int, int]:
        """Plan with the steps as long as they are; how many were planned, and are now."""
        run = self._run
        planned = self.planned_tokens
        left = max(0.0, budget - self._reserve() - self.seconds)
        tokens = self.tokens_seen + left / self.seconds_per_step * run.tokens_per_step
        self.planned_tokens = int(min(self._most_tokens, tokens))
        return round(planned / run.tokens_per_step), round(self.planned_tokens / run.tokens_per_step)
