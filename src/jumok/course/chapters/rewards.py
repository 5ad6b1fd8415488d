"""Chapter 24: rewards, from REINFORCE to group-relative policy gradients.

Shapes use the legend of `jumok.nn.attention`; K answers to a question are a group, S is their
longest length.

Source: REINFORCE: https://doi.org/10.1007/BF00992696; GRPO: https://arxiv.org/abs/2402.03300.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.course.chapters.gpt import GPT


def exact_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """Return the gradient of the mean reward of a choice: (N,), (N,) -> (N,)."""
    probabilities = logits.softmax(dim=-1)  # (N,)
    return probabilities * (rewards - (probabilities * rewards).sum())


def sampled_gradients(logits: Tensor, chosen: Tensor, advantages: Tensor) -> Tensor:
    """Return for each sample the gradient of its log-probability times its advantage: (N,), (K,), (K,) -> (K, N)."""
    scores = F.one_hot(chosen, len(logits)) - logits.softmax(dim=-1)  # (K, N)
    return advantages[:, None] * scores


def group_advantages(rewards: Tensor) -> Tensor:
    """Return how much better each answer is than the mean of its group: (B, K) -> (B, K)."""
    return rewards - rewards.mean(dim=-1, keepdim=True)


@torch.no_grad()
def sample_answers(model: GPT, prompts: Tensor, count: int, end: int, longest: int) -> Tensor:
    """Return answers to each prompt: (B, T) -> (B, K, S). The id `end` ends an answer, and fills up the rest."""
    ids = prompts.repeat_interleave(count, dim=0)  # (B·K, T)
    over = torch.zeros(len(ids), dtype=torch.bool)  # (B·K,)
    for _ in range(longest):
        chosen = model(ids)[:, -1].softmax(dim=-1).multinomial(1)[:, 0]  # (B·K,)
        chosen = torch.where(over, end, chosen)
        ids, over = torch.cat((ids, chosen[:, None]), dim=1), over | (chosen == end)
    return ids[:, prompts.shape[1] :].unflatten(0, (len(prompts), count))  # (B, K, S)


def sampled_log_probabilities(model: GPT, prompts: Tensor, answers: Tensor, end: int) -> Tensor:
    """Return the log-probability of each answer, its end included: (B, T), (B, K, S) -> (B, K)."""
    before = prompts.repeat_interleave(answers.shape[1], dim=0)  # (B·K, T)
    written = answers.flatten(0, 1)  # (B·K, S)
    logits = model(torch.cat((before, written), dim=1)[:, :-1])[:, prompts.shape[1] - 1 :]  # (B·K, S, V)
    values = -F.cross_entropy(logits.transpose(1, 2), written, reduction="none")  # (B·K, S)
    after = F.pad((written == end).cumsum(dim=1)[:, :-1] > 0, (1, 0))  # (B·K, S)
    return values.masked_fill(after, 0.0).sum(dim=1).view(answers.shape[:2])  # (B, K)


def policy_gradient_loss(log_probabilities: Tensor, advantages: Tensor) -> Tensor:
    """Return the loss whose gradient is the policy gradient with the sign turned: (B, K), (B, K) -> ()."""
    return -(advantages * log_probabilities).mean()
