"""KV 캐시

토큰을 하나씩 생성할 때 앞 토큰의 키와 값은 바뀌지 않으므로 다시 계산할 필요가 없습니다. 헤드가 하나인 인과 어텐션에 KV
캐시를 더하세요. x는 새 토큰이고, 캐시에는 앞 토큰의 키와 값이 있습니다. 새 키와 값을 캐시 뒤에 붙여 저장하고, 새
토큰의 쿼리는 캐시의 모든 토큰과 자기 위치까지의 새 토큰을 참조합니다. 점수는 전처럼 √C로 나눕니다. 위치 임베딩은
캐시에 있는 토큰 수만큼 뒤에서 시작합니다. 텍스트를 나누어 넣어도 결과는 한 번에 넣은 것과 같아야 합니다.

- - -

The KV cache

When tokens are generated one by one, the keys and values of the earlier tokens stay the same, so they need not be
computed again. Add a KV cache to causal attention with one head. x holds the new tokens, and the cache the keys and
values of the earlier ones. Append the new keys and values to the cache. The query of a new token attends to all tokens
in the cache, and to the new tokens up to itself. Divide the scores by √C as before. The positions continue after those
in the cache. A text that is given in pieces must have the same result as a text that is given at once.
"""

import torch
from torch import Tensor, nn


class CachedAttention(nn.Module):
    """학습하는 위치와, 헤드가 하나인 인과 어텐션.

    - - -

    Learned positions, then causal attention with one head.
    """

    def __init__(self, width: int, context_length: int) -> None:
        super().__init__()
        self.position = nn.Embedding(context_length, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cache: dict[str, Tensor] | None = None) -> Tensor:
        """새 토큰의 위치에서 출력을 반환합니다: (B, T, C) -> (B, T, C).

        인자:
            x: 새 토큰의 임베딩. 위치는 아직 더하지 않았습니다.
            cache: 첫 호출 전에는 {}입니다. 그 뒤에는 "k"와 "v"에 지금까지의 모든 토큰의 키와 값이 있으며, 모양은
                각각 (B, S, C)입니다. None이면 앞의 토큰이 없고 아무것도 저장하지 않습니다.

        - - -

        Return the output at the new tokens: (B, T, C) -> (B, T, C).

        Args:
            x: embeddings of the new tokens, without positions.
            cache: {} before the first call. Afterwards "k" and "v" hold the keys and values of all tokens so far,
                (B, S, C) each. None: there are no earlier tokens, and nothing is stored.
        """
        # <solution>
        past = cache["k"].shape[1] if cache else 0
        t = x.shape[1]
        x = x + self.position(torch.arange(past, past + t))  # (B, T, C)
        q, k, v = self.query(x), self.key(x), self.value(x)
        if cache:
            k = torch.cat((cache["k"], k), dim=1)  # (B, S, C)
            v = torch.cat((cache["v"], v), dim=1)
        if cache is not None:
            cache["k"], cache["v"] = k, v
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5  # (B, T, S)
        allowed = torch.ones(t, past + t, dtype=torch.bool).tril(past)  # (T, S)
        return scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1) @ v
        # </solution>
