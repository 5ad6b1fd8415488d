"""패딩을 제외한 평균

문장을 분류하려면 토큰들의 벡터를 벡터 하나로 만들어야 합니다. 시퀀스마다 실제 토큰만 평균하세요. 패딩은 합에도 개수에도
들어가지 않습니다. 실제 토큰이 하나도 없는 시퀀스의 결과는 NaN이 아니라 0이어야 합니다.

- - -

The mean without padding

To classify a text, the vectors of its tokens are turned into one vector. Average the real tokens of each sequence.
Padding is neither in the sum nor in the count. For a sequence without any real token the result shall be 0, not NaN.
"""

import torch
from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """마스크가 True인 곳을 평균합니다: (B, S, C), (B, S)(bool) -> (B, C).

    - - -

    Average where the mask is True: (B, S, C) and (B, S), bool -> (B, C).
    """
    # <solution>
    total = x.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)  # (B, C)
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1)
    return total / count
    # </solution>
