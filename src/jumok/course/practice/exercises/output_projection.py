"""완전한 멀티헤드 어텐션

GPT의 블록에 들어갈 멀티헤드 어텐션을 완성하세요. 나누어 계산한 헤드들은 아직 서로 섞이지 않은 열입니다. 출력 투영
o_proj가 이것을 섞습니다.

- q_proj, k_proj, v_proj: d_in → d_out, qkv_bias=True일 때만 bias가 있습니다. o_proj: d_out → d_out, bias 있음. 헤드의
  폭은 d_out / n_head입니다.
- 순서: 투영하고, 헤드로 나누고, 인과 어텐션을 계산하고, 합치고, 마지막에 o_proj를 적용합니다.
- 드롭아웃은 가중치에 적용합니다.
- 마스크는 forward에서 만들어 x의 장치로 옮깁니다: causal_mask(t, t).to(x.device). causal=False이면 쓰지 않습니다.

- - -

Multi-head attention, complete

Write the multi-head attention that goes into the block of a GPT. The split heads are columns that do not affect each
other yet. The output projection o_proj mixes them.

- q_proj, k_proj, v_proj: d_in → d_out, with a bias only if qkv_bias=True. o_proj: d_out → d_out with a bias. A head has
  the width d_out / n_head.
- The order: project, split into heads, compute causal attention, merge, and apply o_proj at the end.
- Dropout applies to the weights.
- Make the mask in forward, and move it to the device of x: causal_mask(t, t).to(x.device). Use no mask if causal=False.
"""

import math

import torch
from torch import Tensor, nn

from jumok.course.practice import mine

causal_mask = mine("causal_mask").causal_mask
split_heads = mine("split_heads").split_heads
merge_heads = mine("split_heads").merge_heads


class MultiHeadAttention(nn.Module):
    """헤드가 여러 개인 셀프 어텐션. 층: q_proj, k_proj, v_proj, o_proj.

    - - -

    Self-attention with several heads. Layers: q_proj, k_proj, v_proj and o_proj.
    """

    def __init__(self, d_in: int, d_out: int, n_head: int, qkv_bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        # <solution>
        self.n_head = n_head
        self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.o_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        # </solution>

    def forward(self, x: Tensor, causal: bool = True) -> Tensor:
        """(B, T, d_in) -> (B, T, d_out). causal: 인과 마스크를 적용할지 여부.

        - - -

        (B, T, d_in) -> (B, T, d_out). causal: whether to apply the causal mask.
        """
        # <solution>
        t = x.shape[1]
        q = split_heads(self.q_proj(x), self.n_head)  # (B, H, T, D)
        k = split_heads(self.k_proj(x), self.n_head)  # (B, H, T, D)
        v = split_heads(self.v_proj(x), self.n_head)  # (B, H, T, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        if causal:
            scores = scores.masked_fill(~causal_mask(t, t).to(x.device), float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))  # (B, H, T, T)
        return self.o_proj(merge_heads(weights @ v))
        # </solution>
