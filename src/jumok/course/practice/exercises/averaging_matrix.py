"""이전 토큰을 평균하는 행렬

각 위치에서 자기 자신과 그 앞의 벡터를 평균하는 행렬을 만드세요. 0번 행은 [1, 0, 0, ...], 1번 행은 [1/2, 1/2, 0, ...],
2번 행은 [1/3, 1/3, 1/3, 0, ...]입니다. 대각선과 그 아래가 1인 행렬은 torch.tril로 만들 수 있습니다. 그다음 이 행렬을
곱하여 배치의 모든 시퀀스를 반복문 없이 한 번에 평균하세요.

- - -

A matrix that averages the tokens so far

Make the matrix that averages, at each position, the vector of that position and all vectors before it. Row 0 is [1, 0,
0, ...], row 1 is [1/2, 1/2, 0, ...], row 2 is [1/3, 1/3, 1/3, 0, ...]. torch.tril makes a matrix with ones on and below
the diagonal. Then average all sequences of a batch at once with a product by this matrix, without a loop.
"""

import torch
from torch import Tensor


def averaging_matrix(t: int) -> Tensor:
    """(T, T) 행렬을 반환합니다. i번째 행은 위치 0부터 i까지 평균합니다.

    - - -

    Return the (T, T) matrix whose row i averages positions 0 to i.
    """
    # <solution>
    triangle = torch.tril(torch.ones(t, t))
    return triangle / triangle.sum(dim=1, keepdim=True)
    # </solution>


def average_past(x: Tensor) -> Tensor:
    """위치마다 그 위치까지의 평균을 행렬곱으로 구합니다: (B, T, C) -> (B, T, C).

    - - -

    Average each position with those before it, as a matrix product: (B, T, C) -> (B, T, C).
    """
    # <solution>
    return averaging_matrix(x.shape[1]) @ x
    # </solution>
