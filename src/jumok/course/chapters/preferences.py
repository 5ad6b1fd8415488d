"""Chapter 23: preferences, from pairs of answers to direct preference optimisation (DPO).

Shapes use the legend of `jumok.nn.attention`.

Source: https://arxiv.org/abs/2305.18290.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from jumok.course.chapters.bert import pad_ids
from jumok.course.chapters.conversations import answer_targets
from jumok.course.chapters.gpt import GPT


def preference_probability(better: Tensor, worse: Tensor) -> Tensor:
    """Return the probability that an answer is preferred to another one, by their rewards: Bradley and Terry."""
    return (better - worse).sigmoid()


def best_policy(reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """Return the probabilities of answers that maximise the mean reward less beta times the KL to a reference: (N,)."""
    return (reference.log() + rewards / beta).softmax(dim=-1)


def objective(policy: Tensor, reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """Return the mean reward of a policy less beta times its KL to a reference: (N,) each -> ()."""
    kl = (policy * (policy.log() - reference.log())).sum()
    return (policy * rewards).sum() - beta * kl


def implied_reward(policy: Tensor, reference: Tensor, beta: float) -> Tensor:
    """Return the rewards for which a policy is the best one, up to a constant: (N,)."""
    return beta * (policy.log() - reference.log())


def answer_log_probability(model: GPT, conversations: Sequence[tuple[list[int], list[bool]]]) -> Tensor:
    """Return the log-probability of the answers of each conversation, given all before them: (B,)."""
    ids, _ = pad_ids([ids[:-1] for ids, _ in conversations])  # (B, T)
    targets, _ = pad_ids([answer_targets(*each) for each in conversations], pad_id=-100)  # (B, T)
    losses = F.cross_entropy(model(ids).transpose(1, 2), targets, reduction="none")  # (B, T)
    return -losses.sum(dim=1)


def dpo_loss(chosen: Tensor, rejected: Tensor, chosen_before: Tensor, rejected_before: Tensor, beta: float) -> Tensor:
    """Return the loss of pairs, by the log-probabilities of their answers now and before: (B,) each -> ()."""
    margin = beta * ((chosen - chosen_before) - (rejected - rejected_before))  # (B,)
    return -F.logsigmoid(margin).mean()
