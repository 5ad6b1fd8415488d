"""What is decided before the first step: precision, implementation of attention, compiling, dropout, and what fits.

Rules decide what the settings leave open, so the same command makes the same choices each time. One thing is measured,
a step, for less than a second: how often a run of some minutes sees its text follows from nothing else, and with it
dropout, compiling and the size of validations. The choices are written to config.json, and a resumed run keeps to them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from jumok.config import ModelConfig, TrainConfig, count_kept, count_parameters
from jumok.config.features import kind_of
from jumok.device import (
    autocast,
    has_avx512,
    has_compiler,
    keeping_memory,
    multiplies_bfloat16,
    own_random,
    processor_name,
    seconds_of,
)
from jumok.errors import ConfigError, TrainingError
from jumok.memory import free_memory, is_out_of_memory, require_memory
from jumok.messages import message, tr
from jumok.models import build, require_memory_for_model
from jumok.nn.attention import train_attention_by
from jumok.training.adapters import Adapters
from jumok.training.compilation import recompute_blocks
from jumok.training.optim import Objective, make_optimizers
from jumok.training.tasks import Task

MEASURED_TOKENS = 1024  # in the batch that is timed on a CPU; other devices are only as fast as they are filled
# The speed that a run keeps, as a share of what was measured: in runs of 5 and 10 minutes 0.76 and 0.78, validations
# included.
KEPT_SPEED = 0.8
# A run is compiled if its steps would take so many seconds uncompiled. The first time that costs some seconds of
# training, and then a step is so many times as fast (bench/LOG.md): products, which compiling leaves alone, take longer
# in float32. There it gains 14% with AVX-512, and nothing that could be measured without (1 to 3%).
COMPILED_FROM: dict[str, float] = {"bfloat16": 120.0, "float32": 300.0}
COMPILED_SPEEDUP: dict[str, float] = {"bfloat16": 1.2, "float32": 1.1}
# (passes over the text, dropout): the rate for up to so many passes. Judged by runs of 2 to 20 passes over parts of
# novels with the default weight decay (bench/LOG.md).
DROPOUT = ((5.0, 0.0), (10.0, 0.1), (math.inf, 0.2))
NUMBER_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2}
ENDS_EARLY = 0.9  # of the time, below which a limit on passes is told
AS_ASKED = message("as asked")


class Choice(NamedTuple):
    """A decision, and its reason in a few words."""

    value: Any
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run with nothing left to "auto".

    tokens: how many the run will see, about. choices: by the setting. seconds_per_step: without validations and
    samples; 0: nothing depended on it. notices: messages for the user.
    """

    shape: ModelConfig
    config: TrainConfig
    tokens: int
    choices: Mapping[str, Choice]
    seconds_per_step: float
    notices: tuple[str, ...]


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
    *,
    choose_dropout: bool,
    processes: int = 1,
) -> Plan:
    """Decide what the settings leave open, and measure a step if a decision needs its time.

    Args:
        choose_dropout: the dropout follows from how often the text will be seen.
        processes: that compute a batch together; one of them measures, and the time of a pass is divided among them.

    Raises:
        ConfigError: the memory cannot hold the model, or a training step of it.
    """
    choices = {"precision": _precision(config, device), "attention": _attention(config, device)}
    config = dataclasses.replace(config, **{name: choice.value for name, choice in choices.items()})
    _require_memory(shape, config, task, device)
    per_step = task.tokens_per_batch * config.accumulate
    against = _against_compiling(config, task, device)
    measures = config.minutes is not None or against is None
    seconds = measure_step(shape, config, task, device, processes) if measures else 0.0
    most = task.most_tokens(config)
    choices["compile"] = against or _compiling(config, seconds * most / per_step)
    config = dataclasses.replace(config, compile=choices["compile"].value)
    seconds /= speedup(config)
    foreseen = most if config.minutes is None else 60 * config.minutes * KEPT_SPEED / seconds * per_step
    tokens = min(most, foreseen)
    passes = tokens / task.train_tokens
    dropout = _dropout(passes, task) if choose_dropout else Choice(shape.dropout, tr(AS_ASKED))
    choices["dropout"] = dropout._replace(value=f"{dropout.value:g}")
    return Plan(
        shape=dataclasses.replace(shape, dropout=dropout.value),
        config=config,
        tokens=max(per_step, int(tokens)),
        choices=choices,
        seconds_per_step=seconds,
        notices=(
            *slow_precision(config, device),
            *_small_text(count_parameters(shape), dropout.value, task.train_tokens, passes, config),
            *_ends_early(passes, tokens / foreseen, config),
        ),
    )


def speedup(config: TrainConfig) -> float:
    """Return how many times as fast a step is as measured, about."""
    return COMPILED_SPEEDUP[config.precision] if config.compile == "on" else 1.0


def measure_step(
    shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device, processes: int = 1
) -> float:
    """Return the seconds of an optimizer step of a model like that of the run, uncompiled.

    They follow from the second of two passes over a part of a batch, and an update.

    Args:
        config: with the precision and the attention decided. processes: see `make_plan`.
    """
    batch = task.parts(0)[0]
    rows = len(batch[0])
    if device.type == "cpu":
        rows = max(1, min(rows, MEASURED_TOKENS // batch[0].shape[1]))
    batch = tuple(tensor[:rows] for tensor in batch)
    with keeping_memory(device), own_random(device):
        model = build(shape).to(device)
        train_attention_by(model, "fused" if config.attention == "fused" else "chunked")
        if config.recompute:
            recompute_blocks(model)
        if config.lora is not None:
            Adapters(model, config.lora, seed=config.seed)
        objective, optimizers = Objective(task, model), make_optimizers(model, config)

        def forward_and_backward() -> None:
            model.zero_grad()
            with autocast(device, config.precision):
                loss = objective(task.counts(batch), *batch).sum()
            loss.backward()

        def update() -> None:
            for optimizer in optimizers:
                optimizer.step()

        forward_and_backward()  # the first one takes longer
        one_pass = seconds_of(forward_and_backward, device)
        one_update = seconds_of(update, device)
    return config.accumulate * one_pass / task.cost(batch) / processes + one_update


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


# --- memory -----------------------------------------------------------------------------------------------------------


def least_memory(shape: ModelConfig, config: TrainConfig, task: Task[Any]) -> dict[str, float]:
    """Return how many bytes a step needs at least.

    Returns:
        "parameters", "gradients", "moments" (one for each parameter, and its mean if the run keeps one) and "kept"
        (activations for the backward pass).
    """
    size = 4.0 * count_parameters(shape)
    trained = size if config.lora is None else 0.0  # there are few adapters
    activations = count_kept(shape, recompute=config.recompute) * task.tokens_per_pass
    return {
        "parameters": size,
        "gradients": trained,
        "moments": trained * (1 + config.keeps_mean),
        "kept": float(NUMBER_BYTES[config.precision] * activations),
    }


def _require_memory(shape: ModelConfig, config: TrainConfig, task: Task[Any], device: torch.device) -> None:
    require_memory_for_model(shape)
    tokens = f"{task.tokens_per_pass:,}"
    what = (
        tr("a training step over {tokens} tokens", tokens=tokens)
        if config.recompute
        else tr("a training step over {tokens} tokens without {--recompute}", tokens=tokens)
    )
    require_memory(int(sum(least_memory(shape, config, task).values())), what, free=free_memory(device))


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


def _precision(config: TrainConfig, device: torch.device) -> Choice:
    if config.precision != "auto":
        return Choice(config.precision, tr(AS_ASKED))
    if multiplies_bfloat16(device):
        return Choice("bfloat16", tr("products in bfloat16 are faster, and this processor has instructions for them"))
    return Choice("float32", tr("this processor has no instructions for products in bfloat16"))


def _attention(config: TrainConfig, device: torch.device) -> Choice:
    if config.attention != "auto":
        return Choice(config.attention, tr(AS_ASKED))
    if device.type != "cpu":
        return Choice("fused", tr("the only one on {device}", device=device.type))
    return Choice("chunked", tr("its backward pass is faster on CPUs"))


def _against_compiling(config: TrainConfig, task: Task[Any], device: torch.device) -> Choice | None:
    """Return the choice where the length of the run does not decide it."""
    if config.compile != "auto":
        return Choice(config.compile, tr(AS_ASKED))
    if not task.fixed_shapes:
        return Choice("off", tr("its batches differ in shape, and each shape would be compiled anew"))
    if not gains_by_compiling(config.precision, device):
        return Choice("off", tr("in float32 it gains less than 5% on a processor without AVX-512"))
    if has_compiler(device):
        return None
    if device.type == "cpu":
        return Choice("off", tr("no C++ compiler was found (g++, clang++ or cl)"))
    no_triton = tr("Triton is not installed")
    return Choice("off", no_triton if device.type == "cuda" else tr("not done on {device}", device=device.type))


def gains_by_compiling(precision: str, device: torch.device) -> bool:
    """Return whether compiled steps are so much faster that they are worth their compilation in a long run."""
    return device.type != "cpu" or precision == "bfloat16" or has_avx512()


def _compiling(config: TrainConfig, seconds: float) -> Choice:
    """Choose by the length of the run. seconds: that its steps take, uncompiled, if nothing ends it before."""
    length, least = min(seconds, 60 * (config.minutes or math.inf)), COMPILED_FROM[config.precision]
    facts = {"length": length, "least": least, "precision": config.precision}
    if length >= least:
        return Choice("on", tr("a run of {length:,.0f} seconds in {precision}, {least:.0f} or more", **facts))
    return Choice("off", tr("a run of {length:,.0f} seconds in {precision}, less than {least:.0f}", **facts))


def _dropout(passes: float, task: Task[Any]) -> Choice:
    rate = min(task.most_dropout, next(rate for limit, rate in DROPOUT if passes <= limit))
    why = tr("the text will be seen {passes:.1f} times", passes=passes)
    if rate == task.most_dropout:
        why += tr(", and it is at most {dropout:g} for this task", dropout=rate)
    return Choice(rate, why)


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
            "The text is small for this model: {tokens:,} training tokens for {parameters:,} parameters, and the "
            "run will pass over it about {passes:.0f} times. Dropout is {dropout:g}, and the {kept} parameters are "
            "kept. {guard} More text, fewer steps or a smaller {--size} generalise better.",
            tokens=train_tokens,
            parameters=parameters,
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
class Explanation:
    """What a run would do, and why.

    model: kind. device, threads: where. flops_per_token: of a forward and a backward pass, about: six for each
    parameter. choices: by the setting. seconds_per_step: see `Plan`. steps, seconds, passes: as foreseen, which is
    slower. memory: see `least_memory`.
    """

    model: str
    parameters: int
    flops_per_token: float
    device: str
    threads: int
    train_tokens: int
    tokens_per_step: int
    choices: Mapping[str, Choice]
    seconds_per_step: float
    steps: int
    seconds: float
    passes: float
    memory: Mapping[str, float]


def explain(plan: Plan, task: Task[Any], device: torch.device) -> Explanation:
    """Explain a plan. A step that it did not need to measure is measured now."""
    config, parameters = plan.config, count_parameters(plan.shape)
    per_step = task.tokens_per_batch * config.accumulate
    seconds = plan.seconds_per_step or measure_step(plan.shape, config, task, device) / speedup(config)
    return Explanation(
        model=kind_of(plan.shape),
        parameters=parameters,
        flops_per_token=6.0 * parameters,
        device=processor_name(device),
        threads=torch.get_num_threads(),
        train_tokens=task.train_tokens,
        tokens_per_step=per_step,
        choices=plan.choices,
        seconds_per_step=seconds,
        steps=round(plan.tokens / per_step),
        seconds=plan.tokens / per_step * seconds / KEPT_SPEED,
        passes=plan.tokens / task.train_tokens,
        memory=least_memory(plan.shape, config, task),
    )
