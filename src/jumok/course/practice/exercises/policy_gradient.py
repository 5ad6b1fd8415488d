"""정책 경사

모델이 샘플링한 답으로 손실을 계산하세요. 답의 로그 확률은 토큰의 로그 확률의 합입니다. 길이가 다른 답은 뒤를
채웠으므로, 답마다 앞의 lengths개 토큰만 더합니다. 손실은 -(어드밴티지 · 로그 확률)의 평균입니다. 이 손실의 기울기는
평균 보상의 기울기의 부호를 바꾼 것입니다. 어드밴티지로는 기울기를 보내지 않습니다.

- - -

The policy gradient

Compute the loss of answers that the model has sampled. The log-probability of an answer is the sum of those of its
tokens. Answers of different lengths were filled up at the end, so sum only the first lengths tokens of each. The loss
is the mean of -(advantage · log-probability). Its gradient is that of the mean reward, with the sign turned. No
gradient goes to the advantages.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def policy_gradient_loss(logits: Tensor, answers: Tensor, lengths: Tensor, advantages: Tensor) -> Tensor:
    """손실을 반환합니다. 모양은 ()입니다.

    인자:
        logits: 답의 각 토큰을 예측한 로짓, (B, S, V).
        answers: 답의 id, (B, S). 끝난 뒤의 자리에는 아무 id나 있습니다.
        lengths: 끝 토큰까지 센 답의 길이, (B,).
        advantages: 답의 어드밴티지, (B,).

    - - -

    Return the loss, ().

    Args:
        logits: those that predict each token of the answers, (B, S, V).
        answers: their ids, (B, S); behind the end of an answer there are any ids.
        lengths: of the answers, with their end, (B,).
        advantages: of the answers, (B,).
    """
    # <solution>
    log_probabilities = -F.cross_entropy(logits.transpose(1, 2), answers, reduction="none")  # (B, S)
    counts = torch.arange(answers.shape[1]) < lengths[:, None]  # (B, S)
    total = (log_probabilities * counts).sum(dim=1)  # (B,)
    return -(advantages.detach() * total).mean()
    # </solution>
