"""DPO의 손실

답의 쌍에서 DPO의 손실을 계산하세요. 마진은 β · ((선택된 답의 로그 확률 - 학습 전의 값) - (거절된 답의 로그 확률 -
학습 전의 값))이고, 손실은 -log σ(마진)을 쌍에 대해 평균한 값입니다. 마진이 -1000이어도 손실이 무한대가 되지 않게
하세요.

- - -

The loss of DPO

Compute the loss of DPO for pairs of answers. The margin is β · ((log-probability of the chosen answer - its value
before the training) - (log-probability of the rejected answer - its value before the training)). The loss is the mean
of -log σ(margin) over the pairs. It must not be infinite, even where the margin is -1000.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def dpo_loss(chosen: Tensor, rejected: Tensor, chosen_before: Tensor, rejected_before: Tensor, beta: float) -> Tensor:
    """손실을 반환합니다. 모양은 ()입니다.

    인자:
        chosen, rejected: 선택된 답과 거절된 답의 로그 확률, (B,).
        chosen_before, rejected_before: 학습하기 전의 로그 확률, (B,).
        beta: β. 클수록 학습하기 전의 모델에서 멀어지지 않습니다.

    - - -

    Return the loss, ().

    Args:
        chosen, rejected: the log-probabilities of the chosen and the rejected answers, (B,).
        chosen_before, rejected_before: those before the training, (B,).
        beta: β, how strongly the model is kept near the one before the training.
    """
    # <solution>
    margin = beta * ((chosen - chosen_before) - (rejected - rejected_before))
    return -F.logsigmoid(margin).mean()
    # </solution>
