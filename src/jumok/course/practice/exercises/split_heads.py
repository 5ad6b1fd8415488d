"""투영 하나를 나누어 만드는 헤드

헤드를 하나씩 계산하는 대신, 폭이 C = H·D인 쿼리, 키, 값을 한 번에 계산한 뒤 헤드로 나눕니다. 헤드 h는 h·D번부터 D개의
열입니다. 이렇게 하면 모든 헤드를 4차원 행렬곱 하나로 계산합니다. @는 마지막 두 차원만 곱하고 앞의 차원 B와 H는 그대로
둡니다.

- split_heads: 먼저 view로 폭을 (H, D)로 나누고, transpose로 H를 T 앞으로 옮깁니다.
- merge_heads: 그 반대입니다. transpose 다음에 view를 쓰려면 contiguous()가 필요합니다.
- attend: 나누고, 인과 어텐션을 계산하고, 다시 합칩니다.

- - -

Heads from one projection

Instead of computing the heads one by one, compute queries, keys and values of width C = H·D at once, and split them
into heads. Head h is the D columns from column h·D on. One product of 4-D tensors then computes all heads: @ multiplies
the last two dimensions and leaves the dimensions before them, B and H, as they are.

- split_heads: split the width into (H, D) with view, then move H before T with transpose.
- merge_heads: the reverse. To use view after transpose, call contiguous() first.
- attend: split, compute causal attention, merge.
"""

import math

import torch
from torch import Tensor

from jumok.course.practice import mine

causal_mask = mine("causal_mask").causal_mask


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """폭을 헤드로 나눕니다: (B, T, H * D) -> (B, H, T, D).

    - - -

    Split the width into heads: (B, T, H * D) -> (B, H, T, D).
    """
    # <solution>
    batch, t, width = x.shape
    return x.view(batch, t, n_head, width // n_head).transpose(1, 2)
    # </solution>


def merge_heads(heads: Tensor) -> Tensor:
    """헤드를 다시 나란히 이어 붙입니다: (B, H, T, D) -> (B, T, H * D).

    - - -

    Put the heads side by side again: (B, H, T, D) -> (B, T, H * D).
    """
    # <solution>
    batch, n_head, t, head_dim = heads.shape
    return heads.transpose(1, 2).contiguous().view(batch, t, n_head * head_dim)
    # </solution>


def attend(q: Tensor, k: Tensor, v: Tensor, n_head: int) -> Tensor:
    """헤드 n_head개의 인과 어텐션: (B, T, H * D) 세 개 -> (B, T, H * D).

    - - -

    Causal attention with n_head heads: three times (B, T, H * D) -> (B, T, H * D).
    """
    # <solution>
    q, k, v = split_heads(q, n_head), split_heads(k, n_head), split_heads(v, n_head)  # (B, H, T, D)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
    scores = scores.masked_fill(~causal_mask(q.shape[-2], k.shape[-2]), float("-inf"))
    return merge_heads(scores.softmax(dim=-1) @ v)
    # </solution>
