"""What the models of all tasks learn from: how little probability each gave to the right tokens.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # a target that does not count, as PyTorch has it


def cross_entropies(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of each target in nats, 0 where it is IGNORED.

    Args:
        logits: (..., V). targets: (...), whole numbers below V, or IGNORED.
        smoothing: share of the probability that is spread evenly over all V (https://arxiv.org/abs/1512.00567,
            section 7; the Transformer of 2017 has 0.1).

    Returns:
        (...), float32 or better.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="none"
    )  # (N,), N positions
    return losses.view_as(targets)
