"""How fast this machine is, and jumok on it: training and writing beside stock `transformers`, which take turns.

A machine is not as fast one minute as the next, so that two speeds measured one after the other say little about each
other. Here every work is done once in each round, in an order that turns round each time, and the works are compared
within the rounds: `ratio` is the median over the rounds of their time over ours.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import text as reader
from jumok.config import TrainConfig
from jumok.corpora import stories
from jumok.device import autocast, choose_device, processor_name, seconds_per_call, wait
from jumok.inference.generate import generate
from jumok.interop.huggingface.convert import to_hf
from jumok.messages import tr
from jumok.models.checks import require_tokenizer
from jumok.models.framing import start_id
from jumok.models.gpt import GPT
from jumok.runs.events import Step
from jumok.training.optim import rate
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

Report = Callable[[str], object]

CHARS = 300_000  # of stories to train on
WRITTEN = 200  # tokens a text, which fit into the context of every size but nano
# No validation, no sample, no save and no dropout: nothing but steps, as many as are asked for.
STEPS_ALONE: dict[str, Any] = {
    "steps": 100_000, "val": 0.0, "eval_every": 1_000_000, "sample_tokens": 0, "save_every": 1e9, "dropout": 0.0,
}  # fmt: skip


# --- the machine ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the measurements were made on, and what it can do at best.

    processor, cores (that this process may use), threads (that torch uses), memory_gb, system, python, torch,
    transformers (None: not installed), device: facts. float32_gflops, bfloat16_gflops: of a square matrix product, in
    10⁹ operations a second. bandwidth_gb: read from memory in a product of a large matrix with a vector, 10⁹ bytes a
    second.
    """

    processor: str
    cores: int
    threads: int
    memory_gb: float | None
    system: str
    python: str
    torch: str
    transformers: str | None
    device: str
    float32_gflops: float
    bfloat16_gflops: float
    bandwidth_gb: float

    def describe(self) -> str:
        """The facts in two lines and the measurements in a third."""
        memory = "" if self.memory_gb is None else f", {self.memory_gb:.0f} GB"
        stock = tr("no transformers") if self.transformers is None else f"transformers {self.transformers}"
        return tr(
            "{processor}, {cores} cores, {threads} threads{memory}; device {device}\n"
            "{system}, Python {python}, torch {torch}, {stock}\n"
            "matrix product: float32 {float32_gflops:,.0f}, bfloat16 {bfloat16_gflops:,.0f} GFLOP/s; "
            "memory read at {bandwidth_gb:,.1f} GB/s",
            **{**dataclasses.asdict(self), "memory": memory, "stock": stock},
        )


def measure_machine(device: torch.device) -> Machine:
    """Look at the machine and time three products on it; takes a second or two."""
    width = 1024 if device.type == "cpu" else 8192
    return Machine(
        processor=processor_name(device),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_gb=_memory_gb(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=version("transformers") if has_stock() else None,
        device=str(device),
        float32_gflops=_gflops(width, torch.float32, device),
        bfloat16_gflops=_gflops(width, torch.bfloat16, device),
        bandwidth_gb=_bandwidth_gb(8192, device),
    )


def has_stock() -> bool:
    """Whether `transformers` is installed."""
    return importlib.util.find_spec("transformers") is not None


def _gflops(width: int, dtype: torch.dtype, device: torch.device) -> float:
    a, b = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))  # (N, N) each
    return 2 * width**3 / seconds_per_call(lambda: a @ b, device, repeats=8) / 1e9


def _bandwidth_gb(width: int, device: torch.device) -> float:
    matrix, vector = torch.ones(width, width, device=device), torch.ones(width, device=device)  # (N, N), (N,)
    return matrix.nbytes / seconds_per_call(lambda: matrix @ vector, device, repeats=8) / 1e9


def _memory_gb() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return None


# --- taking turns -----------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The median of some numbers, and the least and the most of them."""

    median: float
    low: float
    high: float


def spread(numbers: list[float]) -> Spread:
    """Of at least one number."""
    return Spread(statistics.median(numbers), min(numbers), max(numbers))


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Seconds that each work took in each round, by its name; all did the same number of tokens a round."""

    seconds: Mapping[str, list[float]]
    tokens: int

    def speed(self, name: str) -> float:
        """Tokens a second: those of a round over the median of its times."""
        return self.tokens / statistics.median(self.seconds[name])

    def ratio(self, ours: str, theirs: str) -> Spread:
        """How many times as fast one is as another, within the rounds."""
        return spread([b / a for a, b in zip(self.seconds[ours], self.seconds[theirs], strict=True)])


def take_turns(works: Mapping[str, Callable[[], object]], *, tokens: int, rounds: int, device: torch.device) -> Turns:
    """Do every work once in each round, first to last and then last to first.

    Args:
        works: what to do, by name; each has run before, so that nothing is made or compiled for the first time.
        tokens: that a work does in one call. rounds: at least 1.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works) if number % 2 == 0 else list(works)[::-1]:
            began = perf_counter()
            works[name]()
            wait(device)
            seconds[name].append(perf_counter() - began)
    return Turns(seconds=seconds, tokens=tokens)


# --- training ---------------------------------------------------------------------------------------------------------


class OurTraining:
    """A run of the trainer, step by step: `step()` takes the next one.

    Args:
        trainer: just started. Its first step comes with what the trainer does before it, compiling if it shall.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.losses: list[float] = []
        self._events = trainer.run()

    def step(self) -> None:
        """Take one optimizer step."""
        self.losses.append(next(event.loss for event in self._events if isinstance(event, Step)))

    def close(self) -> None:
        """End the run, and keep nothing of it."""
        self.trainer.close()
        self._events.close()


@contextmanager
def our_training(
    text: str, settings: Mapping[str, Any], device: str, *, size: str | None = None, **how: Any
) -> Iterator[OurTraining]:
    """A run on a text, in a folder that is gone afterwards. how: more for `Trainer.start`, such as the tokenizer."""
    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        source = reader.from_string(text, name="bench")
        made = configurations({**STEPS_ALONE, **settings}, size=size)
        trainer = Trainer.start(Path(folder) / "run", source, **made, device=device, **how)
        training = OurTraining(trainer)
        try:
            yield training
        finally:
            training.close()


class StockTraining:
    """The same model in stock `transformers`, with the same weights and batches: `step()` takes the next one.

    AdamW is the fused one, with the rates of jumok's, attention is SDPA, and the loss is the mean over all tokens.

    Args:
        model: of a run that has not begun. batch: its batches, by their number. config: how it trains, by steps.
        precision: "float32", or "bfloat16" for autocast.
        compiled: with torch.compile, for fixed shapes; the first step then takes as long as that does.
    """

    def __init__(
        self, model: GPT, batch: Callable[[int], tuple[Tensor, ...]], config: TrainConfig, precision: str, *,
        compiled: bool = False,
    ) -> None:  # fmt: skip
        self.batch, self.config, self.precision = batch, config, precision
        self.device = next(model.parameters()).device
        self.losses: list[float] = []
        stock = stock_model(model).train()
        self._model: Any = torch.compile(stock, dynamic=False) if compiled else stock
        self._optimizer = torch.optim.AdamW(
            stock.parameters(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._parameters = list(stock.parameters())

    def step(self) -> None:
        """Take one optimizer step."""
        number = len(self.losses)
        ids, targets = (part.to(self.device) for part in self.batch(number))  # (B, T) each
        share = rate(self.config, (number + 0.5) / (self.config.steps or 1))
        for group in self._optimizer.param_groups:
            group["lr"] = share * self.config.learning_rate
        with autocast(self.device, self.precision):
            logits = self._model(input_ids=ids, use_cache=False).logits  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, self.config.clip or math.inf)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.losses.append(float(loss.detach()))


def stock_model(model: Any) -> Any:
    """The same model in stock `transformers`, by way of what `jumok convert --to hf` writes, on the same device."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        to_hf(model, Path(folder) / "hf")
        stock = AutoModelForCausalLM.from_pretrained(Path(folder) / "hf", attn_implementation="sdpa")
    return stock.to(next(model.parameters()).device)


# --- the short form ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Tokens a second of one work, and how many times those of `transformers` (None: not installed)."""

    ours: float
    theirs: float | None
    ratio: Spread | None


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What `jumok bench` finds: the machine, the model, and two speeds."""

    machine: Machine
    size: str
    parameters: int
    context_length: int
    batch_size: int
    precision: str
    seed: int
    rounds: int
    training: Speed
    decoding: Speed


def bench(*, size: str = "micro", device: str = "auto", rounds: int = 3, report: Report = lambda _: None) -> Bench:
    """Measure the machine, steps of a default training, and writing with its model: well under a minute.

    Steps are those of `jumok train` with its defaults, the optimizer too, but not compiled, as in a run too short to
    pay for that; `transformers` takes them with AdamW, in the same precision, not compiled either, and in the same
    process, so that it has from `jumok.device.keeping_memory` what jumok has. What is written is one text of WRITTEN
    tokens, drawn with temperature 0.8 by both.

    Args:
        size: a name in SIZES. device: "auto", "cpu", "cuda" or "mps". rounds: see `take_turns`.
        report: is told what is being measured.

    Raises:
        ConfigError: a name is unknown.
    """
    place = choose_device(device)
    report(tr("measuring the machine"))
    machine = measure_machine(place)
    report(tr("getting ready to train"))
    text = "".join(stories.write(CHARS))
    with our_training(text, {"compile": "off"}, device, size=size) as ours:
        trainer = ours.trainer
        config = trainer.config
        works: dict[str, Callable[[], object]] = {"jumok": ours.step}
        if machine.transformers:
            assert isinstance(trainer.model, GPT)
            works["transformers"] = StockTraining(trainer.model, trainer.task.batch, config, config.precision).step
        report(tr("training, {rounds} rounds", rounds=rounds))
        training = _speed(works, trainer.task.tokens_per_batch, rounds, place)
        model = trainer.model
        report(tr("writing, {rounds} rounds", rounds=rounds))
        tokens = min(WRITTEN, model.config.context_length - 1)
        decoding = _speed(writers(model, tokens, stock=bool(machine.transformers)), tokens, rounds, place)
    return Bench(
        machine=machine,
        size=size,
        parameters=model.parameter_count(),
        context_length=model.config.context_length,
        batch_size=config.batch_size,
        precision=config.precision,
        seed=config.seed,
        rounds=rounds,
        training=training,
        decoding=decoding,
    )


def writers(model: Any, tokens: int, *, stock: bool) -> dict[str, Callable[[], object]]:
    """One text of so many tokens, begun from nothing: by jumok, and by `transformers` with the same weights."""
    assert isinstance(model, GPT)
    works: dict[str, Callable[[], object]] = {"jumok": lambda: generate(model, "", tokens=tokens, seed=0)}
    if stock:
        theirs = stock_model(model).eval()
        begin = start_id(require_tokenizer(model)) or 0
        ids = torch.tensor([[begin]], device=next(model.parameters()).device)  # (1, 1)

        def write() -> Tensor:
            return theirs.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                do_sample=True, temperature=0.8, top_k=0, pad_token_id=begin,
            )  # fmt: skip

        works["transformers"] = write
    return works


def _speed(works: Mapping[str, Callable[[], object]], tokens: int, rounds: int, device: torch.device) -> Speed:
    for work in works.values():  # the first call of each is another thing
        work()
    turns = take_turns(works, tokens=tokens, rounds=rounds, device=device)
    both = "transformers" in works
    return Speed(
        ours=turns.speed("jumok"),
        theirs=turns.speed("transformers") if both else None,
        ratio=turns.ratio("jumok", "transformers") if both else None,
    )
