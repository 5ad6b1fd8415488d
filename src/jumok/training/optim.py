"""Optimizers of a model's parameters, and the schedule of their learning rates.

Muon (https://kellerjordan.github.io/posts/muon/) orthogonalises the update of each matrix inside the blocks; AdamW
(https://arxiv.org/abs/1711.05101) takes the rest: embeddings, the output layer, norms and biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from jumok.config import TrainConfig
from jumok.nn.blocks import Block

# Quintic polynomials a x + b x³ + c x⁵, one for each iteration. Each has the least maximal distance from 1 on the
# interval into which the ones before it map [0.005, 1] (https://arxiv.org/abs/2505.16932). In exact arithmetic the four
# map it into [0.92, 1.08]. Found by linear programming, to four decimals.
NEAREST = (
    (8.2987, -24.4305, 18.0903),
    (3.9152, -2.9211, 0.5592),
    (3.1746, -2.3804, 0.4978),
    (2.1895, -1.5672, 0.4079),
)
# Rounding can move a value out of the interval of the next polynomial, where it diverges. So all but the last take a
# slightly smaller argument. MARGIN does the same for the first one: a matrix of rank one has the singular value 1.
POLYNOMIALS = (*((a / 1.01, b / 1.01**3, c / 1.01**5) for a, b, c in NEAREST[:-1]), NEAREST[-1])
MARGIN = 0.97


class Muon(Optimizer):
    """Momentum whose direction, for a matrix, is about the nearest orthogonal matrix.

    It is `torch.optim.Muon` with four iterations instead of five, which took a fifth of a training step. Two things
    replace the fifth one. A matrix is divided by its Schatten 4-norm, which follows from a product that the first
    iteration needs anyway, instead of by the larger Frobenius norm. And each iteration has a polynomial of its own.

    Args:
        params: matrices. lr: rate; a matrix (A, B) moves by lr · sqrt(max(1, A / B)) along its direction.
        momentum: Nesterov's. weight_decay: decoupled.
    """

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update each matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        direction = orthogonal(gradient.lerp(mean, group["momentum"]))
        rate = group["lr"] * math.sqrt(max(1.0, parameter.shape[0] / parameter.shape[1]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(direction, alpha=-rate)


def orthogonal(matrix: Tensor) -> Tensor:
    """About U Vᵀ of the singular value decomposition U S Vᵀ, in bfloat16: most singular values are near 1.

    Args:
        matrix: (A, B), finite. A zero matrix gives a zero matrix.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.mT if tall else matrix).bfloat16()  # (m, n), m no more than n
    x = x / x.norm().clamp(min=1e-30)  # so that fourth powers are in range
    for number, (a, b, c) in enumerate(POLYNOMIALS):
        gram = x @ x.mT  # (m, m)
        if number == 0:
            scale = MARGIN * gram.float().norm().clamp(min=1e-30).rsqrt()
            x, gram = (x * scale).bfloat16(), (gram * scale.square()).bfloat16()
        step = torch.addmm(gram, gram, gram, beta=b, alpha=c)  # (m, m)
        x = torch.addmm(x, step, x, beta=a)  # (m, n)
    return x.mT if tall else x


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[Optimizer]:
    """The optimizers of a run. Each parameter group carries its peak rate as "peak".

    With "muon" there are two, Muon first; with "adamw" one. Only matrices have weight decay. Frozen parameters are left
    out.
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
    if config.optimizer == "muon" and inner:  # some models of the ladder have no matrix inside blocks
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
    """The learning rate as a share of its peak at `progress`, 0 at the start of the run and 1 at its end."""
    if progress < config.warmup:
        return progress / config.warmup
    done = (progress - config.warmup) / max(1e-9, 1 - config.warmup)  # 0..1 after the warm-up
    if config.schedule == "invsqrt":  # https://arxiv.org/abs/1706.03762, section 5.3, scaled to a peak of 1
        return math.sqrt(max(config.warmup, 1e-9) / progress) if progress else 1.0
    fall = {"constant": 0.0, "linear": done, "cosine": (1 - math.cos(math.pi * done)) / 2}[config.schedule]
    return 1 - (1 - config.final_rate) * min(1.0, fall)


def set_rate(optimizers: list[Optimizer], share: float) -> None:
    """Set the learning rate of each group to `share` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def clip_gradients(model: nn.Module, limit: float) -> float:
    """Scale the gradients to a total norm of at most `limit` (0: unchanged). Returns the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit or math.inf))
