"""학습 파라미터가 없는 내적 어텐션

이제 점수를 벡터의 내적으로 구합니다. t번째 토큰과 s번째 토큰의 점수는 두 벡터의 내적입니다. 점수에 소프트맥스를
적용하여 가중치를 구하고, 그 가중치로 벡터들을 가중 평균하세요. 배치의 시퀀스마다 따로 계산해야 하고, 반복문은 필요
없습니다. 마스크와 √D는 뒤의 연습에 나옵니다.

- - -

Dot-product attention without parameters

Now the scores are dot products of the vectors. The score of tokens t and s is the dot product of their vectors. Apply
softmax to the scores, which gives the weights, and average the vectors with these weights. Each sequence of the batch
is computed by itself, and no loop is needed. The mask and √D follow in later exercises.
"""

import torch
from torch import Tensor

from jumok.course.practice import mine

softmax = mine("softmax").softmax


def dot_product_attention(x: Tensor) -> Tensor:
    """토큰마다 같은 시퀀스의 모든 토큰을 참조합니다: (B, T, C) -> (B, T, C).

    - - -

    Let each token attend to all tokens of its sequence: (B, T, C) -> (B, T, C).
    """
    # <solution>
    scores = x @ x.transpose(-2, -1)  # (B, T, T)
    weights = softmax(scores)  # (B, T, T)
    return weights @ x
    # </solution>
