"""패딩 마스크

길이가 다른 시퀀스를 한 배치에 넣으려면 짧은 시퀀스의 뒤를 패딩으로 채웁니다. 패딩은 참조하면 안 됩니다. 길이로 마스크를
만들고, 마스크를 받는 어텐션을 작성하세요. True는 참조할 수 있다는 뜻입니다.

참조할 키가 하나도 없는 행에서는 소프트맥스가 0 ÷ 0, 곧 NaN을 계산합니다. 이런 행의 출력은 0이어야 합니다.
torch.nan_to_num은 쓰지 마세요. 입력이 잘못되어 생긴 NaN까지 0으로 바꾸어 오류를 숨기기 때문입니다.

- - -

The padding mask

To put sequences of different lengths into one batch, the shorter ones are filled up with padding. No query may attend
to padding. Make the mask from the lengths, and write attention that takes a mask. True means "may attend".

In a row without any allowed key, softmax computes 0 / 0, which is NaN. The output of such a row shall be 0. Do not use
torch.nan_to_num: it would also hide a NaN that comes from a wrong input.
"""

import math

import torch
from torch import Tensor


def padding_mask(lengths: Tensor, s: int) -> Tensor:
    """실제 토큰의 마스크(bool)를 반환합니다: lengths (B,) -> (B, 1, 1, S). 1은 헤드와 쿼리의 차원입니다.

    - - -

    Return the mask of the real tokens, bool: lengths (B,) -> (B, 1, 1, S). The 1s stand for heads and queries.
    """
    # <solution>
    mask = torch.arange(s) < lengths[:, None]  # (B, S)
    return mask[:, None, None, :]
    # </solution>


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """마스크가 True인 곳을 참조합니다: (B, H, T, D), (B, H, S, D) 두 개, (B, 1, 1, S) -> (B, H, T, D).

    - - -

    Attend where the mask is True: (B, H, T, D), (B, H, S, D) twice, (B, 1, 1, S) -> (B, H, T, D).
    """
    # <solution>
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    empty = ~mask.any(dim=-1, keepdim=True)  # (B, 1, 1, 1)
    return weights.masked_fill(empty, 0.0) @ v
    # </solution>
