"""Cross-entropy, the loss of all tasks.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # a target that is ignored; the default of PyTorch
MOST_LOGITS = 1 << 25  # to compute at once: 128 MB in float32


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
