"""Cross-entropy, the loss of all tasks.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # a target that is ignored; the default of PyTorch
MOST_LOGITS = 1 << 25  # to compute at once: 128 MB in float32
LEAST_REST = 1e-5  # probability of all tokens but the likeliest; less is rounding


def distillation_losses(
    logits: Tensor, targets: Tensor, likeliest: Tensor, probabilities: Tensor, share: float
) -> Tensor:
    """Return the cross-entropy of each target, mixed with that of what a teacher predicts, in nats.

    The teacher's prediction is that of some tokens and of "another one", as a single class: it says nothing about which
    (https://arxiv.org/abs/1503.02531 has the whole prediction).

    Args:
        logits: (..., V). targets: (...), integers less than V.
        likeliest: (..., K), integers less than V. probabilities: (..., K), of these, float; their sum is at most 1.
        share: of the teacher in the loss, 0 to 1.

    Returns:
        (...), float32 or better.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = logits.logsumexp(-1)  # (...)
    own = total - logits.gather(-1, targets[..., None])[..., 0]
    logs = logits.gather(-1, likeliest) - total[..., None]  # (..., K)
    rest = (1 - probabilities.sum(-1)).clamp(min=0)
    other = (1 - logs.exp().sum(-1)).clamp(min=LEAST_REST).log()
    taught = -(logs * probabilities).sum(-1) - rest * other
    return (1 - share) * own + share * taught


def cross_entropies(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of each target in nats, and 0 where the target is IGNORED.

    Args:
        logits: (..., V).
        targets: (...), integers less than V, or IGNORED.
        smoothing: label smoothing, the share of the probability that is spread evenly over all V
            (https://arxiv.org/abs/1512.00567, section 7; 0.1 in the Transformer of 2017).

    Returns:
        (...), float32 or better.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, label_smoothing=smoothing, reduction="none"
    )  # (N,), N positions
    return losses.view_as(targets)
