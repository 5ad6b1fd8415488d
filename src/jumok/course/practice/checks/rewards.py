"""Checks of the exercises on preferences and rewards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.course.practice.checking import (
    Code,
    Steps,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
    results,
)


def dpo_loss(code: Code) -> Steps:
    """The loss of hidden pairs, at the beginning of a training and for margins far from 0."""
    function = code.function("dpo_loss")
    chosen, rejected, chosen_before, rejected_before = (hidden(6, seed=seed, scale=3) - 10 for seed in range(4))
    margin = (chosen - chosen_before) - (rejected - rejected_before)
    given = result_of(function, chosen, rejected, chosen_before, rejected_before, 0.3)
    compare(given, -F.logsigmoid(0.3 * margin).mean(), letters="()")
    yield passed("loss-of-pairs")
    zero = torch.zeros(1)
    result = require_tensor(function(torch.tensor([-1000.0]), zero, zero, zero, 1.0))
    require(bool(result.isfinite().all()), "overflow/dpo")
    compare(result, torch.tensor(1000.0))
    yield passed("no-overflow/dpo")


# Groups of the same size as their number, and of others.
advantage = results(
    "group_advantages",
    lambda rewards: rewards - rewards.mean(1, keepdim=True),
    {"own-group": [(hidden(4, 4, seed=4),), (hidden(4, 7, seed=7),)], "equal-rewards": [(torch.ones(2, 3),)]},
    letters="(B, K)",
)


def _loss(logits: Tensor, answers: Tensor, lengths: Tensor, advantages: Tensor) -> Tensor:
    values = logits.log_softmax(-1).gather(2, answers[..., None])[..., 0]  # (B, S)
    return -(advantages * (values * (torch.arange(values.shape[1]) < lengths[:, None])).sum(1)).mean()


def policy_gradient(code: Code) -> Steps:
    """The loss of hidden answers of different lengths, and its gradient."""
    function = code.function("policy_gradient_loss")
    logits, lengths, advantages = hidden(3, 5, 7), torch.tensor([5, 2, 1]), hidden(3, seed=1)
    answers = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(3))
    given = result_of(function, logits, answers, lengths, advantages)
    compare(given, _loss(logits, answers, lengths, advantages), letters="()")
    yield passed("loss-of-answers")
    own, weights = logits.clone().requires_grad_(), advantages.clone().requires_grad_()
    loss = require_tensor(function(own, answers, lengths, weights))
    require(loss.requires_grad, "no-gradient/graph")
    loss.backward()
    require(weights.grad is None or not bool(weights.grad.any()), "gradient-to-advantages")
    yield passed("gradient-to-logits")
