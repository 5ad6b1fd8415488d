"""그룹의 어드밴티지

질문마다 답을 K개 샘플링하고 보상을 받았습니다. 답마다 어드밴티지를 계산하세요. 어드밴티지는 보상에서 같은 질문의 답
K개의 평균 보상을 뺀 값입니다. 표준편차로는 나누지 않습니다.

- - -

The advantage in a group

For each question, K answers were sampled and rewarded. Compute the advantage of each answer: its reward less the mean
reward of the K answers to the same question. Do not divide by the standard deviation.
"""

import torch
from torch import Tensor


def group_advantages(rewards: Tensor) -> Tensor:
    """답의 어드밴티지를 반환합니다. 모양은 (B, K)입니다.

    인자:
        rewards: 질문 B개에 쓴 답 K개의 보상, (B, K).

    - - -

    Return the advantages of the answers, (B, K).

    Args:
        rewards: of K answers to each of B questions, (B, K).
    """
    # <solution>
    return rewards - rewards.mean(dim=1, keepdim=True)
    # </solution>
