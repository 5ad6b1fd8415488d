"""Chapter 10, training: gradients by the chain rule, AdamW, the learning rate, clipping, the loop, and Muon.

Shapes use the legend of `jumok.nn.attention`.

Source: AdamW: https://arxiv.org/abs/1711.05101; Muon: https://kellerjordan.github.io/posts/muon/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.bigrams import get_batch, windows


class Value:
    """A number that remembers how it was computed, so that `backward` can compute the gradients of what went into it.

    Args:
        data: the number. inputs: pairs of a value that it was computed from and the local derivative.
    """

    def __init__(self, data: float, inputs: Sequence[tuple[Any, float]] = ()) -> None:
        self.data, self.inputs, self.grad = data, inputs, 0.0

    def __add__(self, other: Any) -> Any:
        return Value(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __sub__(self, other: Any) -> Any:
        return Value(self.data - other.data, [(self, 1.0), (other, -1.0)])

    def __mul__(self, other: Any) -> Any:
        return Value(self.data * other.data, [(self, other.data), (other, self.data)])

    def exp(self) -> Any:
        """Return e to the power of this value."""
        return Value(math.exp(self.data), [(self, math.exp(self.data))])

    def log(self) -> Any:
        """Return the natural logarithm."""
        return Value(math.log(self.data), [(self, 1 / self.data)])

    def order(self, seen: set[Any]) -> list[Any]:
        """Return all values that lead to this one, each after its inputs."""
        if self in seen:
            return []
        seen.add(self)
        return [each for value, _ in self.inputs for each in value.order(seen)] + [self]

    def backward(self) -> None:
        """Add to `grad` of each value that leads to this one the derivative of this one."""
        self.grad = 1.0
        for value in reversed(self.order(set())):
            for source, local in value.inputs:
                source.grad += value.grad * local


def logit_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the derivative of the mean cross-entropy with respect to the logits: (N, V), (N,) -> (N, V)."""
    return (logits.softmax(dim=-1) - F.one_hot(targets, logits.shape[-1])) / len(targets)


class AdamState(NamedTuple):
    """What Adam remembers of a parameter: the number of updates, and running means of g and of g²."""

    step: int
    mean: Tensor
    square: Tensor


def adam_begin(parameter: Tensor) -> AdamState:
    """Return the state before the first update."""
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
) -> tuple[Tensor, AdamState]:
    """Return the parameter after one update of AdamW, and the new state; as `torch.optim.AdamW`."""
    step = state.step + 1
    mean = beta1 * state.mean + (1 - beta1) * gradient
    square = beta2 * state.square + (1 - beta2) * gradient**2
    direction = (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + 1e-8)
    return parameter * (1 - rate * weight_decay) - rate * direction, AdamState(step, mean, square)


def learning_rate(progress: float, *, peak: float, warmup: float, schedule: str = "linear") -> float:
    """Return the learning rate at a point of a run, from 0 to 1: it rises to the peak, then falls to 0."""
    if progress < warmup:
        return peak * progress / warmup
    left = (1 - progress) / (1 - warmup)
    return peak * (left if schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)


def clipped(gradients: Sequence[Tensor], limit: float) -> tuple[list[Tensor], float]:
    """Return gradients whose norm, as one vector, is at most `limit`, and the norm before."""
    norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
    scale = min(1.0, limit / norm) if norm > 0 else 1.0
    return [gradient * scale for gradient in gradients], norm


def mean_loss(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of the targets in nats: (B, T) each -> ()."""
    logits = model(inputs)  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def validation_loss(model: nn.Module, ids: Tensor, context_length: int) -> float:
    """Return the mean loss of a text, (N,), in windows that do not overlap; the model must be in evaluation mode."""
    starts = range(0, len(ids) - context_length, context_length)
    losses = [mean_loss(model, *windows(ids, [start], context_length)) for start in starts]
    return torch.stack(losses).mean().item()


def update(states: dict[nn.Parameter, AdamState], rate: float) -> None:
    """Change all parameters by one step of AdamW with clipped gradients; the matrices have weight decay."""
    gradients, _ = clipped([p.grad for p in states if p.grad is not None], limit=1.0)
    for p, gradient in zip(states, gradients, strict=True):
        decay = 0.1 if p.dim() >= 2 else 0.0
        p.data, states[p] = adamw_step(p.data, gradient, states[p], rate=rate, weight_decay=decay)


def train(
    model: nn.Module,
    ids: Tensor,
    *,
    steps: int,
    context_length: int,
    batch_size: int = 16,
    peak: float = 1e-3,
    held_out: Tensor | None = None,
) -> list[float]:
    """Train a model on the tokens of a text, (N,), and return the loss of each step.

    held_out: another text, (M,), whose loss is printed ten times.
    """
    states = {p: adam_begin(p.detach()) for p in model.parameters()}
    losses = []
    for step in range(steps):
        model.train()
        loss = mean_loss(model, *get_batch(ids, context_length, batch_size))
        model.zero_grad()
        loss.backward()
        update(states, learning_rate((step + 0.5) / steps, peak=peak, warmup=0.02))
        losses.append(loss.item())
        model.eval()
        if held_out is not None and (step + 1) % max(1, steps // 10) == 0:
            print(f"{step + 1:6} {losses[-1]:.2f} {validation_loss(model, held_out, context_length):.2f}")
    return losses


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """Return U Vᵀ of the singular value decomposition U S Vᵀ, in which all singular values are 1: (A, B) -> (A, B)."""
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vt


def muon_step(
    parameter: Tensor, gradient: Tensor, mean: Tensor, *, rate: float, momentum: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Return a matrix after one update of Muon, and the running mean of its gradients: (A, B) each."""
    mean = momentum * mean + (1 - momentum) * gradient
    direction = nearest_orthogonal(momentum * mean + (1 - momentum) * gradient)
    scale = math.sqrt(max(1.0, parameter.shape[0] / parameter.shape[1]))
    return parameter - rate * scale * direction, mean


def singular_values_after(values: Tensor, polynomials: Sequence[Sequence[float]]) -> Tensor:
    """Return what polynomials a x + b x³ + c x⁵, one after the other, make of singular values: (N,) -> (N,)."""
    for a, b, c in polynomials:
        values = a * values + b * values**3 + c * values**5
    return values
