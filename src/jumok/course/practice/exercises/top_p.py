"""top-p 샘플링

확률이 높은 토큰부터 더해, 합이 처음으로 p 이상이 되는 데 필요한 토큰만 남기고 나머지 로짓을 -∞로 바꾸세요. p를 넘게
만든 토큰은 남깁니다. 그래서 p가 아무리 작아도 하나는 남습니다. 결과의 토큰 순서는 받은 것과 같아야 합니다. 확률이 0.4,
0.3, 0.2, 0.1이고 p가 0.55이면 앞의 두 개(합 0.7)가 남습니다.

- - -

Top-p sampling

Add up the probabilities, the highest first. Keep the tokens needed until the sum is at least p for the first time, and
set the other logits to -∞. The token with which the sum reaches p stays, so one token stays however small p is. The
tokens of the result are in the order in which they came. With the probabilities 0.4, 0.3, 0.2, 0.1 and p = 0.55, the
first two remain (their sum is 0.7).
"""

import torch
from torch import Tensor


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """확률의 합이 p에 이르는 가장 적은 수의 토큰만 남기고 나머지 로짓을 -inf로 바꾸어 반환합니다.

    인자:
        logits: (B, V).
        p: 0보다 크고 1 이하.

    결과:
        (B, V).

    - - -

    Return the logits with -inf for all but the fewest likeliest tokens whose probabilities reach p.

    Args:
        logits: (B, V).
        p: above 0, at most 1.

    Returns:
        (B, V).
    """
    # <solution>
    ordered, places = torch.sort(logits, dim=-1, descending=True)  # (B, V), (B, V)
    shares = torch.softmax(ordered, dim=-1)
    before = shares.cumsum(dim=-1) - shares  # (B, V)
    ordered = ordered.masked_fill(before >= p, float("-inf"))
    return torch.empty_like(logits).scatter(-1, places, ordered)
    # </solution>
