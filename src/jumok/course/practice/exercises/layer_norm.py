"""층 정규화(LayerNorm)

층을 여러 개 쌓으면 값이 점점 커지거나 작아집니다. LayerNorm은 토큰마다 벡터의 평균을 0, 분산을 1로 맞춘 다음,
학습하는 weight를 곱하고 bias를 더합니다.

    결과 = (x - 평균) / sqrt(분산 + eps) * weight + bias

- 평균과 분산은 마지막 차원(토큰 하나의 특징)에서 구합니다. 배치 정규화는 특징 하나의 평균을 배치의 모든 토큰에서
  구합니다. 그러면 한 문장의 결과가 같은 배치의 다른 문장에 따라 달라집니다.
- 분산은 제곱 편차의 합을 C로 나눈 값입니다. C - 1로 나누지 않습니다.
- eps는 모든 값이 같은 벡터에서 0으로 나누는 것을 막습니다. 제곱근 안에 더합니다.

nn.LayerNorm과 F.layer_norm은 쓰지 마세요.

- - -

Layer normalisation (LayerNorm)

In a deep stack of layers, values grow or shrink from layer to layer. LayerNorm gives the vector of each token mean 0
and variance 1. Then it multiplies by weight and adds bias, which are trained.

    result = (x - mean) / sqrt(variance + eps) * weight + bias

- Mean and variance are those of the last dimension, the features of one token. Batch normalisation instead takes the
  mean of one feature over all tokens of the batch. The result of a sentence then depends on the other sentences.
- The variance is the sum of squared deviations divided by C, not by C - 1.
- eps avoids a division by zero for a vector of equal values. It is added inside the square root.

Do not use nn.LayerNorm or F.layer_norm.
"""

import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """마지막 차원(크기 width)의 정규화.

    파라미터: weight (width,)는 1로, bias (width,)는 0으로 시작합니다.

    - - -

    Normalisation over the last dimension, of size `width`.

    Parameters: weight (width,), ones at the start, and bias (width,), zeros at the start.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        # <solution>
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        # <solution>
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias
        # </solution>
