"""드롭아웃

학습 중에 각 값을 확률 p로 0으로 만드는 층을 작성하세요. 모델이 특정한 값 하나에만 의존하지 못하게 하여 과적합을
줄입니다.

- 남은 값은 1 / (1 - p)배로 키웁니다. 그러면 기댓값이 그대로여서 평가할 때 아무것도 조정하지 않아도 됩니다.
- 평가 모드에서는 입력을 그대로 반환합니다. model.eval()을 부르면 모든 층의 self.training이 False가 됩니다.
- 배치, 위치, 특징마다 따로 무작위로 정하고, 호출할 때마다 새로 정합니다.

nn.Dropout과 F.dropout은 쓰지 마세요.

- - -

Dropout

Write a layer that sets each value to zero with probability p in training. The model then cannot depend on a single
value, which reduces overfitting.

- The values that remain are scaled by 1 / (1 - p). Their expected value stays the same, so nothing must be adjusted
  for evaluation.
- In evaluation mode the layer returns its input. model.eval() sets self.training of all layers to False.
- The choice is made separately for each sequence, position and feature, and anew in each call.

Do not use nn.Dropout or F.dropout.
"""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """학습 중에 각 값을 확률 p로 0으로 만드는 층. 0 <= p < 1.

    - - -

    Set each value to zero with probability p in training. 0 <= p < 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        # <solution>
        self.p = p
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """모양이 무엇이든 같은 모양을 반환합니다.

        - - -

        Any shape -> the same shape.
        """
        # <solution>
        if not self.training:
            return x
        kept = torch.rand_like(x) >= self.p  # bool
        return x * kept / (1 - self.p)
        # </solution>
