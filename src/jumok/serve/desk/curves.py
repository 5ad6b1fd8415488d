"""The curve of a run: its metrics.jsonl, in few points."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POINTS = 600  # the most of a curve
SAMPLES = 20  # the newest that are kept
LONGEST_SAMPLE = 2_000  # characters
STEP_FIELDS = ("step", "loss", "progress", "seconds", "remaining", "tokens_per_second")
POINT_FIELDS = ("step", "seconds", "loss", "rate", "tokens_per_second")

JSON = dict[str, Any]


@dataclass
class Curve:
    """What the log of a run says so far.

    Fields:
        last: the newest step. points: POINT_FIELDS of each; steps are averaged, so that there are few of them.
        validations: all of them. samples: the newest ones. held_out: the last figures in words, "" before. verdict: its
            kind, once the run has ended.
    """

    last: JSON | None = None
    points: list[list[float]] = field(default_factory=list)
    validations: list[JSON] = field(default_factory=list)
    samples: list[JSON] = field(default_factory=list)
    held_out: str = ""
    verdict: str | None = None


def read_curve(path: Path) -> Curve:
    """Read the log of a run, in which a stranger may have written anything. Its last line may not be complete yet."""
    curve = Curve()
    with suppress(OSError), path.open("rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and isinstance(event.get("step"), int):
                    _add(curve, event)
    some = max(1, math.ceil(len(curve.points) / POINTS))  # steps of a point
    curve.points = [_mean(curve.points[at : at + some]) for at in range(0, len(curve.points), some)]
    curve.samples = curve.samples[-SAMPLES:]
    return curve


def _add(curve: Curve, event: JSON) -> None:
    step = event["step"]
    match event.get("event"):
        case "step":
            curve.last = {name: number(event.get(name)) for name in STEP_FIELDS}
            if curve.last["loss"] is not None:
                curve.points.append([number(event.get(name)) or 0.0 for name in POINT_FIELDS])
        case "eval":
            figures = event.get("figures")
            pairs = figures.items() if isinstance(figures, dict) else ()
            known = {name: value for name, one in pairs if (value := number(one)) is not None}
            seconds, best = number(event.get("seconds")), event.get("best") is True
            headline = str(event.get("headline", ""))[:200]
            curve.validations.append(
                {"step": step, "seconds": seconds, "figures": known, "headline": headline, "best": best}
            )
        case "sample":
            text, kept = str(event.get("text", ""))[:LONGEST_SAMPLE], event.get("kept") is True
            curve.samples.append({"step": step, "text": text, "kept": kept})
        case "verdict":
            curve.verdict = str(event.get("kind", ""))[:100]
        case "finish":
            curve.held_out = "" if event.get("reason") == "interrupted" else str(event.get("headline", ""))[:200]


def _mean(rows: list[list[float]]) -> list[float]:
    """Return the last step and its seconds, and the means of the other values."""
    return [*rows[-1][:2], *(math.fsum(values) / len(rows) for values in list(zip(*rows, strict=True))[2:])]


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, int | float):
        with suppress(OverflowError):  # of an integer that no float can hold
            return float(value) if math.isfinite(value) else None
    return None
