"""RMSNorm, as the modern family's stock class computes it.

`torch.nn.LayerNorm` serves the classic family; `torch.nn.RMSNorm` would serve the modern one but for its precision:
Qwen3 takes the mean square in float32 whatever the type of the input, and a model that leaves for `transformers`
must give the same logits there, in bfloat16 and in float64 alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
        """(..., width) -> (..., width), of the type of x; the statistics are float32."""
        exact = x.float()
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.eps)  # (..., 1)
        return self.weight * (exact * scale).to(x.dtype)
