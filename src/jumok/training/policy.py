"""What is decided before the first step: precision, implementation of attention, compiling, dropout.

Settings that leave something open are decided by measuring on the machine and the text at hand. The decisions are
written to config.json, and a resumed run keeps to them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from jumok.config import ModelConfig, Precision, TrainConfig, count_kept, count_parameters
from jumok.config.features import kind_of
from jumok.device import has_compiler, multiplies_bfloat16, processor_name
from jumok.errors import ConfigError, TrainingError
from jumok.memory import free_memory, is_out_of_memory, require_memory
from jumok.messages import message, tr
from jumok.models import require_memory_for_model
from jumok.training.autotune import Cost, measure, open_precisions
from jumok.training.compilation import CompileTimes
from jumok.training.tasks import Task

# How many times as fast passes are if they are compiled, about: 1.2 to 1.5 and 1.03 to 1.2 (bench/LOG.md). In float32
# products take a larger part of a pass, and compiling leaves them as they are.
COMPILED_SPEEDUP: dict[Precision, float] = {"bfloat16": 1.3, "float32": 1.1}
MOST_COMPILING = 0.2  # of a run, whatever it would save: the estimates of both may be wrong
LEAST_COMPILING = 2.0  # seconds that it takes with all code in the cache, half of which imports the compiler
# The speed that a run keeps, as a share of what was measured for a second or two: in runs of 5 and 10 minutes 0.76 and
# 0.78, validations included.
KEPT_SPEED = 0.8
# (passes over the text, dropout): the rate for up to so many passes. Judged by runs of 2 to 20 passes over parts of
# novels with the default weight decay (bench/LOG.md).
DROPOUT = ((5.0, 0.0), (10.0, 0.1), (math.inf, 0.2))
FUSED_MARGIN = 0.9  # the fused kernel is chosen where a pass takes at most this share of the time: less may be noise
STEP_NUMBERS = 3  # that a step needs for each parameter at least: itself, its gradient, a moment
NUMBER_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2}
COUNTED_SHARE = 0.5  # share of the memory kept in a pass that is counted: some may be freed before the rest is made
ENDS_EARLY = 0.9  # of the time, below which a limit on passes is told
AS_ASKED = message("as asked")
TOO_LITTLE = message("too little memory for any step")


class Choice(NamedTuple):
    """A decision, and its reason in a few words."""

    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run with nothing left to "auto".

    tokens: how many the run will see, about. train_tokens: of the text. choices: by the setting. costs: what was
    measured, the chosen one first; none where nothing was left open. notices: messages for the user.
    """

    shape: ModelConfig
    config: TrainConfig
    tokens: int
    train_tokens: int
    choices: Mapping[str, Choice]
    costs: Sequence[Cost]
    notices: tuple[str, ...]

    @property
    def seconds_per_step(self) -> float:
        """As foreseen, without validation and samples. 0: nothing was measured. Infinity: too little memory."""
        return self.costs[0].of_step(self.config, speedup(self.config)) if self.costs else 0.0


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
    processes: int = 1,
) -> Plan:
    """Decide what the settings leave open; measure for a second or two if a decision needs it.

    Args:
        train_tokens: length of the training text.
        choose_dropout: the dropout follows from how often the text will be seen.
        processes: that compute a batch together; one of them measures, and the time of a pass is divided among them.

    Raises:
        ConfigError: the memory cannot hold the model, or a training step of it.
    """
    parameters = count_parameters(shape)
    found = _costs_with_room(shape, config, task, device, parameters)
    costs = [dataclasses.replace(cost, seconds_per_batch=cost.seconds_per_batch / processes) for cost in found]
    choices = {"precision": _precision(config, costs, device), "attention": _attention(config, costs, device)}

    def foresee(compiling: Choice, seconds: float = 0.0) -> Plan:
        with_it = {**choices, "compile": compiling}
        return _foresee(shape, config, task, device, train_tokens, choose_dropout, costs, with_it, seconds)

    if config.compile == "off":
        return foresee(Choice("off", tr(AS_ASKED)))
    plan = foresee(Choice("on", tr(AS_ASKED)))  # the code depends on what else is decided
    if config.compile == "on":
        known = CompileTimes(device).expected(plan.shape, plan.config) if config.minutes is not None else 0.0
        return foresee(plan.choices["compile"], known)
    if against := _against_compiling(task, device, costs):
        return foresee(Choice("off", against))
    length = _seconds_uncompiled(config, costs, task, train_tokens)
    saved = length * (1 - costs[0].of_step(config, speedup(plan.config)) / costs[0].of_step(config))
    seconds = LEAST_COMPILING
    if seconds < min(saved, MOST_COMPILING * length):
        seconds = CompileTimes(device).expected(plan.shape, plan.config)
    return foresee(_compiling(seconds, saved, length), seconds)


def _foresee(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    train_tokens: int,
    choose_dropout: bool,
    costs: Sequence[Cost],
    choices: dict[str, Choice],
    compiling: float,
) -> Plan:
    """Foresee how often a run sees its text, and decide what follows from that. compiling: seconds, if it is done."""
    parameters = count_parameters(shape)
    decided = dataclasses.replace(config, **{name: choice.value for name, choice in choices.items()})
    per_step = task.tokens_per_batch * config.accumulate
    if config.minutes is None:
        foreseen = tokens = (config.steps or 0) * per_step
    else:
        seconds = costs[0].of_step(config, speedup(decided)) / KEPT_SPEED
        left = 60 * config.minutes - (compiling if decided.compile == "on" else 0)
        foreseen = int(max(0.0, left) / seconds * per_step)
        tokens = int(min(most_tokens(decided, task, train_tokens), foreseen))
    passes = tokens / train_tokens
    dropout = Choice(shape.dropout, tr(AS_ASKED))
    if choose_dropout:
        dropout = _dropout(passes, task)
    return Plan(
        shape=dataclasses.replace(shape, dropout=dropout.value),
        config=decided,
        tokens=max(per_step, tokens),
        train_tokens=train_tokens,
        choices=_shown({**choices, "dropout": dropout}),
        costs=costs,
        notices=(
            *slow_precision(decided, device),
            *_small_text(parameters, dropout.value, train_tokens, passes, config),
            *_ends_early(passes, tokens / max(1, foreseen), config),
        ),
    )


def must_measure(config: TrainConfig, device: torch.device) -> bool:
    """Return whether a decision depends on how long a step takes."""
    chooses_attention = config.attention == "auto" and device.type == "cpu"
    chooses_precision = len(open_precisions(config, device)) > 1
    return config.minutes is not None or chooses_attention or chooses_precision or config.compile == "auto"


def slow_precision(config: TrainConfig, device: torch.device) -> tuple[str, ...]:
    """Return a message for a run in bfloat16 on a processor that emulates it."""
    if config.precision != "bfloat16" or multiplies_bfloat16(device):
        return ()
    return (
        tr(
            "This processor has no instructions for products in bfloat16, so training is many times slower than in "
            "float32. A new run without {--precision bfloat16} is fast."
        ),
    )


def measured(shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device) -> list[Cost]:
    """Measure what each way to train costs, the best one first."""
    costs = measure(shape, config, task, device)
    return sorted(costs, key=lambda cost: cost.of_step(config) / (FUSED_MARGIN if cost.attention == "fused" else 1.0))


def memory_of(parameters: int, cost: Cost) -> dict[str, float]:
    """Return about how many bytes parameters, gradients, moments and the activations of a forward pass take."""
    size = 4.0 * parameters
    return {"parameters": size, "gradients": cost.gradients, "moments": cost.moments, "kept": cost.activation_bytes}


def most_tokens(config: TrainConfig, task: Task[Any], train_tokens: int) -> float:
    """Return how many tokens a run by minutes may see, by its limit on passes over a text of train_tokens."""
    if not config.passes:
        return math.inf
    least = task.least_steps * task.tokens_per_batch * config.accumulate
    return max(config.passes * train_tokens, least)


def speedup(config: TrainConfig) -> float:
    """Return how many times as fast passes are as measured, about."""
    return 1.0 if config.compile != "on" or config.precision == "auto" else COMPILED_SPEEDUP[config.precision]


def _costs_with_room(
    shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device, parameters: int
) -> list[Cost]:
    """Measure, if anything must be. Raises ConfigError where the memory does not suffice."""
    require_memory_for_model(shape)
    free = free_memory(device)
    number = min(NUMBER_BYTES[precision] for precision in open_precisions(config, device))
    kept = number * count_kept(shape, recompute=config.recompute) * task.tokens_per_batch
    numbers = STEP_NUMBERS if config.lora is None else 1  # there are few adapters
    _require_step_room(numbers * 4 * parameters + kept, free, task, config)
    costs = measured(shape, config, task, device) if must_measure(config, device) else []
    if costs:
        memory = memory_of(parameters, costs[0])
        _require_step_room(sum(memory.values()) - COUNTED_SHARE * memory["kept"], free, task, config)
    return costs


def _require_step_room(needed: float, free: int | None, task: Task[Any], config: TrainConfig) -> None:
    tokens = f"{task.tokens_per_batch:,}"
    what = (
        tr("a training step over {tokens} tokens", tokens=tokens)
        if config.recompute
        else tr("a training step over {tokens} tokens without {--recompute}", tokens=tokens)
    )
    require_memory(int(needed), what, free=free)


@contextmanager
def memory_errors(shape: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Convert an error of too little memory inside the block to a TrainingError with a remedy."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "the device has too little memory for batch_size={batch_size} at "
            "context_length={context_length}. Start a new run with {recompute}a smaller {--batch-size} (and a "
            "larger {--accumulate} to keep the product), a shorter {--context-length} or a smaller "
            "{--size}.",
            batch_size=config.batch_size,
            context_length=shape.context_length,
            recompute="" if config.recompute else tr("{--recompute}, "),
        ) from error


# --- decisions --------------------------------------------------------------------------------------------------------


def _precision(config: TrainConfig, costs: Sequence[Cost], device: torch.device) -> Choice:
    if config.precision != "auto":
        return Choice(config.precision, tr(AS_ASKED))
    if len(only := open_precisions(config, device)) == 1:
        return Choice(only[0], tr("this processor has no instructions for products in bfloat16"))
    chosen = costs[0]
    other = min((cost for cost in costs if cost.precision != chosen.precision), key=lambda cost: cost.seconds_per_batch)
    if math.isinf(chosen.seconds_per_batch):
        why = tr(TOO_LITTLE)
    elif math.isinf(other.seconds_per_batch):
        why = tr("too little memory for {other}", other=other.precision)
    else:
        times = other.of_step(config) / chosen.of_step(config)
        why = tr("{times:.1f} times as fast as {other}", times=times, other=other.precision)
    return Choice(chosen.precision, why)


def _attention(config: TrainConfig, costs: Sequence[Cost], device: torch.device) -> Choice:
    if config.attention != "auto":
        return Choice(config.attention, tr(AS_ASKED))
    if device.type != "cpu":
        return Choice("fused", tr("the only one on {device}", device=device.type))
    chosen = costs[0]
    alike = [cost for cost in costs if cost.precision == chosen.precision]
    taken = ", ".join(f"{cost.attention} {1000 * cost.seconds_per_batch:,.1f}" for cost in alike)
    if len(alike) == 1:
        why = tr("nothing to choose (no attention, dropout on its weights, very few tokens), or no time to measure it")
    elif chosen.seconds_per_batch == min(cost.seconds_per_batch for cost in alike):
        why = tr("milliseconds of a pass: {taken}", taken=taken)
    else:
        why = tr("milliseconds of a pass: {taken}, too small a difference", taken=taken)
    return Choice(chosen.attention, why)


def _compiling(seconds: float, saved: float, length: float) -> Choice:
    """Choose whether to compile. seconds: that it takes; saved: that it saves of a run of this length."""
    why = tr(
        "it takes about {seconds:,.0f} seconds, and saves about {saved:,.0f} of {length:,.0f}",
        seconds=seconds,
        saved=saved,
        length=length,
    )
    if saved > seconds >= MOST_COMPILING * length:
        why += tr("; it may take a fifth of them at most")
    return Choice("on" if seconds < min(saved, MOST_COMPILING * length) else "off", why)


def _seconds_uncompiled(config: TrainConfig, costs: Sequence[Cost], task: Task[Any], train_tokens: int) -> float:
    """Return how long a run would last without compiling."""
    step = costs[0].of_step(config)
    if config.minutes is None:
        return (config.steps or 0) * step
    steps = most_tokens(config, task, train_tokens) / (task.tokens_per_batch * config.accumulate)
    return min(60 * config.minutes, steps * step)


def _against_compiling(task: Task[Any], device: torch.device, costs: Sequence[Cost]) -> str:
    """Say why no run like this is compiled, or "" if only its length decides."""
    if math.isinf(costs[0].seconds_per_batch):
        return tr(TOO_LITTLE)
    if not task.fixed_shapes:
        return tr("its batches differ in shape, and each shape would be compiled anew")
    if has_compiler(device):
        return ""
    if device.type == "cpu":
        return tr("no C++ compiler was found (g++, clang++ or cl)")
    return tr("Triton is not installed") if device.type == "cuda" else tr("not done on {device}", device=device.type)


def _dropout(passes: float, task: Task[Any]) -> Choice:
    rate = min(task.most_dropout, next(rate for limit, rate in DROPOUT if passes <= limit))
    why = tr("the text will be seen {passes:.1f} times", passes=passes)
    if rate == task.most_dropout:
        why += tr(", and it is at most {dropout:g} for this task", dropout=rate)
    return Choice(rate, why)


def _shown(choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """Return the choices with numbers as they are written."""
    return {
        name: choice._replace(value=f"{choice.value:g}") if isinstance(choice.value, float) else choice
        for name, choice in choices.items()
    }


def _small_text(
    parameters: int, dropout: float, train_tokens: int, passes: float, config: TrainConfig
) -> tuple[str, ...]:
    if parameters < train_tokens or passes < 4 or config.lora is not None:
        return ()
    guard = (
        tr("The run stops early after {patience} validations that bring nothing better.", patience=config.patience)
        if config.patience and config.keep == "best"
        else tr("The run never stops early.")
    )
    return (
        tr(
            "The text is small for this model: {tokens:,} training tokens for {parameters:.1f} M parameters, and the "
            "run will pass over it about {passes:.0f} times. Dropout is {dropout:g}, and the {kept} parameters are "
            "kept. {guard} More text, fewer steps or a smaller {--size} generalise better.",
            tokens=train_tokens,
            parameters=parameters / 1e6,
            passes=passes,
            dropout=dropout,
            kept=tr("best") if config.keep == "best" else tr("last"),
            guard=guard,
        ),
    )


def _ends_early(passes: float, share: float, config: TrainConfig) -> tuple[str, ...]:
    """Say what a limit on passes means for the time. share: of the time, that the run will take."""
    if config.minutes is None or share > ENDS_EARLY:
        return ()
    return (
        tr(
            "The run will end after {passes:.0f} passes over the text, in about {minutes:.1f} of {given:g} minutes: "
            "with more passes a model learns the text by heart. More text makes it better; {--passes 0} uses all the "
            "time.",
            passes=passes,
            minutes=share * config.minutes,
            given=config.minutes,
        ),
    )


# --- `jumok train --explain` ------------------------------------------------------------------------------------------


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
    run will be. steps, seconds, passes: as foreseen, which is slower. memory: see `memory_of`.
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
