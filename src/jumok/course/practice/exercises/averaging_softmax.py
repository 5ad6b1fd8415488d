"""소프트맥스로 계산하는 평균

앞의 평균 행렬을 다른 방법으로 만드세요. 점수의 행렬에서 미래 토큰의 점수를 -∞로 바꾸고, 행마다 소프트맥스를 적용합니다.
torch.softmax를 쓰면 됩니다. exp(-∞) = 0이므로 미래 토큰의 가중치는 0입니다. 점수가 모두 0이면 나머지 가중치가 같아져
앞의 평균 행렬이 됩니다. 점수가 서로 다르면 가중 평균이 됩니다. 어텐션은 이 점수를 쿼리와 키로 계산합니다.

- - -

The average as a softmax

Make the averaging matrix in another way. Set the scores of future tokens to -inf, and apply softmax to each row, with
torch.softmax. As exp(-inf) = 0, future tokens get the weight 0. If all scores are 0, the other weights are equal, and
the result is the averaging matrix. With different scores it is a weighted average. Attention computes these scores from
queries and keys.
"""

import torch
from torch import Tensor


def causal_softmax(scores: Tensor) -> Tensor:
    """미래 토큰을 마스킹하고 행마다 소프트맥스를 구합니다: (B, T, T) -> (B, T, T). 행은 쿼리, 열은 키입니다.

    - - -

    Mask future tokens and apply softmax to each row: (B, T, T) -> (B, T, T). Row: query, column: key.
    """
    # <solution>
    t = scores.shape[-1]
    past = torch.tril(torch.ones(t, t)) == 1  # (T, T)
    masked = scores.masked_fill(~past, float("-inf"))
    return masked.softmax(dim=-1)
    # </solution>
