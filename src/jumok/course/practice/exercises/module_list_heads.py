"""헤드 여러 개: nn.ModuleList

헤드 n_head개를 만들어 같은 입력을 넣고, 출력을 마지막 차원에서 이어 붙이세요. 헤드마다 파라미터가 따로 있어야 합니다.
헤드는 self.heads에 두되 nn.ModuleList에 담으세요. 파이썬 리스트에 담으면 모듈이 그 안의 헤드를 찾지 못해 parameters()가
비고, 옵티마이저가 아무것도 학습하지 않습니다.

- - -

Several heads in an nn.ModuleList

Make n_head heads, give each of them the same input, and concatenate their outputs along the last dimension. Each head
has parameters of its own. Keep the heads in self.heads, in an nn.ModuleList. A module does not look into a Python list:
parameters() would be empty, and the optimizer would train nothing.
"""

import torch
from torch import Tensor, nn

from jumok.course.practice import mine

Head = mine("head").Head


class ParallelHeads(nn.Module):
    """인과 셀프 어텐션의 헤드 여러 개를 나란히 둔 층.

    - - -

    Several heads of causal self-attention side by side.
    """

    def __init__(self, n_embd: int, n_head: int, head_dim: int, context_length: int, dropout: float = 0.0) -> None:
        super().__init__()
        # <solution>
        self.heads = nn.ModuleList([Head(n_embd, head_dim, context_length, dropout) for _ in range(n_head)])
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, n_embd) -> (B, T, n_head * head_dim). 헤드 0, 헤드 1, … 순서로 이어 붙입니다.

        - - -

        (B, T, n_embd) -> (B, T, n_head * head_dim): head 0 first, then head 1, and so on.
        """
        # <solution>
        return torch.cat([head(x) for head in self.heads], dim=-1)
        # </solution>
