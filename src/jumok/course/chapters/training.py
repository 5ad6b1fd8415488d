"""Chapter 10, training: the gradient of the loss, AdamW, the learning rate, clipping and Muon, one formula at a time.

Each function computes what the production trainer or PyTorch computes: `learning_rate` is `jumok.training.optim.rate`,
`clipped` is `clip_gradients`, `adamw_step` is `torch.optim.AdamW`, and `muon_step` is `jumok.training.optim.Muon` with
the exact orthogonal matrix. `trainer_losses` runs the production trainer itself, for comparison with a loop of one's
own.

Source: AdamW: https://arxiv.org/abs/1711.05101; Muon: https://kellerjordan.github.io/posts/muon/.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from jumok import GPT, Trainer
from jumok.config import GPTConfig, TrainConfig
from jumok.course.chapters.foundations import one_hot
from jumok.nn import Block
from jumok.runs.events import Step
from jumok.training.optim import POLYNOMIALS


def logit_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """The derivative of the mean cross-entropy with respect to the logits: probabilities minus one-hot targets.

    Args:
        logits: (..., V). targets: (...), ids below V.

    Returns:
        (..., V), divided by the number of targets; equal to what autograd computes. Each row sums to 0.
    """
    difference = logits.softmax(dim=-1) - one_hot(targets, logits.shape[-1]).to(logits.dtype)  # (..., V)
    return difference / targets.numel()


# --- optimizers -------------------------------------------------------------------------------------------------------


class AdamState(NamedTuple):
    """What Adam remembers of a parameter. step: updates so far. mean, square: running means of g and of g²."""

    step: int
    mean: Tensor
    square: Tensor


def adam_begin(parameter: Tensor) -> AdamState:
    """The state before the first update: zeros of the shape of the parameter."""
    return AdamState(0, torch.zeros_like(parameter), torch.zeros_like(parameter))


def adamw_step(
    parameter: Tensor,
    gradient: Tensor,
    state: AdamState,
    *,
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.95,
    weight_decay: float = 0.0,
    epsilon: float = 1e-8,
) -> tuple[Tensor, AdamState]:
    """One update of AdamW.

    Args:
        parameter, gradient: of one shape. state: of the update before. rate: learning rate. beta1, beta2: decay of the
            two running means. weight_decay: shrinks the parameter by rate · weight_decay, apart from the gradient.
        epsilon: avoids a division by zero.

    Returns:
        The new parameter and the new state; equal to `torch.optim.AdamW`.
    """
    step = state.step + 1
    mean = beta1 * state.mean + (1 - beta1) * gradient
    square = beta2 * state.square + (1 - beta2) * gradient**2
    # Both begin at zero and are too small at first; these divisions correct that.
    direction = (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + epsilon)
    return parameter * (1 - rate * weight_decay) - rate * direction, AdamState(step, mean, square)


def singular_values_after(values: Tensor, iterations: int = len(POLYNOMIALS)) -> Tensor:
    """What the iterations of Muon make of singular values: each applies a x + b x³ + c x⁵.

    A product such as X Xᵀ X changes only the singular values of X, not its singular vectors. So a polynomial of the
    matrix is a polynomial of its singular values.

    Args:
        values: any shape, from 0.005 to 1. iterations: up to 4.

    Returns:
        The same shape; from 0.90 to 1.09 after all iterations.
    """
    for a, b, c in POLYNOMIALS[:iterations]:
        values = a * values + b * values**3 + c * values**5
    return values


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """U Vᵀ of the singular value decomposition U S Vᵀ: every singular value becomes 1. (A, B) -> (A, B).

    `jumok.training.optim.orthogonal` computes about the same with a few matrix products.
    """
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vt


def muon_step(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    *,
    rate: float,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """One update of Muon, with the exact orthogonal matrix.

    Args:
        parameter, gradient: (A, B). mean: (A, B), the running mean of the gradients before; zeros at first.
        rate: learning rate. momentum: decay of the mean. weight_decay: as for `adamw_step`.

    Returns:
        The new parameter and the new mean; close to `jumok.training.optim.Muon`.
    """
    mean = momentum * mean + (1 - momentum) * gradient
    direction = nearest_orthogonal(momentum * mean + (1 - momentum) * gradient)
    scale = math.sqrt(max(1.0, parameter.shape[0] / parameter.shape[1]))
    return parameter * (1 - rate * weight_decay) - rate * scale * direction, mean


def clipped(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], float]:
    """Gradients whose total norm is at most `limit`, and the norm before.

    The norm is that of all numbers of all gradients as one vector. All are scaled by one factor, so the direction of
    the update stays the same. Equal to `jumok.training.optim.clip_gradients`, up to a relative difference of 1e-6.
    """
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
    scale = min(1.0, limit / norm) if norm > 0 else 1.0
    return [gradient * scale for gradient in gradients], norm


def learning_rate(progress: float, *, peak: float, warmup: float, schedule: str = "linear") -> float:
    """The learning rate at a point of a run.

    Args:
        progress: 0 at the start of the run, 1 at its end. peak: the highest rate. warmup: share of the run in which
            the rate rises from 0 to the peak. schedule: how it falls to 0 afterwards, "linear" or "cosine".

    Raises:
        ValueError: another schedule.
    """
    if schedule not in ("linear", "cosine"):
        raise ValueError(f"schedule={schedule!r} is not linear or cosine")
    if progress < warmup:
        return peak * progress / warmup
    left = (1 - progress) / (1 - warmup)  # from 1 to 0
    return peak * (left if schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


# --- the production trainer -------------------------------------------------------------------------------------------


def trainer_losses(model: GPTConfig, text: str, training: TrainConfig) -> list[float]:
    """The losses of each step when the production trainer trains on a text, in a temporary folder.

    Args:
        model: without vocab_size, which the tokenizer of the run sets. text: its end is held out, as `training.val`
            says. training: with `steps`.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        Trainer.start(Path(folder) / "run", text, model, training, tokenizer="char", device="cpu") as trainer,
    ):
        return [event.loss for event in trainer.run() if isinstance(event, Step)]


def without_mask(model: GPT) -> GPT:
    """Remove the causal mask of a GPT in place, as a mistake to study: each position attends to the next tokens too."""
    for block in model.blocks:
        assert isinstance(block, Block)
        block.causal = False
    return model
