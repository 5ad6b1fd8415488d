"""Checks of the exercises on preferences and rewards."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
)


def dpo_loss(code: Code) -> Steps:
    """The loss of hidden pairs, at the beginning of a training and for margins far from 0."""
    function = code.function("dpo_loss")
    values = [hidden(6, seed=number, scale=3) - 10 for number in range(4)]
    chosen, rejected, chosen_before, rejected_before = values
    margin = (chosen - chosen_before) - (rejected - rejected_before)
    losses = -F.logsigmoid(0.3 * margin)
    compare(
        result_of(function, *values, 0.3),
        losses.mean(),
        Mistake("pair-swapped", -F.logsigmoid(-0.3 * margin).mean()),
        Mistake("no-reference", -F.logsigmoid(0.3 * (chosen - rejected)).mean()),
        Mistake("no-beta", -F.logsigmoid(margin).mean()),
        Mistake("beta-divides", -F.logsigmoid(margin / 0.3).mean()),
        Mistake("summed", losses.sum()),
        Mistake("not-averaged", losses),
        Mistake("sign/rewards", -losses.mean()),
        Mistake("no-logarithm", any_of((0.3 * margin).sigmoid().mean(), -(0.3 * margin).sigmoid().mean())),
        Mistake("mean-inside", -F.logsigmoid(0.3 * margin.mean())),
        letters="()",
    )
    yield passed("loss-of-pairs")
    far = torch.tensor([-1000.0])
    zero = torch.zeros(1)
    result = require_tensor(function(far, zero, zero, zero, 1.0))
    require(bool(result.isfinite().all()), "overflow/dpo")
    compare(result, torch.tensor(1000.0))
    yield passed("no-overflow/dpo")


def advantage(code: Code) -> Steps:
    """The advantages of hidden groups, of the same size as their number and of others."""
    function = code.function("group_advantages")
    for count in (4, 7):
        rewards = hidden(4, count, seed=count)
        right = rewards - rewards.mean(1, keepdim=True)
        spread = rewards.std(1, keepdim=True), rewards.std(1, correction=0, keepdim=True)
        compare(
            result_of(function, rewards),
            right,
            Mistake("mean-of-all", rewards - rewards.mean()),
            Mistake("mean-of-place", rewards - rewards.mean(0)),
            *([Mistake("mean-transposed", rewards - rewards.mean(1))] if count == 4 else []),
            Mistake("standardised", any_of(*(right / (each + eps) for each in spread for eps in (0, 1e-6, 1e-4)))),
            Mistake("without-itself/rewards", right * count / (count - 1)),
            Mistake("sign/advantage", -right),
            letters="(B, K)",
        )
    yield passed("own-group")
    compare(function(torch.ones(2, 3)), torch.zeros(2, 3))
    yield passed("equal-rewards")


def policy_gradient(code: Code) -> Steps:
    """The loss of hidden answers of different lengths, and its gradient."""
    function = code.function("policy_gradient_loss")
    logits, lengths = hidden(3, 5, 7), torch.tensor([5, 2, 1])
    answers = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(3))
    advantages = hidden(3, seed=1)
    values = logits.log_softmax(-1).gather(2, answers[..., None])[..., 0]  # (B, S)
    counts = torch.arange(5) < lengths[:, None]
    totals = (values * counts).sum(1)  # (B,)
    weighted = advantages[:, None] * values * counts  # (B, S)
    probabilities = advantages * (values.exp() * counts).sum(1), advantages * totals.exp()
    without_end = (values * (torch.arange(5) < lengths[:, None] - 1)).sum(1)
    compare(
        result_of(function, logits, answers, lengths, advantages),
        -(advantages * totals).mean(),
        Mistake("sign/policy", (advantages * totals).mean()),
        Mistake("behind-the-end", -(advantages * values.sum(1)).mean()),
        Mistake("end-not-counted", -(advantages * without_end).mean()),
        Mistake(
            "mean-over-tokens", any_of(*(-(advantages * each).mean() for each in (totals / lengths, values.mean(1))))
        ),
        Mistake("mean-over-all-tokens", any_of(-weighted.mean(), -weighted.sum() / counts.sum())),
        Mistake("no-advantages", -totals.mean()),
        Mistake("probabilities", any_of(*(-each.mean() for each in probabilities))),
        Mistake("summed/policy", -(advantages * totals).sum()),
        Mistake("not-averaged/policy", -advantages * totals),
        letters="()",
    )
    yield passed("loss-of-answers")
    given = advantages.clone().requires_grad_()
    own = logits.clone().requires_grad_()
    loss = require_tensor(function(own, answers, lengths, given))
    require(loss.requires_grad, "no-gradient")
    loss.backward()
    require(given.grad is None or not bool(given.grad.any()), "gradient-to-advantages")
    yield passed("gradient-to-logits")
