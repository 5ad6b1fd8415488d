"""The events of a training run. The trainer yields them; metrics.jsonl records all except notices and saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Step:
    """An optimizer step was taken, or skipped because its loss or gradient was not finite.

    Attributes:
        loss: of the step, in nats per token, per text (classify) or per masked token (mlm): what validations measure.
        rate: learning rate, as a share of its peak.
        grad_norm: norm of the gradient.
        skipped: whether the step was skipped.
        progress: 0..1, of the run.
        seconds: so far.
        remaining: estimated seconds until the end.
        tokens_per_second: a running mean over recent steps.
        figures: what else the task says of the step, such as "lm_loss" of a classifier that also learns the next token,
            or "reward"; metrics.jsonl has them beside the loss.
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
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Eval:
    """The model was evaluated on the validation part.

    Attributes:
        figures: see `Task.validate`.
        headline: the figures as a short text.
        best: whether it is better than all before.
        seconds: of the run so far.
    """

    step: int
    figures: dict[str, float]
    headline: str
    best: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The model generated a sample.

    Attributes:
        step: of its parameters. kept: whether these are the ones that the finished run keeps, from which the last
            sample of a run comes.
    """

    step: int
    text: str
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class Save:
    """The training state after `step` steps was saved."""

    step: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A message for the user."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something looks wrong with what is learned or with its figures. Each kind is yielded once.

    Attributes:
        kind: see `jumok.training.alarms` and docs/troubleshooting.md.
        numbers: what was measured.
        text: a message for the user, in their language; metrics.jsonl does not have it.
    """

    step: int
    kind: str
    numbers: dict[str, float]
    text: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A run that was not interrupted has ended, and this is what its figures mean. `Finish` follows, or an error.

    Attributes:
        kind: see `jumok.training.verdict` and docs/training.md.
        numbers: `steps`; if there are figures, `kept_step` (of the kept parameters), `best_step` (of the
            best validation), and `found` and `baseline`: a figure, and that of a table of counts.
        text: a message for the user, in their language. command: what to type next. metrics.jsonl has neither.
    """

    step: int
    kind: str
    numbers: dict[str, float]
    text: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The run is finished or was interrupted.

    Attributes:
        reason: "done", "early stop", "reached" (the goal of `stop_at`) or "interrupted".
        figures: of the kept parameters, on as much of the validation part as is affordable; empty if there is none.
        headline: the figures as a short text.
        seconds: of the run.
        unit: "tokens" or "rows"; figures[unit] is the number of them that were read.
        held_out: size of the validation part, in `unit`.
        validation_read: how many of them each validation reads.
        more_context: whether tokens had more context here than in a validation.
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


Event = Step | Eval | Sample | Save | Notice | Alarm | Verdict | Finish
