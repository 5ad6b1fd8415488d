"""What a step minimises, the optimizers that do so, and the schedule of their learning rates.

Muon (https://kellerjordan.github.io/posts/muon/) orthogonalises the update of each matrix inside the blocks; AdamW
(https://arxiv.org/abs/1711.05101) takes the rest: embeddings, the output layer, norms and biases. Many runs
keep a mean of their newest parameters.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from jumok.config import TrainConfig
from jumok.models import Model
from jumok.nn.blocks import Block

if TYPE_CHECKING:
    from jumok.training.tasks import Task

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
MEAN_POWER = 8.0  # of the step, which the weights of a mean of parameters grow with: a ninth of the steps, about
SYMMETRIC_BLOCK = 64  # rows
STACK = 1 << 22  # numbers in the matrices of one shape that are computed together, at most


Orthogonalise = Callable[[Iterable[Tensor], torch.dtype | None], Iterable[Tensor]]


class Objective(nn.Module):
    """A model with its head and its losses as one module, so that wrappers and hooks see a whole pass of training."""

    def __init__(self, task: Task[Any], model: Model) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, counts: Sequence[int], *batch: Tensor) -> Tensor:
        """Return the share of a batch in each loss of a step, (losses,). They are added up to what is minimised.

        A loss is a sum and a count, because the mean over the batches of a step is not the mean of their means. A task
        may have several losses, each with a count of its own.

        Args:
            counts: of all batches of the step, by `Task.counts`. Then the losses, and the gradients, of its batches add
                up to those of one batch of all their rows.
            batch: on the CPU; it is copied to the device of the model.
        """
        device = self.model.token_embedding.weight.device
        sums = self._task.loss_sums(self.model, tuple(each.to(device, non_blocking=True) for each in batch))
        return torch.stack([total / max(1, count) for total, count in zip(sums, counts, strict=True)])


class WithoutCompiler(Optimizer):
    """An optimizer that does not import the compiler of PyTorch.

    Methods of `torch.optim.Optimizer` are wrapped to keep torch.compile out of them, and each wrapper imports the
    compiler at its first call, which takes more than a second. Here they are as they were before that.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class AdamW(WithoutCompiler, optim.AdamW):
    """`torch.optim.AdamW` that does not import the compiler of PyTorch."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update each parameter that has a gradient."""
        assert closure is None
        inspect.unwrap(optim.AdamW.step)(self)


class Muon(WithoutCompiler):
    """Momentum whose direction, for a matrix, is about the nearest orthogonal matrix.

    It is `torch.optim.Muon` with four iterations instead of five, which took a fifth of a training step. Two things
    replace the fifth one. A matrix is divided by its Schatten 4-norm, which follows from a product that the first
    iteration needs anyway, instead of by the larger Frobenius norm. And each iteration has a polynomial of its own.

    Args:
        params: matrices. lr: rate; a matrix (A, B) moves by lr · sqrt(max(1, A / B)) along its direction.
        momentum: Nesterov's. weight_decay: decoupled.
        orthogonalise: `orthogonal` of each of some matrices, in their order; None: `stacked_orthogonal`.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        orthogonalise: Callable[[Iterable[Tensor]], Iterable[Tensor]] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._orthogonalise = orthogonalise or stacked_orthogonal

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update each matrix that has a gradient."""
        assert closure is None
        moved = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        moved.sort(key=lambda each: _sides(each[0]))  # so that those of one shape follow each other
        directions = self._orthogonalise(self._direction(parameter, group) for parameter, group in moved)
        for (parameter, group), direction in zip(moved, directions, strict=True):
            self._move(parameter, group, direction)

    def _direction(self, parameter: nn.Parameter, group: dict[str, Any]) -> Tensor:
        """Return the gradient with Nesterov's momentum, which is updated."""
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        gradient = parameter.grad
        assert gradient is not None
        mean: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        return gradient.lerp(mean, group["momentum"])

    def _move(self, parameter: nn.Parameter, group: dict[str, Any], direction: Tensor) -> None:
        rate = group["lr"] * math.sqrt(max(1.0, parameter.shape[0] / parameter.shape[1]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(direction, alpha=-rate)


class Mean(WithoutCompiler):
    """A mean of the parameters after each step, in which newer ones count more. It changes none of them.

    Parameters scatter around better ones as long as the rate is high. Their mean predicts about as well as those that a
    run has whose rate has fallen to zero by then, so it reaches a goal in fewer steps than they do. Of a text that is
    read several times, the last parameters know more by heart than their mean. Polynomial-decay averaging
    (https://arxiv.org/abs/1212.1824): parameters count by their step to the power of 8.
    """

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.0})  # a rate, as all optimizers have

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Let the parameters of now count."""
        assert closure is None
        for parameter in self._parameters():
            state = self.state[parameter]
            if not state:
                state |= {"step": torch.zeros(()), "mean": torch.zeros_like(parameter)}
            state["step"] += 1
            state["mean"].lerp_(parameter, (MEAN_POWER + 1) / (MEAN_POWER + float(state["step"])))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the parameters their means inside the block; before the first step nothing is changed."""
        with torch.no_grad():
            own = [(p, p.clone()) for p in self._parameters() if self.state[p]]
            for parameter, _ in own:
                parameter.copy_(self.state[parameter]["mean"])
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in own:
                    parameter.copy_(before)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


def orthogonal(matrix: Tensor, dtype: torch.dtype | None = torch.bfloat16) -> Tensor:
    """Compute about U Vᵀ of the singular value decomposition U S Vᵀ: most singular values are near 1.

    Args:
        matrix: (A, B), or N of them, (N, A, B); finite. A zero matrix gives a zero matrix.
        dtype: of the computation and the result; None: that of the matrix.
    """
    dtype = dtype or matrix.dtype
    if matrix.dim() == 2:
        return orthogonal(matrix[None], dtype)[0]
    tall = matrix.shape[1] > matrix.shape[2]
    x = (matrix.mT if tall else matrix).to(dtype)  # (N, m, n), m no more than n
    x = x / _norms(x)  # so that fourth powers are in range
    gram = _symmetric(x, x.mT)  # (N, m, m)
    scale = (MARGIN * _norms(gram.to(torch.promote_types(dtype, torch.float32))).rsqrt()).to(dtype)  # (N, 1, 1)
    gram = gram * scale.square()
    # For long matrices it is less work to iterate on x xᵀ alone. In bfloat16 two iterations in a row leave a matrix as
    # far from orthogonal as one at a time (6%, rounding 3% of it), and four make 3 of what should be 1.08.
    long = 2 * x.shape[2] > 3 * x.shape[1]
    at_once = 1 if not long else 2 if dtype == torch.bfloat16 else len(POLYNOMIALS)
    for first in range(0, len(POLYNOMIALS), at_once):
        if first:
            gram = _symmetric(x, x.mT)
        multiplier = _multiplier(gram, POLYNOMIALS[first : first + at_once])
        x = (multiplier if first else multiplier * scale) @ x  # (N, m, n)
    return x.mT if tall else x


def _multiplier(gram: Tensor, polynomials: Sequence[tuple[float, float, float]]) -> Tensor:
    """Return the matrix by which some iterations multiply x, (N, m, m). gram: x xᵀ.

    All of it are polynomials of one symmetric matrix, which commute, so all products are symmetric.
    """
    found: Tensor | None = None
    for number, (a, b, c) in enumerate(polynomials, 1):
        inner = c * gram
        inner.diagonal(dim1=1, dim2=2).add_(b)
        step = _symmetric(gram, inner)
        step.diagonal(dim1=1, dim2=2).add_(a)  # a + b gram + c gram²
        found = step if found is None else _symmetric(found, step)
        if number < len(polynomials):
            gram = _symmetric(_symmetric(step, gram), step)
    assert found is not None
    return found


def _symmetric(a: Tensor, b: Tensor) -> Tensor:
    """Return a b, (N, m, m), which is symmetric.

    On a CPU only the blocks on the diagonal and above it are computed, except in bfloat16, where copying takes as long.
    """
    size = a.shape[1]
    if a.device.type != "cpu" or a.dtype == torch.bfloat16 or size <= SYMMETRIC_BLOCK:
        return a @ b
    found = a.new_empty(a.shape[0], size, size)
    for start in range(0, size, SYMMETRIC_BLOCK):
        stop = start + SYMMETRIC_BLOCK
        found[:, start:stop, start:] = a[:, start:stop] @ b[:, :, start:]
        found[:, stop:, start:stop] = found[:, start:stop, stop:].mT
    return found


def _norms(x: Tensor) -> Tensor:
    """(N, m, n) -> (N, 1, 1), none of them zero."""
    return torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-30)


def _sides(matrix: Tensor) -> tuple[int, int]:
    """Return the shorter side and the longer one."""
    return min(matrix.shape), max(matrix.shape)


def stacked_orthogonal(matrices: Iterable[Tensor], dtype: torch.dtype | None = torch.bfloat16) -> Iterator[Tensor]:
    """`orthogonal` of each matrix. Neighbours of one shape, or of its transpose, are computed together.

    With two cores and AMX, single products of 256 columns have 0.4 of the speed of sixteen together (bench/LOG.md).
    """
    for sides, alike in groupby(matrices, key=_sides):
        while some := list(islice(alike, max(1, STACK // math.prod(sides)))):
            turned = [matrix.shape[0] > matrix.shape[1] for matrix in some]
            wide = [(m.mT if turn else m).to(dtype or m.dtype) for m, turn in zip(some, turned, strict=True)]
            found = orthogonal(torch.stack(wide), dtype)  # (N, m, n)
            yield from (x.mT if turn else x for x, turn in zip(found, turned, strict=True))


def balanced(costs: Sequence[int], parts: int) -> list[int]:
    """Divide jobs into parts that cost about the same, the dearest first; return the part of each job, from 0."""
    sums, chosen = [0] * parts, [0] * len(costs)
    for job in sorted(range(len(costs)), key=lambda job: (-costs[job], job)):
        chosen[job] = min(range(parts), key=lambda part: (sums[part], part))
        sums[chosen[job]] += costs[job]
    return chosen


def dtype_of_products(config: TrainConfig) -> torch.dtype | None:
    """Return the dtype of Muon's products, which is the precision of the passes; None: that of the matrices.

    In bfloat16 a difference in the last bit of a gradient can become one of 2⁻⁸ in a direction. The losses of float32
    runs in one and in two processes then differed by 1.6e-3 after 100 steps, and by 5e-6 with float32 products.
    """
    return torch.bfloat16 if config.precision == "bfloat16" else None


def make_optimizers(
    model: nn.Module, config: TrainConfig, orthogonalise: Orthogonalise | None = None
) -> list[Optimizer]:
    """Make the optimizers of a run. Each parameter group carries its peak rate as "peak".

    With "muon" there are two, Muon first; with "adamw" one. Only matrices have weight decay. Frozen parameters are left
    out. A `Mean` of all others is the last one, if the run keeps it.

    Args:
        orthogonalise: `orthogonal` of some matrices; None: this process computes all of them.
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
    dtype = dtype_of_products(config)
    if config.optimizer == "muon" and inner:  # some models of the ladder have no matrix inside blocks
        optimizers.append(
            Muon(
                inner,
                lr=config.matrix_learning_rate,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                orthogonalise=lambda matrices: (orthogonalise or stacked_orthogonal)(matrices, dtype),
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
    if config.keeps_mean:
        optimizers.append(Mean([*inner, *outer, *vectors]))
    for optimizer in optimizers:
        for settings in optimizer.param_groups:
            settings["peak"] = settings["lr"]
    return optimizers


def rate(config: TrainConfig, progress: float) -> float:
    """Return the learning rate as a share of its peak at `progress`, 0 at the start of the run and 1 at its end."""
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
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit or math.inf)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # that of a DTensor
