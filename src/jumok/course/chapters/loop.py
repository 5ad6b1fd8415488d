"""Chapter 10: the training loop.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.bigrams import get_batch


def mean_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of the targets in nats: (B, T) each -> ()."""
    logits = model(inputs)  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(
    model: nn.Module, ids: Tensor, *, steps: int, context_length: int, batch_size: int = 16, peak: float = 1e-3
) -> list[float]:
    """Train a model on the tokens of a text, (N,), and return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    model.train()
    for step in range(steps):
        rate = peak * min(1.0, (step + 1) / 20) * (1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        inputs, targets = get_batch(ids, context_length, batch_size)  # (B, T)
        loss = mean_loss(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses
