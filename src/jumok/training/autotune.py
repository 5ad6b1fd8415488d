"""What a training step costs on this machine, measured for a second or two before a run.

Nothing is remembered from one run to the next. A measurement may be wrong, because machines are shared and get hot: a
run whose steps take another time than measured plans anew (`jumok.training.clock`).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from jumok.config import ModelConfig, Precision, TrainConfig
from jumok.device import autocast, keeping_memory, multiplies_bfloat16, own_random, seconds_of
from jumok.memory import is_out_of_memory
from jumok.models import build
from jumok.nn.attention import Implementation, ScaledDotProductAttention, train_attention_by
from jumok.nn.blocks import Block
from jumok.training.adapters import Adapters
from jumok.training.compilation import recompute_blocks
from jumok.training.optim import make_optimizers
from jumok.training.tasks import Task
from jumok.training.tasks.task import Objective, mean_loss

MEASURED_TOKENS = 1024  # in the batch that is timed on a CPU
MEASURING = 2.0  # seconds after which no new round of passes begins
ROUNDS = 3  # of passes, at most
TOO_SLOW = 1.5  # times as long as the fastest: such a pass is not in the next round


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What training costs in one precision, with one implementation of attention, uncompiled.

    Attributes:
        seconds_per_batch: of a forward and a backward pass; infinity where the memory does not suffice.
        update: seconds of an update of the parameters. activation_bytes: that a forward pass keeps for the backward
            pass, about. gradients, moments: bytes of those, of what is trained.
    """

    precision: Precision
    attention: Implementation
    seconds_per_batch: float
    update: float = 0.0
    activation_bytes: float = 0.0
    gradients: float = 0.0
    moments: float = 0.0

    def of_step(self, config: TrainConfig, speedup: float = 1.0) -> float:
        """Return the seconds of an optimizer step. speedup: of its passes, by compiling."""
        return config.accumulate * self.seconds_per_batch / speedup + self.update


def open_precisions(config: TrainConfig, device: torch.device) -> tuple[Precision, ...]:
    """Return the precisions to choose from: what was asked for, or those that the device computes without emulation."""
    if config.precision != "auto":
        return (config.precision,)
    return ("float32", "bfloat16") if multiplies_bfloat16(device) else ("float32",)


def measure(shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device) -> list[Cost]:
    """Measure what training costs in each precision and with each implementation of attention that are open.

    Passes are interleaved in rounds, and the shortest time of each counts. A way that is much slower than another is
    measured in the first round only. After `MEASURING` seconds no round begins: then each precision was tried once, and
    maybe only with the usual implementation of attention.
    """
    began = time.perf_counter()
    precisions = open_precisions(config, device)
    usual = usual_attention(config, device)
    with keeping_memory(device), own_random(device):
        trial = _Trial(shape, config, task, device, precisions)
        first = {precision: trial.first_pass(precision, usual) for precision in precisions}
        works = [(precision, usual) for precision, found in first.items() if math.isfinite(found.seconds)]
        if config.attention == "auto" and any(found.can_choose for found in first.values()):
            works += [(precision, "fused") for precision, _ in works]
        updates = {precision: trial.seconds(partial(trial.update, precision)) for precision in dict(works)}
        if math.inf in updates.values():  # the optimizers' state does not fit, so no step does
            first, works, updates = dict.fromkeys(precisions, _FirstPass(math.inf)), [], {}
        times: dict[tuple[Precision, Implementation], list[float]] = {work: [] for work in works}
        for _ in range(ROUNDS):
            if not works or time.perf_counter() > began + MEASURING:
                break
            for work in works:
                times[work].append(trial.seconds(partial(trial.one_pass, *work)))
            least = min(min(times[work]) for work in works)
            works = [work for work in works if min(times[work]) <= TOO_SLOW * least]
            for precision in dict(works):
                updates[precision] = min(updates[precision], trial.seconds(partial(trial.update, precision)))
    return [
        Cost(
            precision=precision,
            attention=attention,
            seconds_per_batch=trial.scale * min(times.get((precision, attention)) or [first[precision].seconds]),
            update=updates.get(precision, 0.0),
            activation_bytes=trial.scale * first[precision].kept,
            gradients=trial.gradients(),
            moments=trial.moments(),
        )
        for precision, attention in dict.fromkeys([(precision, usual) for precision in precisions] + list(times))
        if attention == usual or math.isfinite(min(times[precision, attention], default=math.inf))
    ]


def usual_attention(config: TrainConfig, device: torch.device) -> Implementation:
    """Return what computes attention where nothing was measured."""
    if config.attention != "auto":
        return config.attention
    return "chunked" if device.type == "cpu" else "fused"


class _FirstPass(NamedTuple):
    """seconds: infinity if there is too little memory. kept: bytes. can_choose: attention has two implementations."""

    seconds: float
    kept: int = 0
    can_choose: bool = False


class _Trial:
    """A model like that of the run, its optimizers for each precision, and a batch or a part of one.

    scale: how many times as much a batch of the run costs as the part.
    """

    def __init__(
        self,
        shape: ModelConfig,
        config: TrainConfig,
        task: Task[Any],
        device: torch.device,
        precisions: Sequence[Precision],
    ) -> None:
        batch = task.parts(0)[0]
        rows = len(batch[0])
        if device.type == "cpu":  # other devices are only as fast as they are filled
            rows = max(1, min(rows, MEASURED_TOKENS // batch[0].shape[1]))
        self.batch = tuple(tensor[:rows] for tensor in batch)
        self.scale, self.device = 1 / task.cost(self.batch), device
        self.model = build(shape).to(device)
        if config.recompute:
            recompute_blocks(self.model)
            whole = next(part for part in self.model.modules() if isinstance(part, Block))
            del whole.forward  # in the backward pass one block at a time has all that it computes
        if config.lora is not None:
            Adapters(self.model, config.lora, seed=config.seed)
        self.objective = Objective(task, self.model)
        self.optimizers = {
            precision: make_optimizers(self.model, dataclasses.replace(config, precision=precision))
            for precision in precisions
        }
        first, *others = self.optimizers.values()
        for optimizers in others:  # one state for all, because a step has one, too
            for optimizer, one in zip(optimizers, first, strict=True):
                optimizer.state = one.state

    def one_pass(self, precision: Precision, attention: Implementation) -> None:
        """Forward and backward."""
        train_attention_by(self.model, attention)
        with autocast(self.device, precision):
            loss = mean_loss(*self.objective(*self.batch))
        self.model.zero_grad()
        loss.backward()

    def first_pass(self, precision: Precision, attention: Implementation) -> _FirstPass:
        """Do the same, and look at the tensors that it keeps and at the inputs of attention."""
        kept: dict[int, int] = {}  # bytes, by their place in memory
        choices: list[bool] = []
        parameters = {tuple(sorted(p.shape)) for p in self.model.parameters() if p.dim() == 2}

        def keep(tensor: Tensor) -> Tensor:
            if tuple(sorted(tensor.shape)) not in parameters:  # a copy of a matrix in bfloat16, not of the batch
                storage = tensor.untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        def look(seam: ScaledDotProductAttention, args: tuple[Any, ...]) -> None:
            choices.append(seam.can_choose(*args[:3]))

        seams = [part for part in self.model.modules() if isinstance(part, ScaledDotProductAttention)]
        hooks = [seam.register_forward_pre_hook(look) for seam in seams]
        try:
            with saved_tensors_hooks(keep, lambda tensor: tensor):
                seconds = self.seconds(partial(self.one_pass, precision, attention))
        finally:
            for hook in hooks:
                hook.remove()
        if math.isinf(seconds):
            return _FirstPass(seconds)
        return _FirstPass(seconds, sum(kept.values()), any(choices))

    def seconds(self, work: Callable[[], None]) -> float:
        """Return how long one call takes; infinity if there is too little memory."""
        try:
            return seconds_of(work, self.device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return math.inf

    def update(self, precision: Precision) -> None:
        """Update the parameters, with the products of the optimizer in a precision."""
        for optimizer in self.optimizers[precision]:
            optimizer.step()

    def gradients(self) -> int:
        """Return the bytes of the gradients."""
        return sum(parameter.nbytes for parameter in self.model.parameters() if parameter.requires_grad)

    def moments(self) -> int:
        """Return the bytes of the optimizers' state."""
        first = next(iter(self.optimizers.values()))
        states = (state for optimizer in first for state in optimizer.state.values())
        return sum(tensor.nbytes for state in states for tensor in state.values())
