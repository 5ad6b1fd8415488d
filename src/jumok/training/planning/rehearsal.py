"""The time of a training step on this machine, from its parts: one block of each stack, the rest, and the update.

A model of two blocks is as good a sample as the whole one, so a shape that does not fit into this machine can be timed,
too. The ids are random; a pass takes as long whatever they are.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jumok.config import (
    EncoderDecoderConfig,
    GPTVariantConfig,
    ModelConfig,
    Precision,
    TrainConfig,
    count_parameters,
    stacks,
)
from jumok.device import autocast, keeping_memory, own_random, seconds_of
from jumok.evaluation.masked import at_places
from jumok.evaluation.masked import token_losses as masked_losses
from jumok.memory import require_memory
from jumok.messages import tr
from jumok.models import Model, build_blank
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT, token_losses
from jumok.models.losses import cross_entropies
from jumok.nn.attention import train_attention_by
from jumok.nn.blocks import Block
from jumok.training.adapters import Adapters
from jumok.training.optim import clip_gradients, dtype_of_products, make_optimizers, stacked_orthogonal
from jumok.training.planning.activations import Pass, activations, predictions
from jumok.training.tasks.classify import next_token_losses

MEASURED_TOKENS = 2048  # in the batch that is timed on a CPU
MEASURING = 3.0  # seconds after which no new round begins
ROUNDS = 5  # of all parts, at most


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Seconds of the parts of a step.

    blocks: of a forward and a backward pass through all blocks, for one token. recomputed: of their forward pass alone.
    rest: of embeddings, last norm, head and loss, for one token. update: of the update of all parameters. orthogonal:
    the part of it that several processes share out.
    """

    blocks: float
    recomputed: float
    rest: float
    update: float
    orthogonal: float = 0.0

    def of_passes(self, work: Pass) -> float:
        """Of a forward and a backward pass."""
        return work.tokens * (self.blocks + self.rest + work.recompute * self.recomputed)

    def of_update(self, processes: int = 1) -> float:
        """Of an update in each of several processes, without what they send."""
        return self.update - self.orthogonal * (1 - 1 / processes)

    def of_step(self, work: Pass) -> float:
        """Of a pass and an update."""
        return self.of_passes(work) + self.update


def rehearse(shape: ModelConfig, config: TrainConfig, work: Pass, device: torch.device) -> Rehearsal:
    """Measure the parts of a step, in rounds; of each part the shortest time counts.

    Raises:
        ConfigError: there is too little memory for two blocks and the head.
    """
    rows = work.rows
    if device.type == "cpu":  # other devices are only as fast as they are filled
        rows = max(1, min(rows, MEASURED_TOKENS // work.length))
    work = dataclasses.replace(work, rows=rows, recompute=False)
    few = with_layers(shape, 1)
    needed = 4 * 4 * count_parameters(few) + activations(few, config, work).kept
    require_memory(needed, tr("a block of this model and its head"))
    with keeping_memory(device), own_random(device):
        parts = _Parts(few, config, work, device)
        best = dict.fromkeys(parts.works, math.inf)
        began = time.perf_counter()
        for number in range(1 + ROUNDS):  # the first one warms up
            for name, part in parts.works.items():
                taken = seconds_of(part, device)
                best[name] = min(best[name], taken) if number > 1 else taken
            if time.perf_counter() > began + MEASURING:
                break
    counts = [count for count, _, _ in stacks(shape)]

    def all_blocks(kind: str) -> float:
        return sum(count * best[f"{kind}{place}"] for place, count in enumerate(counts))

    return Rehearsal(
        blocks=all_blocks("block") / work.tokens,
        recomputed=all_blocks("forward") / work.tokens,
        rest=best["rest"] / work.tokens,
        update=all_blocks("update") + best.get("update", 0.0),
        orthogonal=all_blocks("orthogonal") if config.optimizer == "muon" else 0.0,
    )


def with_layers(shape: ModelConfig, layers: int) -> ModelConfig:
    """The same shape with so many blocks in each stack."""
    names = ("n_layer", "n_decoder_layer") if isinstance(shape, EncoderDecoderConfig) else ("n_layer",)
    changes: dict[str, Any] = dict.fromkeys(names, layers)
    if isinstance(shape, GPTVariantConfig):
        changes["sliding_layers"] = tuple(layer for layer in shape.sliding_layers if layer < layers)
    return dataclasses.replace(shape, **changes)


class _Parts:
    """A model of one block per stack, taken apart; `works` are the calls to time, by name."""

    def __init__(self, shape: ModelConfig, config: TrainConfig, work: Pass, device: torch.device) -> None:
        self.precision: Precision = "float32" if work.size == 4 else "bfloat16"
        config = dataclasses.replace(config, precision=self.precision)
        self.work, self.config, self.device = work, config, device
        self.model: Model = build_blank(shape).to(device).train()
        if config.lora is not None:
            Adapters(self.model, config.lora, seed=config.seed)
        train_attention_by(self.model, work.attention)
        self.works: dict[str, Callable[[], object]] = {}
        self._context = self._states(stacks(shape)[0][1].width) if isinstance(shape, EncoderDecoderConfig) else None
        lists = [part for part in self.model.children() if isinstance(part, nn.ModuleList)]
        for place, blocks in enumerate(lists):
            block = blocks[0]
            assert isinstance(block, Block)
            states = self._states(stacks(shape)[place][1].width)
            self.works[f"block{place}"] = partial(self._through, block, states)
            self.works[f"forward{place}"] = partial(self._forward, block, states)
            alone = nn.ModuleList([block])
            self.works[f"update{place}"] = partial(_update, alone, make_optimizers(alone, config))
            if config.optimizer == "muon":
                matrices = [parameter.detach() for parameter in block.parameters() if parameter.dim() == 2]
                self.works[f"orthogonal{place}"] = partial(_orthogonalise, matrices, dtype_of_products(config))
            del blocks[:]
        trained = config.lora is None
        if not trained:  # gradients pass through the head to its input, and reach no matrix
            vectors = [parameter for parameter in self.model.parameters() if parameter.dim() == 1]
            for parameter in vectors or self.model.parameters():
                parameter.requires_grad_(True)
        loss = synthetic_loss(self.model, config, work, device)
        self.works["rest"] = partial(self._rest, loss)
        if trained:
            self.works["update"] = partial(_update, self.model, make_optimizers(self.model, config))

    def _states(self, width: int) -> Tensor:
        return torch.randn(self.work.rows, self.work.length, width, device=self.device, requires_grad=True)  # (B, T, C)

    def _run(self, block: Block, states: Tensor) -> Tensor:
        angles = self.model.angles(0, self.work.length) if isinstance(self.model, GPT) else None
        context = self._context if block.cross_attention is not None else None
        return block(states, angles, context=context)  # (B, T, C)

    def _through(self, block: Block, states: Tensor) -> None:
        states.grad = None
        for parameter in block.parameters():
            parameter.grad = None
        with autocast(self.device, self.precision):
            after = self._run(block, states)
        after.backward(torch.ones_like(after))

    def _forward(self, block: Block, states: Tensor) -> None:
        with torch.no_grad(), autocast(self.device, self.precision):
            self._run(block, states)

    def _rest(self, loss: Callable[[], Tensor]) -> None:
        self.model.zero_grad()
        with autocast(self.device, self.precision):
            value = loss()
        value.backward()


def _orthogonalise(matrices: Sequence[Tensor], dtype: torch.dtype | None) -> None:
    for _ in stacked_orthogonal(matrices, dtype):
        pass


def _update(model: nn.Module, optimizers: list[Any]) -> None:
    """An update by the last gradients. At a rate of zero nothing grows, and it takes as long."""
    clip_gradients(model, math.inf)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()


def synthetic_loss(model: nn.Module, config: TrainConfig, work: Pass, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that computes the loss of a task over a batch of random ids, a scalar."""
    assert isinstance(model, GPT | BERT | EncoderDecoder)
    shape = model.config
    two = torch.randint(shape.vocab_size, (2, work.rows, work.length), device=device)  # (2, B, T)
    ids, targets = two[0], two[1]
    if isinstance(model, EncoderDecoder):
        return partial(_translating, model, config, ids, targets)
    if config.task == "classify":
        truth = torch.randint(len(model.config.labels), (work.rows,), device=device)  # (B,)
        mask = torch.ones(work.rows, work.length, dtype=torch.bool, device=device)  # (B, T)
        return partial(_classifying, model, config, ids, mask, truth)
    if isinstance(model, BERT):
        masked = predictions(config, work) // work.rows
        places = torch.arange(masked, device=device).expand(work.rows, -1)  # (B, M)
        return lambda: masked_losses(model, at_places(model(ids), places), targets[:, :masked]).mean()
    return lambda: token_losses(model.hidden(ids), model.head.weight, targets).mean()


def _translating(model: EncoderDecoder, config: TrainConfig, source: Tensor, target: Tensor) -> Tensor:
    logits = model.logits(model.hidden(target, model.encode(source)))  # (B, T, V)
    return cross_entropies(logits, target, config.label_smoothing).mean()


def _classifying(model: GPT | BERT, config: TrainConfig, ids: Tensor, mask: Tensor, truth: Tensor) -> Tensor:
    hidden = model.hidden(ids) if isinstance(model, GPT) else model.hidden(ids, mask)  # (B, T, C)
    loss = cross_entropies(model.classify(hidden, mask), truth).mean()
    if isinstance(model, GPT) and config.lm_weight:
        loss = loss + config.lm_weight * next_token_losses(model, hidden, ids, mask).mean()
    return loss
