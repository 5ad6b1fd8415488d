"""Interleaved runs of jumok and of stock `transformers`: training and writing with the same weights.

The speed of a machine changes from minute to minute, so two speeds measured one after the other cannot be compared.
Here each round runs everything once, in an order that alternates. `ratio` is the median over the rounds.
"""

from __future__ import annotations

import importlib.util
import math
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
from jumok.device import autocast, measure_machine, wait
from jumok.inference.generate import generate
from jumok.interop.huggingface.convert import to_hf
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.special_ids import start_ids
from jumok.runs.events import Step
from jumok.training.optim import rate
from jumok.training.trainer import Trainer

# No validation, no sample, no save and no dropout: nothing but steps, as many as are asked for.
STEPS_ALONE: dict[str, Any] = {
    "steps": 100_000, "val": 0.0, "eval_every": 1_000_000, "sample_tokens": 0, "save_every": 1e9, "dropout": 0.0,
}  # fmt: skip


def describe(device: torch.device) -> str:
    """The machine and its speed, measured now, on two lines."""
    found = {
        name: f"{value:,.1f}" if isinstance(value, float) else value for name, value in measure_machine(device).items()
    }
    found["bfloat16_gflops"] = found["bfloat16_gflops"] or "emulated"
    stock = version("transformers") if importlib.util.find_spec("transformers") else "not installed"
    return (
        "{processor}, {cores} cores, {threads} threads, device {device}; {system}, Python {python}, torch {torch}, "
        "jumok {jumok}, transformers {stock}\n"
        "matrix product: float32 {float32_gflops}, bfloat16 {bfloat16_gflops} GFLOP/s; "
        "memory read at {memory_gb_per_second} GB/s"
    ).format(**found, stock=stock)


# --- interleaved runs -------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The median of some numbers, and the least and the most of them."""

    median: float
    low: float
    high: float


def spread(numbers: list[float]) -> Spread:
    """Of at least one number."""
    return Spread(statistics.median(numbers), min(numbers), max(numbers))


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Seconds of each run in each round, by name; each processes the same number of tokens per round."""

    seconds: Mapping[str, list[float]]
    tokens: int

    def speed(self, name: str) -> float:
        """Tokens a second: those of a round over the median of its times."""
        return self.tokens / statistics.median(self.seconds[name])

    def ratio(self, ours: str, theirs: str) -> Spread:
        """How many times as fast one is as another, within the rounds."""
        return spread([b / a for a, b in zip(self.seconds[ours], self.seconds[theirs], strict=True)])


def interleave(works: Mapping[str, Callable[[], object]], *, tokens: int, rounds: int, device: torch.device) -> Rounds:
    """Run everything once per round, first to last and then last to first.

    Args:
        works: what to run, by name; each has run before, so that nothing is allocated or compiled for the first time.
        tokens: per call. rounds: at least 1.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name in list(works) if number % 2 == 0 else list(works)[::-1]:
            began = perf_counter()
            works[name]()
            wait(device)
            seconds[name].append(perf_counter() - began)
    return Rounds(seconds=seconds, tokens=tokens)


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
        made = {**STEPS_ALONE, **settings, "size": size}
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


# --- writing ----------------------------------------------------------------------------------------------------------


def writers(model: Any, tokens: int, *, stock: bool) -> dict[str, Callable[[], object]]:
    """One text of so many tokens, begun from nothing: by jumok, and by `transformers` with the same weights."""
    assert isinstance(model, GPT)
    works: dict[str, Callable[[], object]] = {"jumok": lambda: generate(model, "", tokens=tokens, seed=0)}
    if stock:
        theirs = stock_model(model).eval()
        begin = start_ids(model.config, require_tokenizer(model))[-1]
        ids = torch.tensor([[begin]], device=next(model.parameters()).device)  # (1, 1)

        def write() -> Tensor:
            return theirs.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                do_sample=True, temperature=0.8, top_k=0, pad_token_id=begin,
            )  # fmt: skip

        works["transformers"] = write
    return works
