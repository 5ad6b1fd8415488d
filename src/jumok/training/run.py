"""What a training run is made of, and the interface of its parts that change from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from jumok.config import TrainConfig
from jumok.device import autocast
from jumok.models import Model
from jumok.models.modes import eval_mode
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.training.optim import Mean
from jumok.training.parallel import ProcessGroup, Shards
from jumok.training.policy import Plan
from jumok.training.tasks import Task

if TYPE_CHECKING:
    from jumok.runs.stored import StoredTensors
    from jumok.training.adapters import Adapters


class Stateful:
    """A part of a run that owns what a resumed run needs of it: the fields that its class annotates."""

    def state_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values, by name."""
        return {name: getattr(self, name) for name in type(self).__annotations__}

    def load_state_dict(self, numbers: Mapping[str, Any]) -> None:
        """Take over the fields that are in the numbers of a training state; none are when a run begins."""
        for name in type(self).__annotations__:
            if name in numbers:
                setattr(self, name, numbers[name])


@dataclass(kw_only=True)
class RunHistory:
    """What lies behind a run when its loop begins: nothing but its plan for a new one, a saved state for a resumed one.

    Attributes:
        began: `time.monotonic()` at which this part of the run began.
        numbers: the state that the parts of the loop begin with, by the names of their fields, and the sizes of the
            logs.
        notices: messages for the user, to be yielded first.
        plan: of a run that was just started. result: of one that had finished.
        restoring: shards that all processes have yet to read.
    """

    began: float
    numbers: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    plan: Plan | None = None
    result: Finish | None = None
    restoring: StoredTensors | None = None


@dataclass(kw_only=True)
class TrainingRun:
    """A run that is ready to train: its locked folder, its settings, its model and its optimizers.

    What changes from step to step belongs to the parts of `jumok.training.loop.Loop`.

    Attributes:
        group: the processes that train it. report: called with what is being done, in a few words.
        objective: the model with its loss; its gradients are summed over the processes.
        shards: of the model, if it is divided among the processes.
        adapters: that are trained instead of the parameters of the model.
    """

    folder: RunFolder
    lock: ExitStack
    task: Task[Any]
    config: TrainConfig
    device: torch.device
    group: ProcessGroup
    report: Callable[[str], None]
    history: RunHistory
    model: Model
    objective: nn.Module
    optimizers: list[Optimizer]
    shards: Shards | None = None
    adapters: Adapters | None = None

    @property
    def trained(self) -> Model:
        """Return the model that is trained: `model`, or its shards."""
        return self.model if self.shards is None else self.shards.model

    @property
    def tokens_per_step(self) -> int:
        """Tokens that an optimizer step is trained on, about."""
        return self.task.tokens_per_batch * self.config.accumulate

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """What is trained has the mean of its newest parameters inside the block, if the run keeps one."""
        with ExitStack() as means:
            for optimizer in self.optimizers:
                if isinstance(optimizer, Mean):
                    means.enter_context(optimizer.applied())
            yield

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
        """Put the model into eval mode inside the block, in the precision of the run."""
        with self.whole(), eval_mode(self.model), autocast(self.device, self.config.precision):
            yield

    def begin_task(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Let the task begin with the parameters of now; see `Task.begin`."""
        with self.evaluating():
            return self.task.begin(self.model, named, self.report)

    def write_parameters(self) -> None:
        """Write model.safetensors, with the adapters merged if the run trains some."""
        with self.whole():
            if self.group.rank:
                return
            self.folder.write_parameters(self.model)

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

    def finish(self, reason: str, figures: dict[str, float], *, step: int, seconds: float, read: int) -> Finish:
        """Return the last event.

        Args:
            figures: of the best parameters. read: how much of the held-out part the last validation has read.
        """
        return Finish(
            step=step,
            reason=reason,
            figures=figures,
            headline=self.task.headline(figures) if figures else "",
            seconds=seconds,
            unit=self.task.unit,
            held_out=self.task.held_out_size,
            validation_read=read,
            more_context=self.task.final_has_more_context,
        )
