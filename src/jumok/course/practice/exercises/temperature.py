"""온도

다음 토큰의 확률을 온도로 조절하세요. 소프트맥스 전에 로짓을 온도로 나눕니다. 온도가 1보다 낮으면 로짓의 차이가 커져
높은 확률이 더 높아지고, 1보다 높으면 확률이 고르게 됩니다. 온도가 0이면 나눌 수 없으므로, 로짓이 가장 큰 토큰의 확률을
1로, 나머지를 0으로 하세요.

- - -

Temperature

Adjust the probabilities of the next token with a temperature. Divide the logits by it before the softmax. A
temperature below 1 makes the differences of the logits larger, so high probabilities become higher. One above 1 makes
the probabilities more even. With temperature 0, division is impossible: give the token with the largest logit the
probability 1, and all others 0.
"""

import torch
from torch import Tensor


def probabilities(logits: Tensor, temperature: float) -> Tensor:
    """다음 토큰의 확률을 반환합니다: logits (B, V) -> (B, V). temperature: 0 이상.

    - - -

    Return the probabilities of the next token: logits (B, V) -> (B, V). temperature: 0 or more.
    """
    # <solution>
    if temperature == 0:
        largest = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
        return torch.zeros_like(logits).scatter(-1, largest, 1.0)
    return torch.softmax(logits / temperature, dim=-1)
    # </solution>
