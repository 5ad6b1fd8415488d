"""The curve of a run: its metrics.jsonl, read as it grows, in few points."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POINTS = 600  # of a curve, up to twice as many
SAMPLES = 20  # the newest that are kept
MARK = 1_024  # bytes before the place up to which a log was read, by which one that was cut is noticed
LONGEST_SAMPLE = 2_000  # characters
STEP_FIELDS = ("step", "loss", "progress", "seconds", "remaining", "tokens_per_second")

JSON = dict[str, Any]


@dataclass
class Curve:
    """Holds what the log of a run says so far.

    Steps are averaged, so that a curve has few points; a step whose loss is not finite is left out.

    Attributes:
        last: the newest step. validations: all of them. samples: the newest ones. held_out: the last figures in words,
            "" before. verdict: its kind, once the newest stage has ended.
    """

    path: Path
    last: JSON | None = None
    validations: list[JSON] = field(default_factory=list)
    samples: list[JSON] = field(default_factory=list)
    held_out: str = ""
    verdict: str | None = None
    _points: list[list[float]] = field(default_factory=list)
    _pending: list[list[float]] = field(default_factory=list)  # the steps of the next point
    _steps_per_point: int = 1
    _place: int = 0  # bytes that were read; whole lines
    _mark: bytes = b""  # the last of them

    def update(self) -> None:
        """Read what the training has appended. A log that a resumed run has cut is read from its beginning."""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self._place - len(self._mark))
            if file.read(len(self._mark)) != self._mark:
                self.__init__(self.path)  # type: ignore[misc]
                file.seek(0)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]  # the last line may not be complete
            self._place += len(whole)
            self._mark = (self._mark + whole)[-MARK:]
            for line in whole.splitlines():
                with suppress(ValueError, RecursionError):
                    event = json.loads(line)
                    if isinstance(event, dict) and isinstance(event.get("step"), int):
                        self._take(event)

    def points(self) -> list[list[float]]:
        """Return [step, seconds, loss, rate, tokens per second] of each point."""
        return [*self._points, _mean(self._pending)] if self._pending else self._points

    def _take(self, event: JSON) -> None:
        step = event["step"]
        match event.get("event"):
            case "step":
                self.last = {name: number(event.get(name)) for name in STEP_FIELDS}
                if self.last["loss"] is not None:
                    names = ("step", "seconds", "loss", "rate", "tokens_per_second")
                    self._add([number(event.get(name)) or 0.0 for name in names])
            case "eval":
                figures = event.get("figures")
                pairs = figures.items() if isinstance(figures, dict) else ()
                known = {name: value for name, one in pairs if (value := number(one)) is not None}
                seconds, best = number(event.get("seconds")), event.get("best") is True
                headline = str(event.get("headline", ""))[:200]
                self.validations.append(
                    {"step": step, "seconds": seconds, "figures": known, "headline": headline, "best": best}
                )
            case "sample":
                text, kept = str(event.get("text", ""))[:LONGEST_SAMPLE], event.get("kept") is True
                self.samples = [*self.samples, {"step": step, "text": text, "kept": kept}][-SAMPLES:]
            case "verdict":
                self.verdict = str(event.get("kind", ""))[:100]
            case "finish" | "stage" as kind:
                self.held_out = "" if event.get("reason") == "interrupted" else str(event.get("headline", ""))[:200]
                self.verdict = None if kind == "stage" else self.verdict

    def _add(self, values: list[float]) -> None:
        self._pending.append(values)
        if len(self._pending) == self._steps_per_point:
            self._points.append(_mean(self._pending))
            self._pending = []
        if len(self._points) == 2 * POINTS:
            self._points = [_mean(list(pair)) for pair in zip(self._points[::2], self._points[1::2], strict=True)]
            self._steps_per_point *= 2


def _mean(rows: list[list[float]]) -> list[float]:
    """Return the last step and its seconds, and the means of the other values."""
    return [*rows[-1][:2], *(math.fsum(values) / len(rows) for values in list(zip(*rows, strict=True))[2:])]


def number(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, int | float):
        with suppress(OverflowError):  # of an integer that no float can hold
            return float(value) if math.isfinite(value) else None
    return None
