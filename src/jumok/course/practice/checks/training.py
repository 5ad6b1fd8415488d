"""Checks of the exercises on batches, the loss, the training step, the learning rate and the optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    Mistake,
    Steps,
    Wrong,
    any_of,
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
        require(not x.is_floating_point(), "float-ids/training")
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
    compare(function(logits.clone(), targets.clone()), right, *_wrong_losses(logits, targets, right))
    yield passed("equals-cross-entropy")
    high = logits + 1000 * torch.arange(1, 6)[:, None]  # each position at another height
    require(math.isfinite(require_number(function(high.clone(), targets.clone()))), "overflow/training")
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


def _wrong_losses(logits: Tensor, targets: Tensor, right: Tensor) -> Iterator[Mistake]:
    count, vocab = targets.numel(), logits.shape[-1]

    def of_targets(values: Tensor) -> Tensor:
        return values.gather(-1, targets[..., None])[..., 0]

    probability = of_targets(logits.softmax(-1))  # (B, T)
    log_probability = probability.log()
    largest = logits.max(-1).values  # (B, T)
    yield Mistake("no-log", -probability.mean())
    yield Mistake("no-minus/training", -right)
    yield Mistake("sum/training", right * count)
    yield Mistake("sum-over-time", right * logits.shape[1])
    yield Mistake("no-mean", -log_probability)
    yield Mistake("mean-over-vocabulary", right / vocab)
    yield Mistake("all-tokens", -logits.log_softmax(-1).mean())
    yield Mistake("dimension/training", -of_targets(logits.log_softmax(1)).mean())
    yield Mistake("logits-only", -of_targets(logits).mean())
    yield Mistake("maximum-on-one-side", right - largest.mean())
    yield Mistake("maximum-on-one-side", right + largest.mean())
    shifted = [logits - logits.max(dim, keepdim=True).values for dim in (0, 1)]
    losses = [(each.exp().sum(-1).log() - of_targets(each)).mean() for each in shifted]
    yield Mistake("maximum-dimension", any_of(*losses))
    yield Mistake("all-pairs", -logits.log_softmax(-1)[..., targets].mean())
    yield Mistake("bits", right / math.log(2))


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
        return _explained_step(lambda: function(model, optimizer, x.clone(), y.clone(), clip)), model, optimizer

    given, model, optimizer = run(clip=1e6)
    _require_order(model.happened)
    yield passed("order-of-a-step")
    if optimizer.gradient is None:
        raise Wrong("zero-after-backward")
    compare(optimizer.gradient, gradient, *_wrong_gradients(right.table.detach(), gradient, old, x, y))
    yield passed("gradient-of-batch")
    _require_loss(given, loss.item())
    yield passed("loss-returned")
    clip = gradient.norm().item() / 3
    _, _, optimizer = run(clip)
    compare(
        optimizer.gradient,
        gradient / 3,
        Mistake("no-clip", gradient, {"norm": gradient.norm().item(), "clip": clip}),
        Mistake("clip-each-value", gradient.clamp(-clip, clip)),
        tolerance=1e-4,
    )
    yield passed("norm-clipped")


def _wrong_gradients(table: Tensor, gradient: Tensor, old: float, x: Tensor, y: Tensor) -> Iterator[Mistake]:
    def of(loss: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            leaf = table.clone().requires_grad_()
            return torch.autograd.grad(loss(leaf), leaf)[0]

    def entropy(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    yield Mistake("no-zero-grad", gradient + old)
    yield Mistake("sum-of-losses", gradient * x.numel())
    yield Mistake("softmax-twice/training", of(lambda leaf: entropy(leaf[x].softmax(-1), y)))
    yield Mistake("shifted-twice/training", of(lambda leaf: entropy(leaf[x][:, :-1], y[:, 1:])))
    yield Mistake("input-as-target", of(lambda leaf: entropy(leaf[x], x)))
    yield Mistake("last-position-only", of(lambda leaf: F.cross_entropy(leaf[x][:, -1], y[:, -1])))


def _explained_step(call: Callable[[], object]) -> object:
    def shaped() -> object:
        return raises("targets-shape", call, text=("Expected target size", "Expected floating point"))

    return raises("item-before-backward", shaped, text="'float' object has no attribute 'backward'")


def _require_order(happened: list[str]) -> None:
    """Check the order: the forward pass in training mode, backward, step."""
    require("train" in happened or "eval" in happened, "no-forward")
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
    compare(given[:warmup], right(warmup, "linear")[:warmup], *_wrong_warmups(warmup, peak))
    yield passed("warm-up")
    compare(given, right(warmup, "linear"), *_wrong_falls(right(warmup, "linear"), steps, warmup, peak))
    yield passed("linear-fall")
    compare(rates(warmup, "cosine"), right(warmup, "cosine"), *_wrong_cosines(right(warmup, "cosine"), warmup, peak))
    yield passed("cosine-fall")
    for schedule in ("linear", "cosine"):
        without = raises("no-warmup-steps", partial(rates, 0, schedule), text="ZeroDivisionError")
        compare(without, right(0, schedule))
    yield passed("without-warm-up")


def _wrong_warmups(warmup: int, peak: float) -> Iterator[Mistake]:
    up = torch.arange(warmup, dtype=torch.float64)
    yield Mistake("no-warmup", lambda result: bool((result[0] - peak).abs() < 1e-6))
    yield Mistake("whole-division", peak * (up // warmup))
    yield Mistake("no-peak", up / warmup)
    yield Mistake("one-step-early", peak * (up + 1) / warmup)


def _wrong_falls(right: Tensor, steps: int, warmup: int, peak: float) -> Iterator[Mistake]:
    at = torch.arange(steps + 1, dtype=torch.float64)
    after = 1 - at / steps
    fallen = torch.where(at < warmup, right, peak * after)
    yield Mistake("done-from-the-start/wrong_falls", fallen, {"after": fallen[warmup].item()})
    late = torch.where(at < warmup, right, peak * (1 - (at - warmup) / steps))
    yield Mistake("not-to-zero", late, {"last": late[-1].item()})
    yield Mistake("constant", torch.where(at < warmup, right, torch.full_like(at, peak)))


def _wrong_cosines(right: Tensor, warmup: int, peak: float) -> Iterator[Mistake]:
    at = torch.arange(len(right), dtype=torch.float64)
    done = (at - warmup) / (len(right) - 1 - warmup)

    def fallen(share: Tensor) -> Tensor:
        return torch.where(at < warmup, right, peak * share)

    yield Mistake("schedule-ignored", fallen(1 - done))
    yield Mistake("done-from-the-start/wrong_cosines", fallen((1 + torch.cos(math.pi * at / at[-1])) / 2))
    yield Mistake("rising-cosine", fallen((1 - torch.cos(math.pi * done)) / 2))
    yield Mistake("no-half", fallen(1 + torch.cos(math.pi * done)))
    yield Mistake("degrees", fallen((1 + torch.cos(180 * done)) / 2))
    yield Mistake("no-pi", fallen((1 + torch.cos(done)) / 2))


# --- adamw ---


def adamw(code: Code) -> Steps:
    """AdamW, part by part and then against torch.optim over several steps."""
    function = code.function("adamw")
    w, g = hidden(4, 3, seed=1), hidden(4, 3, seed=2)
    zero = torch.zeros_like(w)

    def one(m: Tensor, v: Tensor, t: int, **settings: float) -> tuple[Tensor, ...]:
        made = function(w.clone(), g.clone(), m.clone(), v.clone(), t, lr=0.1, beta1=0.8, beta2=0.9, **settings)
        return require_tensors(made, 3)

    _, m, v = one(w, g**2, 3, epsilon=0.0, weight_decay=0.0)
    compare(
        m,
        0.8 * w + 0.2 * g,
        Mistake("swapped-shares", 0.2 * w + 0.8 * g),
        Mistake("corrected-returned", (0.8 * w + 0.2 * g) / (1 - 0.8**3)),
        Mistake("beta2-for-m", 0.9 * w + 0.1 * g),
    )
    compare(
        v,
        0.9 * g**2 + 0.1 * g**2,
        Mistake("gradient-not-squared", 0.9 * g**2 + 0.1 * g),
        Mistake("beta1-for-v/adamw", 0.8 * g**2 + 0.1 * g**2),
    )
    _, _, v = one(w, w**2, 3, epsilon=0.0, weight_decay=0.0)
    compare(v, 0.9 * w**2 + 0.1 * g**2, Mistake("beta1-for-v/adamw-2", 0.8 * w**2 + 0.2 * g**2))
    yield passed("moments")
    first, _, _ = one(zero, zero, 1, epsilon=0.0, weight_decay=0.0)
    compare(first, w - 0.1 * g.sign(), *_wrong_first_steps(w, g))
    yield passed("bias-correction")
    later, _, _ = one(zero, zero, 3, epsilon=0.0, weight_decay=0.0)
    moved = (0.2 * g / (1 - 0.8**3)) / (0.1 * g**2 / (1 - 0.9**3)).sqrt()
    times = (0.2 * g / (1 - 0.8 * 3)) / (0.1 * g**2 / (1 - 0.9 * 3)).abs().sqrt()
    one_power = (0.2 * g / (1 - 0.8)) / (0.1 * g**2 / (1 - 0.9)).sqrt()
    compare(
        later,
        w - 0.1 * moved,
        Mistake("not-a-power", w - 0.1 * one_power),
        Mistake("not-a-power", lambda result: bool(result.isnan().any()) or _close(result, w - 0.1 * times)),
    )
    yield from _epsilon_and_decay(one, w, g, zero)
    yield from _several_steps(function)


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


def _wrong_first_steps(w: Tensor, g: Tensor) -> Iterator[Mistake]:
    m, v = 0.2 * g, 0.1 * g**2
    yield Mistake("no-bias-correction", w - 0.1 * m / v.sqrt())
    yield Mistake("correction-of-m-only", w - 0.1 * g / v.sqrt())
    yield Mistake("correction-of-m-only", w - 0.1 * m / g.abs())
    yield Mistake("no-root/training", w - 0.1 * g / g**2)
    yield Mistake("uphill", w + 0.1 * g.sign())
    yield Mistake("no-rate", w - g.sign())


def _epsilon_and_decay(one: Callable[..., tuple[Tensor, ...]], w: Tensor, g: Tensor, zero: Tensor) -> Steps:
    large, _, _ = one(zero, zero, 1, epsilon=0.5, weight_decay=0.0)
    compare(
        large,
        w - 0.1 * g / (g.abs() + 0.5),
        Mistake("epsilon-inside", w - 0.1 * g / (g**2 + 0.5).sqrt()),
        Mistake("epsilon-before-correction", w - 0.1 * g / (g.abs() + 0.5 / 0.1**0.5)),
        Mistake("no-epsilon", w - 0.1 * g.sign()),
    )
    yield passed("epsilon-place")
    decayed, m, v = one(zero, zero, 1, epsilon=0.0, weight_decay=0.5)
    both = g + 0.5 * w
    compare(m, 0.2 * g, Mistake("l2", 0.2 * both))
    compare(v, 0.1 * g**2, Mistake("l2", 0.1 * both**2))
    compare(
        decayed,
        w - 0.1 * 0.5 * w - 0.1 * g.sign(),
        Mistake("no-decay", w - 0.1 * g.sign()),
        Mistake("decay-without-rate", w - 0.5 * w - 0.1 * g.sign()),
        Mistake("decay-after", (w - 0.1 * g.sign()) * 0.95),
        Mistake("decay-adds", w + 0.1 * 0.5 * w - 0.1 * g.sign()),
    )
    yield passed("decoupled-decay")


def _several_steps(function: Callable[..., Any]) -> Steps:
    """Compare with torch.optim.AdamW over five steps."""
    theirs = nn.Parameter(hidden(4, 3, seed=1))
    optimizer = AdamW([theirs], lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v = theirs.detach().clone(), torch.zeros(4, 3), torch.zeros(4, 3)
    for t in range(1, 6):
        theirs.grad = hidden(4, 3, seed=10 + t)
        optimizer.step()
        given = (w.clone(), theirs.grad.clone(), m.clone(), v.clone())
        w, m, v = require_tensors(result_of(partial(function, lr=0.02), *given, t), 3)
        compare(w, theirs.detach())
    yield passed("equals-adamw")


# --- muon ---


def muon(code: Code) -> Steps:
    """Newton–Schulz iterations: the values, the singular values, and the cost for a tall matrix."""
    function = code.function("orthogonalise")
    matrix = hidden(6, 10, scale=0.1)  # small enough that the iteration does not diverge without the division
    compare(function(matrix.clone()), _orthogonalised(matrix), *_wrong_iterations(matrix), tolerance=1e-3)
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


def _orthogonalised(matrix: Tensor, iterations: int = 5, norm: Tensor | float | None = None) -> Tensor:
    x = matrix / (matrix.norm() + 1e-7 if norm is None else norm)
    for _ in range(iterations):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x


def _largest(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, 2)


def _wrong_iterations(matrix: Tensor) -> Iterator[Mistake]:
    yield Mistake("not-normalised", _orthogonalised(matrix, norm=1.0))
    for norm in (matrix.abs().max(), matrix.norm(dim=1, keepdim=True), _largest(matrix)):
        yield Mistake("other-norm", _orthogonalised(matrix, norm=norm))
    yield Mistake("one-iteration", _orthogonalised(matrix, 1))
    x = matrix / matrix.norm()
    for _ in range(5):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram**2) @ x
    yield Mistake("square-of-entries", x)
    x = matrix / matrix.norm()
    gram = x @ x.T
    for _ in range(5):
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    yield Mistake("gram-only-once", x)
    x = matrix / matrix.norm()
    for _ in range(5):
        x = _A * x + _B * x**3 + _C * x**5
    yield Mistake("powers-of-entries", x)
    yield Mistake("no-iteration", lambda result: _close(result, matrix / matrix.norm()))
