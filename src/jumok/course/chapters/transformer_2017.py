"""Chapter 17, the paper of 2017: its learning rate, its loss, its length penalty, and the costs of layers by counting.

The functions follow "Attention Is All You Need" (https://arxiv.org/abs/1706.03762). Formulas of other chapters are not
repeated: attention is in chapters 5 and 6, the MLP and the norm in chapter 7, positions in chapter 8, and the whole
model in chapter 19. The length penalty is that of https://arxiv.org/abs/1609.08144, section 7.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode


def convolution(x: Tensor, kernel: Tensor, dilation: int = 1) -> Tensor:
    """Convolve causally: (T, C), (C, C, K) -> (T, C). Tap j reads the position (K - 1 - j) · d back, d the dilation."""
    before = (kernel.shape[-1] - 1) * dilation
    padded = F.pad(x.T[None], (before, 0))  # (1, C, T + (K-1)·d)
    return F.conv1d(padded, kernel, dilation=dilation)[0].T  # (T, C)


def restricted_attention(x: Tensor, r: int) -> Tensor:
    """Attend from each position to the last r positions up to its own, without projections: (T, C) -> (T, C)."""
    t, c = x.shape
    windows = torch.cat([x.new_zeros(r - 1, c), x]).unfold(0, r, 1)  # (T, C, r)
    scores = (x[:, None] @ windows)[:, 0] / c**0.5  # (T, r)
    exists = torch.arange(t)[:, None] + torch.arange(r) >= r - 1  # (T, r)
    weights = scores.masked_fill(~exists, float("-inf")).softmax(dim=-1)  # (T, r)
    return (windows @ weights[:, :, None])[..., 0]  # (T, C)


def count_multiplications(compute: Callable[[], Tensor]) -> int:
    """Count the multiplications of matrix products and convolutions while a computation runs."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        compute()
    return counter.get_total_flops() // 2


def layers_until_connected(layer: Callable[[Tensor, int], Tensor], t: int) -> int:
    """Return how many layers it takes until the last output depends on the first input.

    Args:
        layer: takes (T, 4) and the number of the layer from 0, returns (T, 4).
    """
    y = x = torch.randn(t, 4, dtype=torch.float64, requires_grad=True)
    for number in range(t):
        y = layer(y, number)  # (T, 4)
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if gradient[0].any():
            return number + 1
    raise ValueError(f"{t} layers do not connect {t} positions")


def paper_learning_rate(step: int, width: int = 512, warmup: int = 4000) -> float:
    """Return d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), section 5.3. The first step is 1."""
    return float(width**-0.5 * min(step**-0.5, step * warmup**-1.5))


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the cross-entropy with 1 - ε on the target and ε spread over all tokens: (N, V), (N,) -> (N,), in nats."""
    smoothed = torch.full_like(logits, smoothing / logits.shape[-1])  # (N, V)
    smoothed[torch.arange(len(targets)), targets] += 1 - smoothing
    return -(smoothed * logits.log_softmax(dim=-1)).sum(dim=-1)


def paper_length_penalty(length: int, alpha: float = 0.6) -> float:
    """Return ((5 + length) / 6)^α, by which section 6.1 divides the log-probability of a translation."""
    return float(((5 + length) / 6) ** alpha)
