"""What is decided before the first step: precision, what computes attention, compiling, dropout. By measuring on the
machine and the text at hand; the outcome is written to config.json, and a resumed run keeps to it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jumok.config import ModelConfig, Precision, TrainConfig, count_kept, count_parameters
from jumok.device import free_memory, has_compiler, processor_name, require_memory
from jumok.errors import ConfigError
from jumok.messages import message, tr
from jumok.models import kind_of, require_room
from jumok.nn.attention import Implementation
from jumok.training.autotune import Cost, costs_of
from jumok.training.tasks import Task

COMPILE_FROM = 90.0  # seconds a run must last before compiling, 10 to 30 s of it on two cores, pays
COMPILED_SPEEDUP = 1.3  # about (bench/README.md: 1.3 to 1.5); only used to foresee how often a run will see its text
LEAST_STEPS = 500  # in a run by minutes, however often they pass over a small text
# (passes over the text, dropout): up to so many passes this rate. The steps are a judgement from few runs: novels,
# seen 6 times, did well with 0.2, and stories, seen once, without.
DROPOUT = ((2.0, 0.0), (4.0, 0.1), (float("inf"), 0.2))
STEP_NUMBERS = 3  # that a step needs for each parameter at least: itself, its gradient, a moment
HALF = 2  # bytes of a number in bfloat16
SURELY = 0.5  # of what a pass was seen to keep is counted: some of it may be freed before the rest is made
AS_ASKED = message("as asked")
TOO_LITTLE = message("too little memory for any step")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to train: seconds of an optimizer step, uncompiled, infinity where there is too little memory for it.

    worked_out: attention alone was timed this way, and the step by its difference. chosen: the run takes it.
    """

    precision: str
    attention: str
    seconds: float
    worked_out: bool
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What a run would do, and why: for people, see `jumok train --explain`.

    model: kind. device, threads: where. flops_per_token: of a pass forward and backward, in matrix products and
    attention. choices: what was decided, and why in a few words, by the setting. candidates: what was tried.
    tokens_per_step, seconds_per_step, steps, seconds, passes: as foreseen, compiled if it will be; validation and
    samples left out. memory: bytes of the weights, their gradients, the optimizers' moments, and of what a forward
    pass keeps, about.
    """

    model: str
    parameters: int
    flops_per_token: float
    device: str
    threads: int
    train_tokens: int
    tokens_per_step: int
    candidates: tuple[Candidate, ...]
    choices: Mapping[str, tuple[str, str]]
    seconds_per_step: float
    steps: int
    seconds: float
    passes: float
    memory: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """shape and config with nothing left to "auto"; tokens: how many the run will see, about; notices: for people."""

    shape: ModelConfig
    config: TrainConfig
    tokens: int
    notices: tuple[str, ...]
    explanation: Explanation


def require_possible(config: TrainConfig, device: torch.device) -> None:
    """Raise ConfigError for what the device cannot do."""
    if config.attention == "chunked" and device.type != "cpu":
        raise ConfigError(
            "attention='chunked' is made for CPUs, and this run trains on {device}; leave it out, "
            "or give {--device cpu}.",
            device=device,
        )


def make_plan(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    train_tokens: int,
    *,
    choose_dropout: bool,
) -> Plan:
    """Measure for some seconds, and decide what the settings leave open.

    Args:
        train_tokens: length of the training text. choose_dropout: set the rate by how often the text will be seen.

    Raises:
        ConfigError: the memory cannot hold the model, or a training step of it.
    """
    require_room(shape)
    parameters, free = count_parameters(shape), free_memory(device)
    fewest = STEP_NUMBERS * 4 * parameters + HALF * count_kept(shape) * task.tokens_per_batch
    _require_room(fewest, free, task)
    precisions: tuple[Precision, ...] = ("float32", "bfloat16") if config.precision == "auto" else (config.precision,)
    costs = costs_of(shape, config, task, device, precisions)
    precision = min(precisions, key=lambda p: costs[p].of_step(config))
    cost = costs[precision]
    memory = _memory(parameters, cost)
    _require_room(sum(memory.values()) - SURELY * memory["kept"], free, task)
    per_step = task.tokens_per_batch * config.accumulate
    if config.steps is not None:
        duration, tokens = config.steps * cost.of_step(config), config.steps * per_step
    else:
        steps = most_tokens(config, task, train_tokens) / per_step
        duration, tokens = min(60 * (config.minutes or 0), steps * cost.of_step(config)), 0
    compiled, why_compiled = config.compile, tr(AS_ASKED)
    if compiled == "auto":
        against = _against_compiling(task, device, duration)
        compiled, why_compiled = ("off", against) if against else ("on", _lasts(duration))
    speedup = COMPILED_SPEEDUP if compiled == "on" else 1.0
    if config.minutes is not None:
        foreseen = 60 * config.minutes / cost.of_step(config, speedup) * per_step
        tokens = int(min(most_tokens(config, task, train_tokens), foreseen))
    passes = tokens / train_tokens
    dropout, why_dropout = shape.dropout, tr(AS_ASKED)
    if choose_dropout:
        dropout = min(task.most_dropout, next(rate for limit, rate in DROPOUT if passes <= limit))
        why_dropout = tr("the text will be seen {passes:.1f} times", passes=passes)
        if dropout == task.most_dropout:
            why_dropout += tr(", and it is at most {dropout:g} for this task", dropout=dropout)
    shape = dataclasses.replace(shape, dropout=dropout)
    decided = dataclasses.replace(config, precision=precision, attention=cost.attention, compile=compiled)
    tokens = max(per_step, tokens)
    return Plan(
        shape=shape,
        config=decided,
        tokens=tokens,
        notices=_notices(parameters, dropout, train_tokens, passes, config),
        explanation=Explanation(
            model=kind_of(shape),
            parameters=parameters,
            flops_per_token=cost.flops / task.tokens_per_batch,
            device=processor_name(device),
            threads=torch.get_num_threads(),
            train_tokens=train_tokens,
            tokens_per_step=per_step,
            candidates=tuple(_candidates(costs, decided)),
            choices={
                "precision": (precision, _why_precision(config, costs, precision)),
                "attention": (cost.attention, _why_attention(config, cost, device)),
                "compile": (compiled, why_compiled),
                "dropout": (f"{dropout:g}", why_dropout),
            },
            seconds_per_step=cost.of_step(config, speedup),
            steps=round(tokens / per_step),
            seconds=tokens / per_step * cost.of_step(config, speedup),
            passes=passes,
            memory=memory,
        ),
    )


def _require_room(needed: float, free: int | None, task: Task[Any]) -> None:
    what = tr("a training step over {tokens} tokens", tokens=f"{task.tokens_per_batch:,}")
    require_memory(int(needed), what, free=free)


def most_tokens(config: TrainConfig, task: Task[Any], train_tokens: int) -> float:
    """How many tokens a run by minutes may see, by its limit on passes over a text of train_tokens."""
    if not config.passes:
        return math.inf
    return max(config.passes * train_tokens, LEAST_STEPS * task.tokens_per_batch * config.accumulate)


# --- why ------------------------------------------------------------------------------------------------------------


def _against_compiling(task: Task[Any], device: torch.device, duration: float) -> str:
    """Why a run of so many seconds is not compiled, or ""."""
    if math.isinf(duration):
        return tr(TOO_LITTLE)
    if not task.fixed_shapes:
        return tr("its batches differ in shape, and each shape would be compiled anew")
    if duration < COMPILE_FROM:
        return _lasts(duration)
    if not has_compiler(device):
        if device.type == "cpu":
            return tr("no C++ compiler was found (g++, clang++ or cl)")
        return (
            tr("Triton is not installed") if device.type == "cuda" else tr("not done on {device}", device=device.type)
        )
    return ""


def _lasts(duration: float) -> str:
    return tr(
        "the run would last {seconds:,.0f} seconds without, and compiling pays from {least:.0f} on",
        seconds=duration,
        least=COMPILE_FROM,
    )


def _why_precision(config: TrainConfig, costs: Mapping[Precision, Cost], chosen: Precision) -> str:
    if config.precision != "auto":
        return tr(AS_ASKED)
    if math.isinf(costs[chosen].batch):
        return tr(TOO_LITTLE)
    other = next(p for p in costs if p != chosen)
    times = costs[other].of_step(config) / costs[chosen].of_step(config)
    if math.isinf(costs[other].batch):
        return tr("too little memory for {other}", other=other)
    return tr("{times:.1f} times as fast as {other}", times=times, other=other)


def _why_attention(config: TrainConfig, cost: Cost, device: torch.device) -> str:
    if config.attention != "auto":
        return tr(AS_ASKED)
    if device.type != "cpu":
        return tr("the only one on {device}", device=device.type)
    if not cost.attentions:
        return tr("nothing to choose (no attention, dropout on its weights, very few tokens), or no time to measure it")
    taken = ", ".join(f"{name} {1000 * seconds:,.1f}" for name, seconds in cost.attentions.items())
    fastest = min(cost.attentions, key=lambda name: cost.attentions[name])
    if cost.attention == fastest:
        return tr("milliseconds of a pass: {taken}", taken=taken)
    return tr("milliseconds of a pass: {taken}, which is not clear enough", taken=taken)


def _candidates(costs: Mapping[Precision, Cost], decided: TrainConfig) -> Iterator[Candidate]:
    for precision, cost in costs.items():
        names: tuple[Implementation, ...] = tuple(cost.attentions) or (cost.attention,)
        for name in names:
            yield Candidate(
                precision=precision,
                attention=name,
                seconds=cost.of_step(decided, attention=name),
                worked_out=name != cost.attention,
                chosen=(precision, name) == (decided.precision, decided.attention),
            )


def _memory(parameters: int, cost: Cost) -> dict[str, float]:
    weights = 4.0 * parameters
    return {"weights": weights, "gradients": weights, "moments": cost.moments, "kept": cost.kept}


def _notices(parameters: int, dropout: float, train_tokens: int, passes: float, config: TrainConfig) -> tuple[str, ...]:
    if parameters < train_tokens or passes < 4:
        return ()
    guard = (
        tr("The run stops early after {patience} validations that bring nothing better.", patience=config.patience)
        if config.patience
        else tr("The run never stops early.")
    )
    return (
        tr(
            "The text is small for this model: {tokens:,} training tokens for {parameters:.1f} M parameters, and the "
            "run will pass over it about {passes:.0f} times. Dropout is {dropout:g}, and the best weights are kept. "
            "{guard} More text, fewer steps or a smaller {--size} generalise better.",
            tokens=train_tokens,
            parameters=parameters / 1e6,
            passes=passes,
            dropout=dropout,
            guard=guard,
        ),
    )
