"""The events of a training run. The trainer yields them; `metrics.jsonl` records all but notices and saves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A finished run is trained further.

    number: of the stage, 2 for the first extension. best_step: of the weights that it begins with. steps, minutes: its
    length, one of the two.
    """

    step: int
    number: int
    best_step: int
    steps: int | None
    minutes: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """An optimizer step was taken, or skipped because its loss or gradient was not finite.

    loss: of all it read, in nats per token, per text (classify) or per hidden token (mlm). rate: share of the peak
    learning rate. progress: 0..1 of the run, or of its newest stage. seconds, remaining: so far and to come.
    tokens_per_second: a running mean over the last steps or so.
    """

    step: int
    loss: float
    rate: float
    grad_norm: float
    skipped: bool
    progress: float
    seconds: float
    remaining: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Eval:
    """The model was validated on the held-out part. figures: see `Task.validate`. best: better than all before.

    headline: the figures in a few words.
    """

    step: int
    figures: dict[str, float]
    headline: str
    best: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The model wrote a sample."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Save:
    """The training state after `step` steps is on the disk."""

    step: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A message for the user."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The run is over or was interrupted. reason: "done", "early stop", "reached" (what `stop_at` asks for) or
    "interrupted".

    figures: of the best weights, on as much of what is held out as is affordable, and headline: the same in a few
    words; empty with nothing held out. unit: "tokens" or "rows"; figures[unit] is how many of these were read,
    held_out how many there are, and validation_read how many each validation read. more_context: tokens had more
    context here than in a validation.
    """

    step: int
    reason: str
    figures: dict[str, float]
    headline: str
    seconds: float
    unit: str
    held_out: int
    validation_read: int
    more_context: bool


Event = Stage | Step | Eval | Sample | Save | Notice | Finish
