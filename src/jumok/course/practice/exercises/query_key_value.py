"""쿼리, 키, 값과 √D

내적 어텐션에서는 한 벡터가 세 가지 역할을 했습니다. 이제 역할을 나눕니다. 점수는 쿼리와 키의 내적이고, 출력은 값의 가중
평균입니다. 점수는 D개의 곱을 더한 값이므로 D가 클수록 커집니다. 소프트맥스 전에 점수를 √D로 나누세요. D는 쿼리와 키의
폭입니다. 쿼리의 개수 T와 키의 개수 S가 다를 수 있고, 값의 폭도 D와 다를 수 있습니다. 여기부터는 torch.softmax를 쓰세요.

- - -

Queries, keys, values and √D

In dot-product attention one vector had three roles. Now the roles are separate: the scores are dot products of queries
and keys, and the output is a weighted average of the values. A score is a sum of D products, so scores grow with D.
Divide the scores by √D before the softmax. D is the width of queries and keys. The number of queries T may differ from
the number of keys S, and the values may have another width than D. From here on, use torch.softmax.
"""

import math

import torch
from torch import Tensor


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """쿼리 T개로 키 S개를 참조합니다: (B, T, D), (B, S, D), (B, S, E) -> (B, T, E).

    - - -

    Attend with T queries to S keys: (B, T, D), (B, S, D) and (B, S, E) -> (B, T, E).
    """
    # <solution>
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, T, S)
    weights = scores.softmax(dim=-1)  # (B, T, S)
    return weights @ v
    # </solution>
