"""인과 마스크

GPT의 쿼리는 자기 위치까지의 키만 참조합니다. 먼저 마스크를 만드세요. True는 참조할 수 있다는 뜻입니다. 글을 생성할 때는
새 토큰만 쿼리가 되므로, 쿼리 T개는 S개 위치 중 마지막 T개입니다. 따라서 마지막 쿼리는 모든 키를 참조합니다. 그다음
소프트맥스 전에 마스크를 적용하는 어텐션을 작성하세요. 점수를 √D로 나누는 것도 잊지 마세요.

causal_mask(2, 4)는 다음과 같습니다.
    [[True, True, True, False],
     [True, True, True, True]]

- - -

The causal mask

In a GPT a query attends to the keys up to its own position only. First make the mask. True means "may attend". When a
model writes, only the new tokens are queries, so the T queries are the last T of S positions, and the last query
attends to all keys. Then write attention that applies the mask before the softmax. Divide the scores by √D as before.

causal_mask(2, 4) is
    [[True, True, True, False],
     [True, True, True, True]]
"""

import math

import torch
from torch import Tensor


def causal_mask(t: int, s: int) -> Tensor:
    """(T, S) 마스크(bool)를 반환합니다. 쿼리 T개는 위치 S개 가운데 마지막 T개에 있습니다. True: 참조할 수 있음.

    - - -

    Return the (T, S) mask, bool, for T queries at the last T of S positions. True: may attend.
    """
    # <solution>
    return torch.ones(t, s, dtype=torch.bool).tril(diagonal=s - t)
    # </solution>


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """자기 위치까지의 키만 참조합니다: (..., T, D), (..., S, D), (..., S, D) -> (..., T, D).

    - - -

    Attend to past keys only: (..., T, D), (..., S, D) and (..., S, D) -> (..., T, D).
    """
    # <solution>
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (..., T, S)
    mask = causal_mask(q.shape[-2], k.shape[-2])  # (T, S)
    scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ v
    # </solution>
