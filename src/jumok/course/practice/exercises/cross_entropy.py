"""손으로 계산하는 교차 엔트로피

교차 엔트로피는 정답 토큰의 로그 확률에 음수를 취해 모든 토큰에 대해 평균한 값입니다. 로그는 자연로그입니다.
소프트맥스를 먼저 구하고 로그를 취하면, 아주 작은 확률이 0이 되고 log 0은 -∞가 됩니다. 그래서 로그 확률을 로짓 z에서
바로 구하세요. log p = z - log(exp(z)의 합)이고, m이 z의 최댓값일 때 log(exp(z)의 합) = m + log(exp(z - m)의 합)입니다.
F.cross_entropy, log_softmax, logsumexp는 쓰지 마세요.

- - -

Cross-entropy by hand

The cross-entropy is the negative log-probability of the correct token, averaged over all tokens. The logarithm is the
natural one. If the softmax comes first and the logarithm second, very small probabilities become 0, and log 0 is -∞.
So compute the log-probability directly from the logits z: log p = z - log(sum of exp(z)). With m, the maximum of z,
log(sum of exp(z)) = m + log(sum of exp(z - m)). Do not use F.cross_entropy, log_softmax or logsumexp.
"""

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """교차 엔트로피의 평균을 nat 단위로 반환합니다: logits (B, T, V), targets (B, T) -> 차원이 없는 텐서 ().

    - - -

    Return the mean cross-entropy in nats: logits (B, T, V), targets (B, T) -> a tensor without dimensions, ().
    """
    # <solution>
    largest = logits.max(dim=-1, keepdim=True).values  # (B, T, 1)
    shifted = logits - largest
    log_sum = torch.log(torch.exp(shifted).sum(dim=-1))  # (B, T)
    correct = shifted.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    return (log_sum - correct).mean()
    # </solution>
