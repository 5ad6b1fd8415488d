"""Checks of the exercises on batches, the loss, the training step, the learning rate and the optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW
from torch.utils.flop_counter import FlopCounterMode

from jumok.config import TrainConfig
from jumok.course.practice.checking import (
    Code,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    raises,
    require,
    require_number,
    require_shape,
    require_tensor,
    require_tensors,
    result_of,
)
from jumok.training.optim import orthogonal, rate

# --- get_batch ---


def get_batch(code: Code) -> Steps:
    """Windows at random places, and the tokens one place later."""
    function = code.function("get_batch")
    draw = _Windows(function, tokens=300, cut=200)
    starts = draw(16, 8)
    yield passed("windows-cut")
    require(len(starts) > 1, "same-window", rows=16)
    require(starts != draw(16, 8) or starts != draw(16, 8), "not-random")
    yield passed("random-starts")
    yield from _the_right_part(function)


def _the_right_part(function: Callable[..., Any]) -> Steps:
    draw = _Windows(function, tokens=300, cut=100)
    require(max(draw(64, 8)) < 100, "leak")
    require(min(draw(64, 8, held_out=True)) >= 100, "not-held-out")
    yield passed("parts-apart")
    short = _Windows(function, tokens=22, cut=11)  # a window of 8 tokens and the token after it fit at three places
    for held_out, first in ((False, 0), (True, 11)):
        starts = {start for _ in range(8) for start in short(16, 8, held_out=held_out)}
        require(max(starts) <= first + 2, "beyond-the-end")
        require(len(starts) == 3, "start-never-drawn", found=sorted(start - first for start in starts))
    yield passed("windows-inside")


class _Windows:
    """Draws batches from a text whose tokens are all different, which tells the place of each."""

    def __init__(self, function: Callable[..., Any], *, tokens: int, cut: int) -> None:
        self._function, self._cut = function, cut
        self._ids = torch.randperm(tokens, generator=torch.Generator().manual_seed(tokens))  # not in order
        self._place_of = self._ids.argsort()

    def __call__(self, rows: int, length: int, held_out: bool = False) -> list[int]:
        """Return the different starts of the windows of a batch, rising.

        Raises:
            Wrong: x or y is not a window.
        """
        made = raises(
            "beyond-the-end",
            lambda: self._function(self._ids.clone(), self._cut, rows, length, held_out),
            text=("stack expects each tensor to be equal size", "IndexError", "exceeds dimension size"),
        )
        x, y = require_tensors(made, 2)
        require(not x.is_floating_point(), "float-ids")
        for tensor in (x, y):
            require_shape(tensor, (rows, length), "(B, T)")
        places, after = self._place_of[x], self._place_of[y]
        require(bool((places.diff() == 1).all()), "scattered")
        require(not torch.equal(x, y), "not-shifted")
        require(not torch.equal(after, places - 1), "shifted-backwards")
        inside = places[:, -1] + 1 < len(self._ids)
        require(bool(inside.all()), "beyond-the-end")
        require(torch.equal(after, places + 1), "other-starts")
        return sorted({int(start) for start in places[:, 0]})


# --- cross_entropy ---


def cross_entropy(code: Code) -> Steps:
    """The mean negative log-probability of the targets, also for large logits."""
    function = code.function("cross_entropy")
    logits, targets = hidden(3, 5, 7, scale=2), torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
    right = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    compare(result_of(function, logits, targets), right)
    yield passed("equals-cross-entropy")
    high = logits + 1000 * torch.arange(1, 6)[:, None]  # each position at another height
    require(math.isfinite(require_number(function(high.clone(), targets.clone()))), "overflow")
    far = logits * 100
    small = require_number(function(far.clone(), targets.clone()))
    limit = 0.9 * F.cross_entropy(far.flatten(0, 1), targets.flatten()).item()
    require(not math.isfinite(small) or small > limit, "epsilon-in-log", given=small)
    require(math.isfinite(require_number(function(far.clone(), targets.clone()))), "log-of-zero")
    compare(function(high.clone(), targets.clone()), right, tolerance=1e-3)
    compare(function(far.clone(), targets.clone()), F.cross_entropy(far.flatten(0, 1), targets.flatten()))
    yield passed("finite")
    given = logits.clone().requires_grad_()
    loss = require_tensor(function(given, targets.clone()))
    require(loss.requires_grad, "detached")
    loss.backward()
    expected = (logits.softmax(-1) - F.one_hot(targets, 7)) / targets.numel()
    compare(given.grad, expected)
    yield passed("gradient-right")


# --- training_step ---


class _Model(nn.Module):
    """A bigram model that notes the order of calls."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.table = nn.Parameter(hidden(vocab, vocab, seed=3))
        self.happened: list[str] = []
        self.table.register_post_accumulate_grad_hook(lambda _: self.happened.append("backward"))

    def forward(self, ids: Tensor) -> Tensor:
        self.happened.append("train" if self.training else "eval")
        return self.table[ids]


class _Optimizer(SGD):
    """SGD that keeps the gradient with which it stepped."""

    def __init__(self, model: _Model) -> None:
        super().__init__(model.parameters(), lr=0.5)
        self._model = model
        self.gradient: Tensor | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update, and note it."""
        self._model.happened.append("step")
        gradient = self._model.table.grad
        self.gradient = None if gradient is None else gradient.clone()
        super().step()


def training_step(code: Code) -> Steps:
    """One step, by what happened in which order, and by the gradient with which the optimizer stepped."""
    function = code.function("training_step")
    vocab, old = 6, 0.7
    x, y = (torch.randint(vocab, (2, 5), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    right = _Model(vocab)
    loss = F.cross_entropy(right(x).flatten(0, 1), y.flatten())
    loss.backward()
    gradient = right.table.grad
    assert gradient is not None

    def run(clip: float) -> tuple[object, _Model, _Optimizer]:
        model = _Model(vocab).eval()
        optimizer = _Optimizer(model)
        model.table.grad = torch.full_like(model.table, old)
        return function(model, optimizer, x.clone(), y.clone(), clip), model, optimizer

    given, model, optimizer = run(clip=1e6)
    _require_order(model.happened)
    yield passed("order-of-a-step")
    if optimizer.gradient is None:
        raise Wrong("zero-after-backward")
    compare(optimizer.gradient, gradient)
    yield passed("gradient-of-batch")
    _require_loss(given, loss.item())
    yield passed("loss-returned")
    _, _, optimizer = run(clip=gradient.norm().item() / 3)
    compare(optimizer.gradient, gradient / 3, tolerance=1e-4)
    yield passed("norm-clipped")


def _require_order(happened: list[str]) -> None:
    """Check the order: the forward pass in training mode, backward, step."""
    require("train" in happened or "eval" in happened, "no-forward/training")
    require("backward" in happened, "no-backward")
    require("step" in happened, "no-step")
    require(happened.index("backward") < happened.index("step"), "step-before-backward")
    require("eval" not in happened, "eval-mode")


def _require_loss(given: object, right: float) -> None:
    """Check that the loss was returned, as a Python number."""
    require(not isinstance(given, Tensor), "tensor-returned")
    compare(torch.tensor(require_number(given)), torch.tensor(right))


# --- learning_rate ---


def learning_rate(code: Code) -> Steps:
    """The schedules of the production trainer."""
    function = code.function("learning_rate")
    steps, warmup, peak = 50, 8, 0.3
    at = range(steps + 1)

    def rates(warmup: int, schedule: str) -> Tensor:
        made = [function(step, steps, warmup, peak, schedule) for step in at]
        return torch.tensor([require_number(one) for one in made], dtype=torch.float64)

    def right(warmup: int, schedule: str) -> Tensor:
        config = TrainConfig(warmup=warmup / steps, schedule=schedule)  # type: ignore[arg-type]
        return torch.tensor([peak * rate(config, step / steps) for step in at], dtype=torch.float64)

    given = rates(warmup, "linear")
    compare(given[:warmup], right(warmup, "linear")[:warmup])
    yield passed("warm-up")
    compare(given, right(warmup, "linear"))
    yield passed("linear-fall")
    compare(rates(warmup, "cosine"), right(warmup, "cosine"))
    yield passed("cosine-fall")
    for schedule in ("linear", "cosine"):
        without = raises("no-warmup-steps", partial(rates, 0, schedule), text="ZeroDivisionError")
        compare(without, right(0, schedule))
    yield passed("without-warm-up")


# --- adamw ---


def adamw(code: Code) -> Steps:
    """AdamW, part by part and then against torch.optim over several steps."""
    function = code.function("adamw")
    w, g = hidden(4, 3, seed=1), hidden(4, 3, seed=2)
    zero = torch.zeros_like(w)

    def one(m: Tensor, v: Tensor, t: int, epsilon: float = 0.0, weight_decay: float = 0.0) -> tuple[Tensor, ...]:
        settings = {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "epsilon": epsilon, "weight_decay": weight_decay}
        return require_tensors(result_of(partial(function, **settings), w, g, m, v, t), 3)

    m, v = one(w, g**2, 3)[1:]
    compare(m, 0.8 * w + 0.2 * g)
    compare(v, 0.9 * g**2 + 0.1 * g**2)
    compare(one(w, w**2, 3)[2], 0.9 * w**2 + 0.1 * g**2)
    yield passed("moments")
    compare(one(zero, zero, 1)[0], w - 0.1 * g.sign())
    yield passed("bias-correction")
    m, v = 0.2 * g / (1 - 0.8**3), 0.1 * g**2 / (1 - 0.9**3)
    compare(one(zero, zero, 3)[0], w - 0.1 * m / v.sqrt())
    compare(one(zero, zero, 1, epsilon=0.5)[0], w - 0.1 * g / (g.abs() + 0.5))
    yield passed("epsilon-place")
    decayed, m, v = one(zero, zero, 1, weight_decay=0.5)
    compare(m, 0.2 * g)
    compare(v, 0.1 * g**2)
    compare(decayed, w - 0.1 * 0.5 * w - 0.1 * g.sign())
    yield passed("decoupled-decay")
    yield from _several_steps(function)


def _several_steps(function: Callable[..., Any]) -> Steps:
    """Compare with torch.optim.AdamW over five steps."""
    theirs = nn.Parameter(hidden(4, 3, seed=1))
    optimizer = AdamW([theirs], lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v = theirs.detach().clone(), torch.zeros(4, 3), torch.zeros(4, 3)
    for t in range(1, 6):
        theirs.grad = hidden(4, 3, seed=10 + t)
        optimizer.step()
        w, m, v = require_tensors(result_of(partial(function, lr=0.02), w, theirs.grad, m, v, t), 3)
        compare(w, theirs.detach())
    yield passed("equals-adamw")


# --- muon ---


def muon(code: Code) -> Steps:
    """Newton–Schulz iterations: the values, the singular values, and the cost for a tall matrix."""
    function = code.function("orthogonalise")
    matrix = hidden(6, 10, scale=0.1)  # small enough that the iteration does not diverge without the division
    compare(result_of(function, matrix), _orthogonalised(matrix), tolerance=1e-3)
    yield passed("newton-schulz")
    tall = hidden(128, 4, seed=1)
    counter = FlopCounterMode(display=False)
    with counter:
        made = require_tensor(function(tall.clone()))
    require(tuple(made.shape) != (4, 128), "not-transposed-back")
    require_shape(made, (128, 4))
    compare(made, _orthogonalised(tall.T).T, tolerance=1e-3)
    flops = 2 * 5 * (2 * 4 * 4 * 128 + 4**3)  # the multiplications and additions of our own solution
    times = counter.get_total_flops() / flops
    require(times < 4, "tall-not-transposed", times=times)
    yield passed("tall-matrix")
    zero = require_tensor(function(torch.zeros(3, 5)))
    require(bool((zero == 0).all()), "zero-matrix")
    compare(function(torch.zeros(3, 5)), torch.zeros(3, 5))
    square = hidden(12, 20, seed=5)
    made, theirs = require_tensor(function(square.clone())), orthogonal(square).float()
    values = torch.linalg.svdvals(made)
    require(values.min().item() > 0.5 and values.max().item() < 1.3, "spread", low=values.min(), high=values.max())
    cosine = (made * theirs).sum() / (made.norm() * theirs.norm())
    require(cosine.item() > 0.97, "other-direction", cosine=cosine.item())
    yield passed("equals-muon", low=values.min().item(), high=values.max().item())


_A, _B, _C = 3.4445, -4.7750, 2.0315  # https://kellerjordan.github.io/posts/muon/


def _orthogonalised(matrix: Tensor) -> Tensor:
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x
