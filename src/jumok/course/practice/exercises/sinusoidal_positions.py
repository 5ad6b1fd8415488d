"""사인과 코사인으로 나타낸 위치

2017년 논문 "Attention Is All You Need"는 위치를 학습하지 않고 다음 식으로 계산합니다. t는 위치이고, i는 열의 쌍의
번호입니다. 쌍마다 두 열이 같은 각을 씁니다.

    각(t, i) = t / 10000^(2i / width)
    열 2i = sin(각)
    열 2i+1 = cos(각)

첫 쌍은 한 토큰마다 1라디안씩 돌고, 뒤의 쌍일수록 천천히 돕니다. width는 짝수입니다.

- - -

Positions from sines and cosines

The paper of 2017, "Attention Is All You Need", does not learn the positions. It computes them with this formula,
where t is the position and i is the number of a pair of columns. Both columns of a pair use the same angle.

    angle(t, i) = t / 10000^(2i / width)
    column 2i = sin(angle)
    column 2i+1 = cos(angle)

The first pair turns by one radian from token to token; later pairs turn more slowly. The width is even.
"""

import torch
from torch import Tensor


def sinusoidal(length: int, width: int) -> Tensor:
    """위치 0부터 length - 1까지의 벡터를 반환합니다: (length, width).

    - - -

    Return the vectors of the positions 0 to length - 1: (length, width).
    """
    # <solution>
    t = torch.arange(length)[:, None]  # (T, 1)
    frequency = 10_000.0 ** (-torch.arange(0, width, 2) / width)  # (C/2,)
    angle = t * frequency  # (T, C/2)
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(angle)
    table[:, 1::2] = torch.cos(angle)
    return table
    # </solution>
