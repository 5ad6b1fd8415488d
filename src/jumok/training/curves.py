"""What the losses and gradient norms of a run show, as alarms.

The newest loss or norm is that of the last tenth of the steps, and of 20 at least, so that a single batch decides
nothing. The constants were chosen such that no run of `bench/alarms.py` that learns well rings an alarm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jumok.messages import tr
from jumok.training.finding import Finding

RECENT = 20  # steps at least
ABOVE = 1.25  # times the loss of chance
RISE = 0.25  # of what was learned, that must be lost again
ERRORS = 4  # standard errors of the newest loss, which the rise must be more than
EXPLOSION = 10.0  # times the median norm of the steps before
HARDLY = 0.1  # of the way from a loss of chance to that of a table of counts, or to zero

Curve = NDArray[np.float64]


def above_chance(losses: Curve, chance: float) -> Iterator[Finding]:
    """The training loss was far above that of a model that knows nothing.

    Args:
        losses: of all steps, (n,). chance: the loss of a model that knows nothing, with which a training begins.
    """
    highest = max(_means(losses, RECENT // 2), default=0.0)
    if highest > ABOVE * chance:
        text = tr(
            "the training loss was {highest:.2f} for some steps; a model that knows nothing has {chance:.2f}. The "
            "learning rate is too high: `jumok train TEXT --find-rate` suggests one.",
            highest=highest,
            chance=chance,
        )
        yield Finding(kind="above_chance", numbers={"highest": highest, "chance": chance}, text=text)


def loss_rises(losses: Curve, chance: float) -> Iterator[Finding]:
    """The training loss has lost much of what it had gained. The arguments are those of `above_chance`."""
    width = _recent(losses)
    means = _means(losses, width)
    if len(means) < 2:
        return
    lowest, newest = min(means), means[-1]
    learned, noise = chance - lowest, float(np.nanstd(losses[-width:])) / width**0.5
    if learned > HARDLY * chance and newest - lowest > max(RISE * learned, ERRORS * noise):
        text = tr(
            "the training loss has risen to {newest:.2f}, after {lowest:.2f} (a model that knows nothing has "
            "{chance:.2f}). Mostly the learning rate is too high: `jumok train TEXT --find-rate` suggests one.",
            newest=newest,
            lowest=lowest,
            chance=chance,
        )
        yield Finding(kind="loss_rises", numbers={"newest": newest, "lowest": lowest, "chance": chance}, text=text)


def gradients_explode(norms: Curve) -> Iterator[Finding]:
    """The gradient norms, before they are clipped, are many times those of the steps before."""
    width = _recent(norms)
    if len(norms) < 2 * width:
        return
    if np.isnan(norms[-width:]).all() or np.isnan(norms[:-width]).all():
        return
    newest, before = float(np.nanmedian(norms[-width:])), float(np.nanmedian(norms[:-width]))
    if newest > EXPLOSION * before:
        text = tr(
            "the gradients explode: their norm is {newest:.3g}, {times:.0f} times the median of the steps before. "
            "Use lower learning rates, a longer {--warmup}, or a lower {--clip}.",
            newest=newest,
            times=newest / before if before else float("inf"),
        )
        yield Finding(kind="gradients_explode", numbers={"newest": newest, "median": before}, text=text)


def hardly_moves(losses: Curve, to_learn: float) -> Iterator[Finding]:
    """The training loss has hardly moved since the first step.

    Args:
        to_learn: from the loss of a model that knows nothing to that of a table of counts, in the nats of `losses`; 0:
            not known.
    """
    means = _means(losses, _recent(losses))
    first, newest = float(losses[0]), means[-1] if means else float("nan")
    if to_learn > 0 and first - newest < HARDLY * to_learn:
        text = tr(
            "the training loss has hardly moved in {steps:,} steps, from {first:.2f} to {newest:.2f}; a table of "
            "counts is {to_learn:.2f} below a model that knows nothing. Mostly the learning rate is too low: "
            "`jumok train TEXT --find-rate` suggests one.",
            steps=len(losses),
            first=first,
            newest=newest,
            to_learn=to_learn,
        )
        numbers = {"first": first, "newest": newest, "to_learn": to_learn}
        yield Finding(kind="hardly_moves", numbers=numbers, text=text)


def _means(values: Curve, width: int) -> list[float]:
    """The means of so many values each, up to the newest one; without a part in which no value is finite."""
    parts = values[len(values) % width :].reshape(-1, width)
    return [float(np.nanmean(part)) for part in parts if not np.isnan(part).all()]


def _recent(values: Curve) -> int:
    """How many steps are the newest ones."""
    return max(RECENT, len(values) // 10)
