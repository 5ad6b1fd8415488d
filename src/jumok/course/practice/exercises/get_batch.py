"""배치 만들기

긴 텍스트에서 무작위 위치의 토큰 T개를 B번 잘라 배치를 만드세요. x는 잘라 낸 토큰이고, y는 한 칸 뒤의 토큰입니다.
ids[:cut]은 학습용 부분, ids[cut:]은 검증용 부분입니다. y의 마지막 토큰까지 한 부분 안에 있어야 하고, 그 안의 모든 시작
위치가 똑같은 확률로 나와야 합니다. 시작 위치는 torch.randint로 고르세요.

- - -

Making a batch

Cut T tokens out of a long text, B times, each time at a random place. x holds these tokens, and y the tokens one place
later. ids[:cut] is the training part, and ids[cut:] the held-out part. The last token of y must still be inside the
part, and all starts that allow this are equally likely. Choose the starts with torch.randint.
"""

import torch
from torch import Tensor


def get_batch(
    ids: Tensor, cut: int, batch_size: int, context_length: int, held_out: bool = False
) -> tuple[Tensor, Tensor]:
    """x와 y를 반환합니다. 모양은 각각 (B, T)입니다. y[b, t]는 텍스트에서 x[b, t] 바로 다음의 토큰입니다.

    인자:
        ids: (토큰 수,), 텍스트 전체.
        cut: 검증용 부분이 시작하는 위치.
        batch_size: B.
        context_length: T.
        held_out: True이면 검증용 부분에서, False이면 학습용 부분에서 배치를 만듭니다.

    - - -

    Return x and y, (B, T) each. y[b, t] is the token that follows x[b, t] in the text.

    Args:
        ids: (tokens,), the whole text.
        cut: where the held-out part begins.
        batch_size: B.
        context_length: T.
        held_out: whether the batch comes from the held-out part; otherwise it comes from the training part.
    """
    # <solution>
    part = ids[cut:] if held_out else ids[:cut]
    starts = torch.randint(len(part) - context_length, (batch_size,)).tolist()
    x = torch.stack([part[start : start + context_length] for start in starts])
    y = torch.stack([part[start + 1 : start + 1 + context_length] for start in starts])
    return x, y
    # </solution>
