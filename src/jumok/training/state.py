"""What a training run is made of, and the part of it that changes from step to step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from torch.optim import Optimizer

from jumok.config import TrainConfig, require_type, validate
from jumok.device import autocast
from jumok.errors import RunError
from jumok.models import Model
from jumok.models.modes import eval_mode
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.training.parallel import ProcessGroup, Shards
from jumok.training.planning.plan import Plan
from jumok.training.tasks import Task

if TYPE_CHECKING:
    from jumok.runs.stored import StoredTensors
    from jumok.training.adapters import Adapters

# The last figures read this share of the training tokens, which stands for 1.5% of the training time, because a token
# costs a third of what it costs in training. Where they decide whether a goal is reached, they read more.
FINAL_TOKENS = 0.045
LEAST_WITH_A_GOAL = 1 << 18


@dataclass(kw_only=True)
class TrainingState:
    """Everything that a resumed run needs besides its configuration, its parameters, and the optimizers' moments.

    It is saved by the names of its fields. A state that an older version saved may lack some, which then have their
    defaults, and may have others, which are ignored.
    """

    step: int = 0  # optimizer steps taken, those of all stages together
    seconds: float = 0.0  # the run took until it was saved
    logs: dict[str, int] = field(default_factory=dict)  # bytes of each log when it was saved
    progress: float = 0.0  # of the stage, 0..1
    failures: int = 0  # steps in a row without a finite loss
    # the plan
    planned_tokens: int = 0  # to be trained on in the stage, about
    seconds_per_step: float = 0.0  # expected; 0 if not known
    # stages
    stage: int = 0  # how many have begun after the first
    stage_began: float = 0.0  # seconds of the run at which this one began
    # validation
    eval_tokens: int = 0  # that each validation reads, always the same so that they compare; 0 before the first
    validated: int = 0  # step of the last validation
    validation_read: int = 0  # tokens or rows that it read
    best: float | None = None  # `Task.to_minimise` of the best parameters
    best_step: int = 0
    best_metrics: dict[str, Any] = field(default_factory=dict)  # of the best parameters, as config.json has them
    # stopping
    lowest: float | None = None  # `Task.to_minimise` of the best validation of this stage
    lowest_step: int = 0
    worse: int = 0  # validations since that one
    cooldown: tuple[float, float] | None = None  # progress at which the decay of an early stop begins and ends
    reached: bool = False  # the goal, stop_at
    alarms: list[str] = field(default_factory=list)  # kinds that have rung
    goal_ratio: float | None = None  # last figures over those of a validation; None: not known

    def to_numbers(self) -> dict[str, Any]:
        """The fields as plain JSON values, without the step, which a state on the disk has in its name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "step"}

    @classmethod
    def from_numbers(cls, step: int, numbers: Mapping[str, Any]) -> Self:
        """The reverse of `to_numbers`.

        Raises:
            RunError: a number has another type than when it was saved.
        """
        known = {field.name for field in dataclasses.fields(cls)} - {"step"}
        found = {name: value for name, value in numbers.items() if name in known}
        try:
            if isinstance(cooldown := found.get("cooldown"), list):  # JSON has lists only
                begin, end = map(float, cooldown)
                found["cooldown"] = (begin, end)
            state = cls(step=step, **found)
            validate(state)
            for log, size in state.logs.items():
                require_type(log, size, int)
        except (TypeError, ValueError) as error:  # of which ConfigError is one
            raise RunError(
                "the training state after {step:,} steps is damaged: {error} Delete its folder in {folder} to go on "
                "from the one before.",
                step=step,
                error=error,
                folder="state/",
            ) from None
        return state


@dataclass(kw_only=True)
class TrainingRun:
    """A run that is ready to train: its folder, which it has locked, its settings, its model and its state.

    train_tokens: length of the training part. stages: the records of the stages after the first, as config.json has
    them; the newest one begins with the first event if `state.stage` has not counted it yet. began: `time.monotonic()`
    at which the run's clock stood at zero. notices: messages for the user, to be yielded first. plan: of a run that was
    just started. result: of one that had finished. restoring: the tensors that all processes have yet to read. report:
    called with what is being done, in a few words. group: the processes that train it.
    objective: the model with its loss, which sums gradients over the processes.
    adapters: that are trained instead of the parameters of the model.
    """

    folder: RunFolder
    task: Task[Any]
    config: TrainConfig
    device: torch.device
    model: Model
    objective: nn.Module
    optimizers: list[Optimizer]
    state: TrainingState
    train_tokens: int
    began: float
    lock: ExitStack
    report: Callable[[str], None]
    stages: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    plan: Plan | None = None
    result: Finish | None = None
    restoring: StoredTensors | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)
    shards: Shards | None = None
    adapters: Adapters | None = None

    @property
    def trained(self) -> Model:
        """The model that is trained: `model`, or its shards."""
        return self.model if self.shards is None else self.shards.model

    @property
    def seconds(self) -> float:
        """How long the run has taken, all its parts together."""
        return time.monotonic() - self.began

    @property
    def tokens_per_step(self) -> int:
        """Tokens that an optimizer step is trained on, about."""
        return self.task.tokens_per_batch * self.config.accumulate

    @property
    def first_step(self) -> int:
        """Steps that were taken before this stage."""
        return int(self.stages[-1]["step"]) if self.stages else 0

    @property
    def model_is_trained(self) -> bool:
        """Whether the model has taken its last step."""
        return self.state.progress >= (1.0 if self.state.cooldown is None else self.state.cooldown[1])

    @property
    def tokens_seen(self) -> int:
        """Tokens trained on in this stage."""
        return (self.state.step - self.first_step) * self.tokens_per_step

    @property
    def final_tokens(self) -> int:
        """How many tokens the last figures read."""
        least = LEAST_WITH_A_GOAL if self.config.stop_at is not None else 256 * self.model.config.context_length
        return max(least, int(FINAL_TOKENS * self.state.planned_tokens))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """`model` is a plain one with all its parameters inside the block, also with shards or adapters."""
        with (
            nullcontext() if self.shards is None else self.shards.gathered(),
            nullcontext() if self.adapters is None else self.adapters.merged(),
        ):
            yield

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The model in eval mode, in the precision of the run."""
        with self.whole(), eval_mode(self.model), autocast(self.device, self.config.precision):
            yield

    def keep_best(self, figures: Mapping[str, float], *, last: bool = False) -> None:
        """Make the parameters of now the best ones of the run, which the folder then holds with these figures.

        Args:
            figures: of a validation, which config.json has under "validation". last: they are the last ones, which it
                has by their own names.
        """
        self.state.best, self.state.best_step = self.task.to_minimise(figures), self.state.step
        self.write_parameters()
        self.state.best_metrics = {"step": self.state.step, **(figures if last else {"validation": dict(figures)})}
        self.put_metrics(self.state.best_metrics)

    def write_parameters(self) -> None:
        """Write model.safetensors, and the adapters if the run trains some."""
        if self.adapters is not None:
            self.adapters.keep_best()
        with self.whole():
            if self.group.rank:
                return
            self.folder.write_parameters(self.model)
        self.write_adapters()

    def write_adapters(self) -> None:
        """Write the adapters that model.safetensors was written with."""
        if self.adapters is not None:
            self.adapters.write(self.folder, self.folder.read_config()["data"].get("init"))

    def read_best(self) -> None:
        """Give `model` the parameters in the folder, for good."""
        if self.shards is not None:
            self.shards.fill()
        if self.adapters is not None:
            self.adapters.remove()
            self.adapters = None
        self.folder.read_parameters(self.model)

    def put_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write the figures of the parameters in the folder to config.json."""
        self.folder.write_config({**self.folder.read_config(), "metrics": metrics})

    def finish(self, reason: str, figures: dict[str, float]) -> Finish:
        """The last event. figures: of the best parameters."""
        return Finish(
            step=self.state.step,
            reason=reason,
            figures=figures,
            headline=self.task.headline(figures) if figures else "",
            seconds=self.seconds,
            unit=self.task.unit,
            held_out=self.task.held_out_size,
            validation_read=self.state.validation_read,
            more_context=self.task.final_has_more_context,
        )
