"""완전한 멀티헤드 어텐션

GPT의 블록에 들어갈 멀티헤드 어텐션을 완성하세요. 나누어 계산한 헤드들은 아직 서로 섞이지 않은 열입니다. 출력 투영
o_proj가 이것을 섞습니다.

- q_proj, k_proj, v_proj: n_embd → n_embd, bias 없음. o_proj: n_embd → n_embd, bias 있음. 헤드의 폭은 n_embd /
  n_head입니다.
- 순서: 투영하고, 헤드로 나누고, 인과 어텐션을 계산하고, 합치고, 마지막에 o_proj를 적용합니다.
- 드롭아웃은 가중치에 적용합니다. 마스크는 버퍼로 등록하거나 forward에서 만드세요.

- - -

Multi-head attention, complete

Write the multi-head attention that goes into the block of a GPT. The split heads are columns that do not affect each
other yet. The output projection o_proj mixes them.

- q_proj, k_proj, v_proj: n_embd → n_embd without bias. o_proj: n_embd → n_embd with bias. A head has the width n_embd /
  n_head.
- The order: project, split into heads, compute causal attention, merge, and apply o_proj at the end.
- Dropout applies to the weights. Register the mask as a buffer, or make it in forward.
"""

import math

import torch
from torch import Tensor, nn

from jumok.lessons.practice import mine

causal_mask = mine("causal_mask").causal_mask
split_heads = mine("split_heads").split_heads
merge_heads = mine("split_heads").merge_heads


class MultiHeadAttention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, n_embd: int, n_head: int, context_length: int, dropout: float = 0.0) -> None:
        super().__init__()
        # <solution>
        self.n_head = n_head
        self.q_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.k_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.v_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.o_proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", causal_mask(context_length, context_length))
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, n_embd) -> (B, T, n_embd), for every T up to context_length."""
        # <solution>
        t = x.shape[1]
        q = split_heads(self.q_proj(x), self.n_head)  # (B, H, T, D)
        k = split_heads(self.k_proj(x), self.n_head)  # (B, H, T, D)
        v = split_heads(self.v_proj(x), self.n_head)  # (B, H, T, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))  # (B, H, T, T)
        return self.o_proj(merge_heads(weights @ v))
        # </solution>
