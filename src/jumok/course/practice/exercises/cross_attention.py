"""교차 어텐션

번역 모델의 디코더는 원문을 참조합니다. 쿼리는 쓰고 있는 문장 x에서, 키와 값은 원문 context에서 계산합니다. 나머지는
멀티헤드 어텐션과 같습니다. 다만 원문은 이미 전부 주어져 있으므로 인과 마스크를 쓰지 않습니다. 두 문장은 길이(T와 S)가
다르고 폭(n_embd와 d_context)도 다를 수 있습니다.

- q_proj: n_embd → n_embd. k_proj, v_proj: d_context → n_embd. 셋 다 bias 없음. o_proj: n_embd → n_embd, bias 있음.

- - -

Cross-attention

The decoder of a translation model attends to the source text. The queries come from x, the text being written; keys and
values come from context, the source. The rest is as in multi-head attention, except that there is no causal mask: the
whole source is known. The two texts differ in length (T and S), and their widths (n_embd and d_context) may differ.

- q_proj: n_embd → n_embd. k_proj, v_proj: d_context → n_embd. All three have no bias. o_proj: n_embd → n_embd with
  bias.
"""

import math

import torch
from torch import Tensor, nn

from jumok.course.practice import mine

split_heads = mine("split_heads").split_heads
merge_heads = mine("split_heads").merge_heads


class CrossAttention(nn.Module):
    """한 시퀀스에서 다른 시퀀스를 참조하는 어텐션.

    - - -

    Attention from one sequence to another.
    """

    def __init__(self, n_embd: int, d_context: int, n_head: int) -> None:
        super().__init__()
        # <solution>
        self.n_head = n_head
        self.q_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.k_proj = nn.Linear(d_context, n_embd, bias=False)
        self.v_proj = nn.Linear(d_context, n_embd, bias=False)
        self.o_proj = nn.Linear(n_embd, n_embd)
        # </solution>

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """(B, T, n_embd), (B, S, d_context) -> (B, T, n_embd).

        - - -

        (B, T, n_embd) and (B, S, d_context) -> (B, T, n_embd).
        """
        # <solution>
        q = split_heads(self.q_proj(x), self.n_head)  # (B, H, T, D)
        k = split_heads(self.k_proj(context), self.n_head)  # (B, H, S, D)
        v = split_heads(self.v_proj(context), self.n_head)  # (B, H, S, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
        return self.o_proj(merge_heads(scores.softmax(dim=-1) @ v))
        # </solution>
