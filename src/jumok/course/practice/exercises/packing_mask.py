"""패킹 마스크

한 행에 여러 대화를 넣었을 때의 마스크를 만드세요. segments는 토큰마다 대화의 번호입니다. 토큰은 같은 대화의 토큰
가운데 자기 자신과 이전 토큰만 참조합니다. True는 참조할 수 있다는 뜻입니다.

- - -

The packing mask

Make the mask for rows that hold several conversations. segments has the number of the conversation of each token. A
token attends to itself and to earlier tokens of its own conversation. True means that it may attend.
"""

import torch
from torch import Tensor


def packing_mask(segments: Tensor) -> Tensor:
    """마스크를 반환합니다. 모양은 (B, T, T)이고, 행이 쿼리, 열이 키입니다.

    인자:
        segments: 대화의 번호, (B, T).

    - - -

    Return the mask, (B, T, T): rows are queries, columns are keys.

    Args:
        segments: the numbers of the conversations, (B, T).
    """
    # <solution>
    t = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    return same & torch.ones(t, t, dtype=torch.bool).tril()
    # </solution>
