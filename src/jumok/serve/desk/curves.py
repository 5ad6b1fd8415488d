"""The curve of a run while it is trained: metrics.jsonl, read as it grows, in few points."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POINTS = 600  # of a curve at most
SAMPLES = 20  # the newest that are kept
MARK = 1_024  # bytes before the place up to which a file was read, by which a file that was cut is noticed
BLOCK = 1 << 20  # bytes that are read at a time
LONGEST_SAMPLE = 2_000  # characters

JSON = dict[str, Any]


class Tail:
    """A log that another process appends to, and cuts when a run is resumed.

    Attributes:
        place: bytes that were read; whole lines.
    """

    def __init__(self, path: Path, place: int = 0) -> None:
        self._path, self.place, self._mark = path, place, b""

    def read(self) -> Iterator[JSON | None]:
        """The new events. None: the log was cut or replaced, and what follows is read from its beginning.

        Invalid lines, and a last one that is not complete, are skipped.
        """
        try:
            with self._path.open("rb") as file:
                if self._mark and self._cut(file.fileno(), file):
                    self.place, self._mark = 0, b""
                    yield None
                file.seek(self.place)
                while block := file.read(BLOCK):
                    whole = block.rfind(b"\n") + 1
                    if not whole:
                        if len(block) < BLOCK:
                            return  # a line that is being written
                        whole = len(block)  # no event is so long
                    self.place += whole
                    self._mark = block[max(0, whole - MARK) : whole]
                    file.seek(self.place)
                    yield from filter(None, map(_event, block[:whole].split(b"\n")))
        except OSError:
            return  # there is no log, or it is gone

    def _cut(self, handle: int, file: Any) -> bool:
        file.seek(self.place - len(self._mark))
        return bool(file.read(len(self._mark)) != self._mark)


def _event(line: bytes) -> JSON | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("step"), int) else None


def number(value: object) -> float | None:
    """A finite number, or None."""
    if not isinstance(value, int | float):
        return None
    with suppress(OverflowError):  # of an integer that no float can hold
        return float(value) if math.isfinite(value) else None
    return None


FIELDS = ("step", "loss", "rate", "grad_norm", "progress", "seconds", "remaining", "tokens_per_second")


def shown(event: JSON) -> JSON | None:
    """What a page is told of an event; None for one that it does not show."""
    match event.get("event"):
        case "step":
            return {"event": "step", **{name: number(event.get(name)) for name in FIELDS}, "step": event["step"]}
        case "eval":
            return {
                "event": "eval",
                "step": event["step"],
                "seconds": number(event.get("seconds")),
                "figures": _figures(event),
                "headline": str(event.get("headline", ""))[:200],
                "best": event.get("best") is True,
            }
        case "sample":
            return {
                "event": "sample",
                "step": event["step"],
                "text": str(event.get("text", ""))[:LONGEST_SAMPLE],
                "kept": event.get("kept") is True,
            }
        case "verdict":
            return {"event": "verdict", "step": event["step"], "kind": str(event.get("kind", ""))[:100]}
        case "finish" | "stage" as kind:
            reason, headline = (str(event.get(name, ""))[:200] for name in ("reason", "headline"))
            return {"event": kind, "step": event["step"], "reason": reason, "headline": headline}
    return None


def _figures(event: JSON) -> JSON:
    figures = event.get("figures")
    pairs = figures.items() if isinstance(figures, dict) else ()
    return {name: value for name, one in pairs if (value := number(one)) is not None}


@dataclass
class _Mean:
    """The steps of one point of a curve: their number, the last step, and sums."""

    count: int = 0
    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    rate: float = 0.0
    speed: float = 0.0

    def __add__(self, other: _Mean) -> _Mean:
        return _Mean(
            self.count + other.count, other.step, other.seconds, self.loss + other.loss, self.rate + other.rate,
            self.speed + other.speed,
        )  # fmt: skip


@dataclass
class Curve:
    """What is known of a run's training.

    Steps are averaged so that there are at most POINTS points; a step whose loss is not finite is left out.

    Fields:
        last: the newest step. validations, samples: the newest last. held_out: the last figures in words, "" before.
    """

    tail: Tail
    last: JSON | None = None
    validations: list[JSON] = field(default_factory=list)
    samples: list[JSON] = field(default_factory=list)
    held_out: str = ""
    verdict: str | None = None  # the kind of that on the newest stage, once it has ended
    _points: list[_Mean] = field(default_factory=list)
    _each: int = 1  # steps of a point

    def update(self) -> None:
        """Read what is new."""
        for event in self.tail.read():
            if event is None:
                self.last, self.validations, self.samples, self._points, self._each = None, [], [], [], 1
                self.held_out = ""
                self.verdict = None
            elif (known := shown(event)) is not None:
                self._take(known)

    def train(self, most: int = POINTS) -> list[list[float]]:
        """[step, seconds, loss, rate, tokens per second], at most so many of them, evenly spread."""
        points = [
            [mean.step, mean.seconds, *(value / mean.count for value in (mean.loss, mean.rate, mean.speed))]
            for mean in self._points
        ]
        return thinned(points, most)

    def _take(self, event: JSON) -> None:
        match event["event"]:
            case "step":
                self.last = event
                if event["loss"] is not None:
                    self._add(event)
            case "eval":
                self.validations.append(event)
            case "sample":
                self.samples = [*self.samples, event][-SAMPLES:]
            case "verdict":
                self.verdict = event["kind"]
            case "finish" | "stage" as kind:
                self.held_out = "" if event["reason"] == "interrupted" else event["headline"]
                self.verdict = None if kind == "stage" else self.verdict

    def _add(self, event: JSON) -> None:
        new = _Mean(
            1, event["step"], *(event[name] or 0.0 for name in ("seconds", "loss", "rate", "tokens_per_second"))
        )
        if self._points and self._points[-1].count < self._each:
            self._points[-1] += new
            return
        if len(self._points) == POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [one + other for one, other in pairs]
            self._each *= 2
        self._points.append(new)


def thinned(points: list[Any], most: int) -> list[Any]:
    """At most so many of some points, evenly spread, the last one among them."""
    if len(points) <= most:
        return points
    return [points[(i + 1) * len(points) // most - 1] for i in range(most)]
