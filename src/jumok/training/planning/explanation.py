"""What a run would do and why, for `jumok train --explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jumok.config import count_parameters
from jumok.config.features import kind_of
from jumok.device import processor_name
from jumok.training.planning.plan import KEPT_SPEED, Choice, Plan, measured, memory_of, speedup
from jumok.training.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to train. seconds: of an optimizer step, uncompiled; infinity where there is too little memory."""

    precision: str
    attention: str
    seconds: float
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a run would do, and why.

    model: kind. device, threads: where. flops_per_token: of a forward and a backward pass, about: six for each
    parameter. choices: by the setting. candidates: what was measured. seconds_per_step: as measured, compiled if the
    run will be. steps, seconds, passes: as foreseen, which is slower. memory: see `plan.memory_of`.
    """

    model: str
    parameters: int
    flops_per_token: float
    device: str
    threads: int
    train_tokens: int
    tokens_per_step: int
    candidates: tuple[Option, ...]
    choices: Mapping[str, Choice]
    seconds_per_step: float
    steps: int
    seconds: float
    passes: float
    memory: Mapping[str, float]


def explain(plan: Plan, task: Task[Any], device: torch.device) -> Explanation:
    """Explain a plan. What it did not need to measure is measured now."""
    config, parameters = plan.config, count_parameters(plan.shape)
    costs = plan.costs or measured(plan.shape, config, task, device)
    chosen, per_step = costs[0], task.tokens_per_batch * config.accumulate
    seconds = chosen.of_step(config, speedup(config))
    return Explanation(
        model=kind_of(plan.shape),
        parameters=parameters,
        flops_per_token=6.0 * parameters,
        device=processor_name(device),
        threads=torch.get_num_threads(),
        train_tokens=plan.train_tokens,
        tokens_per_step=per_step,
        candidates=tuple(
            Option(
                precision=cost.precision,
                attention=cost.attention,
                seconds=cost.of_step(config),
                chosen=cost is chosen,
            )
            for cost in sorted(costs, key=lambda cost: (cost.precision != "float32", cost.attention))
        ),
        choices=plan.choices,
        seconds_per_step=seconds,
        steps=round(plan.tokens / per_step),
        seconds=plan.tokens / per_step * seconds / KEPT_SPEED,
        passes=plan.tokens / plan.train_tokens,
        memory=memory_of(parameters, chosen),
    )
