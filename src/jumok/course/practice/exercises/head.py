"""헤드 하나

인과 어텐션의 헤드 하나를 클래스로 작성하세요. 파라미터는 선형층 q_proj, k_proj, v_proj의 것뿐이며 bias는 없습니다.
__init__의 첫 줄은 super().__init__()입니다. 이 줄이 있어야 nn.Module이 층과 버퍼를 등록합니다.

- 마스크는 학습하는 수가 아니므로 파라미터가 아닙니다. self.register_buffer("mask", ...)로 등록하면 모델과 함께 장치와
  저장 파일로 옮겨집니다. context_length × context_length로 한 번 만들고, forward에서는 왼쪽 위의 T × T만 씁니다.
- √D의 D는 입력의 폭 n_embd가 아니라 헤드의 폭 head_dim입니다.
- 드롭아웃(nn.Dropout)은 소프트맥스를 거친 가중치에 적용합니다.

- - -

One head

Write one head of causal attention as a class. Its only parameters are those of the linear layers q_proj, k_proj and
v_proj, which have no bias. __init__ begins with super().__init__(): only then can an nn.Module register layers and
buffers.

- The mask is not learned, so it is not a parameter. self.register_buffer("mask", ...) makes it move with the model to a
  device and into a saved file. Make it once, context_length × context_length. In forward, use its top-left T × T part.
- The D of √D is head_dim, the width of the head, not n_embd, the width of the input.
- Dropout (nn.Dropout) applies to the weights, after the softmax.
"""

import math

import torch
from torch import Tensor, nn

from jumok.course.practice import mine

causal_mask = mine("causal_mask").causal_mask


class Head(nn.Module):
    """인과 셀프 어텐션의 헤드 하나. 층: q_proj, k_proj, v_proj. 버퍼: mask.

    - - -

    One head of causal self-attention. Layers: q_proj, k_proj and v_proj. Buffer: mask.
    """

    def __init__(self, n_embd: int, head_dim: int, context_length: int, dropout: float = 0.0) -> None:
        # <solution>
        super().__init__()
        self.q_proj = nn.Linear(n_embd, head_dim, bias=False)
        self.k_proj = nn.Linear(n_embd, head_dim, bias=False)
        self.v_proj = nn.Linear(n_embd, head_dim, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", causal_mask(context_length, context_length))
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, n_embd) -> (B, T, head_dim). T는 context_length 이하의 어떤 수든 됩니다.

        - - -

        (B, T, n_embd) -> (B, T, head_dim), for every T up to context_length.
        """
        # <solution>
        t = x.shape[1]
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # (B, T, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, T, T)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))  # (B, T, T)
        return weights @ v
        # </solution>
