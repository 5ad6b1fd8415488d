"""What is decided before the first step: precision, compiling, dropout. By measuring on the machine and the text at
hand, once; the outcome is written to config.json, and a resumed run keeps to it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch

from jumok.config import ModelConfig, Precision, TrainConfig
from jumok.device import autocast, has_compiler, seconds_per_call
from jumok.models import build
from jumok.optim import make_optimizers
from jumok.tasks import Task

COMPILE_FROM = 90.0  # seconds a run must last before compiling, 10 to 30 s of it on two cores, pays
COMPILED_SPEEDUP = 1.5  # about; only used to foresee how often a run will see its text
MEASURED_TOKENS = 2048  # in the batch that is timed
LEAST_STEPS = 500  # in a run by minutes, however often they pass over a small text
# (passes over the text, dropout): up to so many passes this rate. The steps are a judgement from few runs: novels,
# seen 6 times, did well with 0.2, and stories, seen once, without.
DROPOUT = ((2.0, 0.0), (4.0, 0.1), (float("inf"), 0.2))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """shape and config with nothing left to "auto"; tokens: how many the run will see, about; notices: for people."""

    shape: ModelConfig
    config: TrainConfig
    tokens: int
    notices: tuple[str, ...]


def make_plan(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    train_tokens: int,
    *,
    choose_dropout: bool,
) -> Plan:
    """Measure, and decide what the settings leave open.

    Args:
        train_tokens: length of the training text. choose_dropout: set the rate by how often the text will be seen.
    """
    candidates: tuple[Precision, ...] = ("float32", "bfloat16") if config.precision == "auto" else (config.precision,)
    costs = {p: _affordable(shape, config, task, device, p) for p in candidates}
    precision = min(candidates, key=lambda p: costs[p].of_step(config))
    cost = costs[precision]
    per_step = task.tokens_per_batch * config.accumulate
    if config.steps is not None:
        duration, tokens = config.steps * cost.of_step(config), config.steps * per_step
    else:
        steps = most_tokens(config, task, train_tokens) / per_step
        duration, tokens = min(60 * (config.minutes or 0), steps * cost.of_step(config)), 0
    compiled = config.compile
    if compiled == "auto":
        pays = task.fixed_shapes and duration >= COMPILE_FROM  # each new shape would be compiled anew
        compiled = "on" if pays and has_compiler(device) else "off"
    if config.minutes is not None:
        speedup = COMPILED_SPEEDUP if compiled == "on" else 1.0
        foreseen = 60 * config.minutes / cost.of_step(config, speedup) * per_step
        tokens = int(min(most_tokens(config, task, train_tokens), foreseen))
    passes = tokens / train_tokens
    dropout = next(rate for limit, rate in DROPOUT if passes <= limit) if choose_dropout else shape.dropout
    shape = dataclasses.replace(shape, dropout=dropout)
    return Plan(
        shape=shape,
        config=dataclasses.replace(config, precision=precision, compile=compiled),
        tokens=max(per_step, tokens),
        notices=_notices(shape, train_tokens, passes, config),
    )


def most_tokens(config: TrainConfig, task: Task[Any], train_tokens: int) -> float:
    """How many tokens a run by minutes may see, by its limit on passes over a text of train_tokens."""
    if not config.passes:
        return math.inf
    return max(config.passes * train_tokens, LEAST_STEPS * task.tokens_per_batch * config.accumulate)


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """Seconds of one pass forward and backward over a batch, uncompiled, and of one update of the weights."""

    batch: float
    update: float

    def of_step(self, config: TrainConfig, speedup: float = 1.0) -> float:
        """Seconds of an optimizer step whose passes are so many times as fast."""
        return config.accumulate * self.batch / speedup + self.update


def _affordable(
    shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device, precision: str
) -> _Cost:
    """As `_measured`; a precision for which the device has too little memory costs for ever."""
    try:
        return _measured(shape, config, task, device, precision)
    except torch.OutOfMemoryError:
        return _Cost(batch=math.inf, update=0.0)


def _measured(shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device, precision: str) -> _Cost:
    with torch.random.fork_rng(devices=[]):
        model = build(shape).to(device)
    optimizers = make_optimizers(model, config)
    batch = task.batch(0)
    rows = whole = len(batch[0])
    if device.type == "cpu":  # a part tells enough there; other devices are only as fast as they are filled
        rows = max(1, min(len(batch[0]), MEASURED_TOKENS // batch[0].shape[1]))
        batch = tuple(part[:rows] for part in batch)
    batch = tuple(part.to(device) for part in batch)

    def passes() -> None:
        with autocast(device, precision):
            loss = task.loss(model, batch)
        model.zero_grad()
        loss.backward()

    def update() -> None:
        for optimizer in optimizers:
            optimizer.step()

    return _Cost(
        batch=seconds_per_call(passes, device) * whole / rows,
        update=seconds_per_call(update, device),
    )


def _notices(shape: ModelConfig, train_tokens: int, passes: float, config: TrainConfig) -> tuple[str, ...]:
    with torch.device("meta"):
        parameters = build(shape).parameter_count()
    if parameters < train_tokens or passes < 4:
        return ()
    guard = (
        f"stops early if the held-out loss rises {config.patience} times" if config.patience else "never stops early"
    )
    return (
        f"The text is small for this model: {train_tokens:,} training tokens for {parameters / 1e6:.1f} M parameters, "
        f"and the run will pass over it about {passes:.0f} times. Dropout is {shape.dropout:g}, the best weights are "
        f"kept, and the run {guard}; more text, fewer steps or a smaller --size generalise better.",
    )
