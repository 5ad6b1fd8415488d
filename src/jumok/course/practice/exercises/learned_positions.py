"""학습하는 위치 임베딩

어텐션은 토큰의 순서를 모릅니다. GPT-2와 BERT는 위치마다 벡터를 하나씩 학습하여 토큰의 벡터에 더합니다. 0번 위치의
벡터는 어느 문장에서나 같습니다.

위치의 번호 0, 1, ..., T-1은 torch.arange로 만들고, x와 같은 장치(x.device)에 두세요. 그러지 않으면 모델을 GPU로
옮겼을 때 오류가 납니다. T는 context_length보다 작을 수 있습니다.

- - -

Learned positions

Attention does not know the order of the tokens. GPT-2 and BERT learn a vector for each position and add it to the
vector of the token. The vector of position 0 is the same in all sequences.

Make the numbers of the positions, 0, 1, ..., T-1, with torch.arange on the device of x (x.device). Otherwise the
model fails as soon as it is moved to a GPU. T can be smaller than context_length.
"""

import torch
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """위치마다 학습한 벡터를 더하는 층.

    층: table. 위치 context_length개마다 행이 하나인 nn.Embedding입니다.

    - - -

    Add a learned vector for each position.

    Layers: table, an nn.Embedding with a row for each of the context_length positions.
    """

    def __init__(self, context_length: int, width: int) -> None:
        super().__init__()
        # <solution>
        self.table = nn.Embedding(context_length, width)
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        # <solution>
        positions = torch.arange(x.shape[1], device=x.device)  # (T,)
        return x + self.table(positions)  # (B, T, C)
        # </solution>
