"""오버플로가 없는 소프트맥스

점수를 합이 1인 가중치로 바꾸는 소프트맥스를 직접 작성하세요. 공식은 exp(점수) / (exp(점수)의 합)입니다. 공식을 그대로
계산하면 점수가 89 이상일 때 exp가 무한대가 됩니다. 행마다 가장 큰 점수를 먼저 빼면 결과는 같고 넘치지 않습니다.
torch.softmax는 쓰지 마세요.

- - -

A softmax that does not overflow

Write softmax, which turns scores into weights that sum to one. The formula is exp(scores) / (sum of exp(scores)).
Computed as it stands, exp becomes infinite for scores of 89 and more. Subtract the largest score of each row first: the
result is the same, and nothing overflows. Do not use torch.softmax.
"""

import torch
from torch import Tensor


def softmax(scores: Tensor) -> Tensor:
    """마지막 차원의 소프트맥스를 반환합니다: (..., T, S) -> (..., T, S).

    - - -

    Return the softmax over the last dimension: (..., T, S) -> (..., T, S).
    """
    # <solution>
    shifted = scores - scores.max(dim=-1, keepdim=True).values
    e = torch.exp(shifted)
    return e / e.sum(dim=-1, keepdim=True)
    # </solution>
