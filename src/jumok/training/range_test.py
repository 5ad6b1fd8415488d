"""A learning rate range test: a short training whose rate grows, and what the loss does meanwhile.

Source: Smith, https://arxiv.org/abs/1506.01186, section 3.3. The rate grows exponentially from a thousandth of that of
the configuration to a hundred times as much; the rates of AdamW and of Muon keep their ratio. The loss is smoothed by a
running mean. The suggested rate is a tenth of the one at which the loss was lowest, where the training is about to
diverge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from jumok.device import keeping_memory, own_random
from jumok.errors import TrainingError
from jumok.training.curves import ABOVE
from jumok.training.memory import memory_errors
from jumok.training.state import TrainingRun
from jumok.training.steps import Steps

STEPS = 100
LOWEST, HIGHEST = 1e-3, 1e2  # times the rates of the configuration
SMOOTHING = 0.9  # of the running mean
BELOW_LOWEST = 0.1  # times the rate of the lowest loss


@dataclass(frozen=True, kw_only=True)
class Point:
    """A step of the test. learning_rate: of AdamW. matrix_learning_rate: of Muon. loss: in nats. smoothed: its mean."""

    learning_rate: float
    matrix_learning_rate: float
    loss: float
    smoothed: float


@dataclass(frozen=True, kw_only=True)
class RangeTest:
    """The points of a test, and what follows. diverged: the test ended because the loss was above
    that of the start."""

    points: list[Point]
    lowest: int  # index of the point with the lowest smoothed loss
    diverged: bool
    learning_rate: float
    matrix_learning_rate: float
    optimizer: str


def range_test(run: TrainingRun, report: Callable[[float], None]) -> RangeTest:
    """Train a run that was just started with growing rates. It is of no use for anything else then.

    Args:
        report: called with the share of the steps that are done.

    Raises:
        TrainingError: the first loss is not finite, or the loss never fell.
    """
    config, steps = run.config, Steps(run)
    points: list[Point] = []
    mean, diverged = 0.0, False
    with keeping_memory(run.device), memory_errors(run.model.config, config):
        for number in range(STEPS):
            share = LOWEST * (HIGHEST / LOWEST) ** (number / (STEPS - 1))
            with own_random(run.device):
                taken = steps.take(number, share)
            if not taken.updated:
                diverged = True
                break
            loss = sum(taken.losses)
            mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
            smoothed = mean / (1 - SMOOTHING ** (number + 1))
            points.append(
                Point(
                    learning_rate=share * config.learning_rate,
                    matrix_learning_rate=share * config.matrix_learning_rate,
                    loss=loss,
                    smoothed=smoothed,
                )
            )
            report((number + 1) / STEPS)
            if smoothed > ABOVE * points[0].smoothed:  # the first one is that of a model that knows nothing
                diverged = True
                break
    lowest = min(range(len(points)), key=lambda index: points[index].smoothed, default=0)
    if not points or points[lowest].smoothed >= points[0].smoothed or not math.isfinite(points[lowest].smoothed):
        raise TrainingError(
            "the loss fell at no learning rate from {low:.2g} to {high:.2g}; check the text, and give rates nearer to "
            "the right ones with {--learning-rate} and {--matrix-learning-rate}.",
            low=LOWEST * config.learning_rate,
            high=HIGHEST * config.learning_rate,
        )
    return RangeTest(
        points=points,
        lowest=lowest,
        diverged=diverged,
        learning_rate=BELOW_LOWEST * points[lowest].learning_rate,
        matrix_learning_rate=BELOW_LOWEST * points[lowest].matrix_learning_rate,
        optimizer=config.optimizer,
    )
