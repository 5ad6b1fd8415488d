"""회전 위치 임베딩(RoPE)

위치의 벡터를 더하지 않고, 쿼리와 키를 위치에 비례하는 각만큼 회전시키세요. 두 벡터를 각각 회전시킨 뒤의 내적은 두
각의 차이, 곧 두 토큰의 거리에만 의존합니다. 최근의 모델은 대부분 이 방법을 씁니다.

- rotary: 쌍 i의 각은 t / 10000^(2i / D)입니다. 벡터를 앞뒤 반으로 나누어 열 i와 열 i + D/2가 쌍을 이룹니다. 따라서
  각의 표를 두 번 이어 붙여 (T, D)로 만듭니다.
- rotate: 쌍 (a, b)를 (a cos - b sin, b cos + a sin)으로 바꿉니다. 앞의 절반이 a, 뒤의 절반이 b입니다. 두 절반의 각이
  같으므로 x * cos + (-b, a) * sin을 한 번에 계산할 수 있습니다.
- attend: 쿼리와 키를 회전시키고 인과 마스크가 있는 어텐션을 계산합니다. 값은 회전시키지 않습니다. 값은 위치를
  비교하는 데 쓰지 않고 결과에 더해지기 때문입니다. F.scaled_dot_product_attention(q, k, v, is_causal=True)를 쓰세요.

- - -

Rotary positions (RoPE)

Do not add vectors for the positions. Rotate queries and keys by an angle proportional to their position. The product
of two rotated vectors depends only on the difference of their angles, the distance between the tokens. Most recent
models do this.

- rotary: the angle of pair i is t / 10000^(2i / D). The vector is divided into two halves: columns i and i + D/2 form
  a pair. So the table of angles is repeated once, to the shape (T, D).
- rotate: turns a pair (a, b) into (a cos - b sin, b cos + a sin). The first half holds a, the second half b. Both
  halves have the same angles, so x * cos + (-b, a) * sin computes them together.
- attend: rotates queries and keys and computes causal attention. The values are not rotated: positions are compared
  in the scores, while the values are summed into the result. Use F.scaled_dot_product_attention(q, k, v,
  is_causal=True).
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def rotary(length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """각도의 코사인과 사인을 반환합니다. 모양은 각각 (length, head_dim)입니다. head_dim은 짝수입니다.

    - - -

    Return the cosines and the sines of the angles, (length, head_dim) each. head_dim is even.
    """
    # <solution>
    frequency = 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)  # (D/2,)
    angle = torch.arange(length)[:, None] * frequency  # (T, D/2)
    angle = torch.cat((angle, angle), dim=-1)  # (T, D)
    return angle.cos(), angle.sin()
    # </solution>


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x의 열을 두 개씩 짝지어 회전합니다: (B, H, T, D) -> (B, H, T, D). cos와 sin: (T, D).

    - - -

    Rotate the pairs of columns of x: (B, H, T, D) -> (B, H, T, D). cos and sin: (T, D).
    """
    # <solution>
    a, b = x.chunk(2, dim=-1)  # (B, H, T, D/2)
    turned = torch.cat((-b, a), dim=-1)  # (B, H, T, D)
    return x * cos + turned * sin
    # </solution>


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """회전 위치를 쓰는 인과 어텐션. q, k, v와 결과: (B, H, T, D).

    - - -

    Causal attention with rotary positions. q, k, v and the result: (B, H, T, D).
    """
    # <solution>
    cos, sin = rotary(q.shape[-2], q.shape[-1])
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # </solution>
