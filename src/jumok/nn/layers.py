"""The two small layers that PyTorch has, but not as jumok needs them.

RMSNorm: Qwen3 takes the mean square in float32 whatever the type of the input, and a model that leaves for
`transformers` must give the same logits there, in bfloat16 and in float64 alike; `torch.nn.RMSNorm` does not.

Dropout: on CPUs `torch.nn.Dropout` draws one random number for each element, which took a quarter of a training step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension (https://arxiv.org/abs/1910.07467).

    Args:
        width: size of the last dimension. eps: keeps the root away from zero.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width); the statistics are float32, the type that of weight times x."""
        exact = x.float()
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps)  # (..., 1)
        return self.weight * (exact * scale).to(x.dtype)


class Dropout(nn.Module):
    """Zero each element with probability `rate` in training, and scale the others by 1 / (1 - rate).

    On CPUs one random byte decides each element, so the rate is rounded to a multiple of 1/256 there; the scale uses
    the rounded rate, which keeps the expectation exact. Source: https://jmlr.org/papers/v15/srivastava14a.html.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same shape and type out."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped = round(self.rate * 256)  # of 256 equally likely bytes
        words = torch.randint(-(2**63), 2**63 - 1, (x.numel() // 8 + 1,))  # eight random bytes each
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
        return x * (kept.to(x.dtype) * (256 / (256 - dropped)))
