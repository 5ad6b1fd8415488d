"""텐서의 모양 네 가지

어텐션의 코드는 대부분 텐서의 모양을 바꾸는 코드입니다. 짧은 함수 네 개를 작성하세요. 모두 반복문 없이 한 줄로 쓸 수
있습니다.

- split_width: 마지막 차원의 폭 C를 n개로 나눕니다. 수의 순서는 그대로입니다. (view)
- swap: 마지막 두 차원을 맞바꿉니다. (transpose)
- sum_keys: 행마다 합을 구합니다. sum(dim=k)는 차원 k를 따라 더하고 그 차원을 없앱니다.
- scale_rows: 행렬의 t번째 행에 factors의 t번째 수를 곱합니다. 브로드캐스팅은 모양을 오른쪽 끝부터 맞춥니다.

- - -

Four operations on shapes

Most of the code of attention changes the shapes of tensors. Write four short functions. Each fits in one line, without
a loop.

- split_width: split the last dimension, of width C, into n parts. The order of the numbers stays the same. (view)
- swap: exchange the last two dimensions. (transpose)
- sum_keys: sum each row. sum(dim=k) adds up along dimension k and removes it.
- scale_rows: multiply row t of a matrix by entry t of factors. Broadcasting aligns shapes at their right end.
"""

import torch
from torch import Tensor


def split_width(x: Tensor, n: int) -> Tensor:
    """폭을 n개로 나눕니다: (B, T, C) -> (B, T, n, C // n).

    - - -

    Split the width into n parts: (B, T, C) -> (B, T, n, C // n).
    """
    # <solution>
    batch, t, width = x.shape
    return x.view(batch, t, n, width // n)
    # </solution>


def swap(x: Tensor) -> Tensor:
    """마지막 두 차원을 맞바꿉니다: (B, T, D) -> (B, D, T).

    - - -

    Exchange the last two dimensions: (B, T, D) -> (B, D, T).
    """
    # <solution>
    return x.transpose(-2, -1)
    # </solution>


def sum_keys(scores: Tensor) -> Tensor:
    """쿼리 T개마다 점수 S개의 합을 구합니다: (B, T, S) -> (B, T).

    - - -

    Sum the S scores of each of the T queries: (B, T, S) -> (B, T).
    """
    # <solution>
    return scores.sum(dim=-1)
    # </solution>


def scale_rows(x: Tensor, factors: Tensor) -> Tensor:
    """x의 t번째 행에 factors[t]를 곱합니다: (T, C), (T,) -> (T, C).

    - - -

    Multiply row t of x by factors[t]: (T, C) and (T,) -> (T, C).
    """
    # <solution>
    return x * factors[:, None]
    # </solution>
