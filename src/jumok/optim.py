"""Optimizers for a model's parameters, and how their rate moves over a run.

Muon (https://kellerjordan.github.io/posts/muon/) orthogonalises the update of each matrix inside the blocks; AdamW
(https://arxiv.org/abs/1711.05101) takes the rest: embeddings, the output layer, norms and biases.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from jumok.blocks import Block
from jumok.config import TrainConfig


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """The optimizers of a run. Each parameter group carries its peak rate as "peak".

    With "muon" there are two, Muon first; with "adamw" one. Only matrices decay towards zero; frozen parameters
    are left alone.
    """
    inner: list[nn.Parameter] = []
    outer: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    in_blocks = {id(p) for module in model.modules() if isinstance(module, Block) for p in module.parameters()}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        group = vectors if parameter.dim() < 2 else inner if id(parameter) in in_blocks else outer
        group.append(parameter)
    optimizers: list[Optimizer] = []
    if config.optimizer == "muon" and inner:  # a rung of the ladder may have no matrix inside blocks
        optimizers.append(
            Muon(
                inner,
                lr=config.matrix_learning_rate,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
            )
        )
        matrices = outer
    else:
        matrices = inner + outer
    optimizers.append(
        AdamW(
            [
                {"params": matrices, "weight_decay": config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            fused=True,
        )
    )
    for optimizer in optimizers:
        for settings in optimizer.param_groups:
            settings["peak"] = settings["lr"]
    return optimizers


def rate(config: TrainConfig, progress: float) -> float:
    """The share of its peak that a rate has at `progress`, 0 at the start of the run and 1 at its end."""
    if progress < config.warmup:
        return progress / config.warmup
    done = (progress - config.warmup) / max(1e-9, 1 - config.warmup)  # 0..1 after the warm-up
    if config.schedule == "invsqrt":  # https://arxiv.org/abs/1706.03762, section 5.3, scaled to a peak of 1
        return math.sqrt(max(config.warmup, 1e-9) / progress) if progress else 1.0
    fall = {"constant": 0.0, "linear": done, "cosine": (1 - math.cos(math.pi * done)) / 2}[config.schedule]
    return 1 - (1 - config.final_rate) * min(1.0, fall)


def set_rate(optimizers: list[Optimizer], share: float) -> None:
    """Set each group's rate to `share` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def clip_gradients(model: nn.Module, limit: float) -> float:
    """Shrink the gradients to a total norm of at most `limit` (0: leave them); returns the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit or math.inf))
