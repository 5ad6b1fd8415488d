"""RMSNorm and Dropout.

`torch.nn.RMSNorm` is not used, because Qwen3 computes the mean square in float32 for every input type, and an exported
model must give the same logits in `transformers`.

`torch.nn.Dropout` is not used, because on CPUs it draws one random number for each element, which took a
quarter of the time of a training step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension (https://arxiv.org/abs/1910.07467).

    Args:
        width: size of the last dimension.
        eps: avoids a division by zero.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width), of the type of weight times x; the mean square is computed in float32."""
        exact = x.float()
        # The gradient of `mean` would divide a whole tensor; that of a sum and a quotient has the same bits.
        mean_square = exact.pow(2).sum(-1, keepdim=True) / x.shape[-1]  # (..., 1)
        scale = torch.rsqrt(mean_square + self.eps)
        return self.weight * (exact * scale).to(x.dtype)


class Dropout(nn.Module):
    """Zero each element with probability `rate` in training, and scale the others by 1 / (1 - rate).

    On CPUs it uses one random byte per element, so the rate is rounded to a multiple of 1/256. The scale uses the
    rounded rate, so the expected value is exact. Source: https://jmlr.org/papers/v15/srivastava14a.html.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and type."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped = round(self.rate * 256)  # of the 256 values of a byte
        words = torch.randint(-(2**63), 2**63 - 1, (x.numel() // 8 + 1,))  # eight random bytes each
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
        return x * (kept.to(x.dtype) * (256 / (256 - dropped)))
