"""top-k 샘플링

각 행에서 로짓이 큰 k개만 남기고 나머지 로짓을 -∞로 바꾸세요. 소프트맥스를 거치면 -∞의 확률은 0이 되고, 남은 확률의
합은 1이 됩니다. k가 어휘의 크기보다 크면 모두 남깁니다. 받은 텐서는 바꾸지 마세요.

- - -

Top-k sampling

Keep the k largest logits of each row, and set the others to -∞. After the softmax, -∞ has the probability 0, and the
remaining probabilities sum to 1. If k is larger than the vocabulary, all remain. Leave the argument as it is.
"""

import torch
from torch import Tensor


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """행마다 가장 큰 로짓 k개만 남기고 나머지를 -inf로 바꾸어 반환합니다: (B, V) -> (B, V). k: 1 이상.

    - - -

    Return the logits with -inf for all but the k largest of each row: (B, V) -> (B, V). k: 1 or more.
    """
    # <solution>
    k = min(k, logits.shape[-1])
    least = torch.topk(logits, k, dim=-1).values[:, -1:]  # (B, 1)
    return logits.masked_fill(logits < least, float("-inf"))
    # </solution>
