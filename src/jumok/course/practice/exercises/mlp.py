"""피드포워드 층(MLP)

어텐션은 다른 토큰의 값을 가중 평균합니다. 모은 벡터를 비선형으로 변환하는 것은 MLP입니다. MLP는 토큰마다 따로, 모든
토큰에 같은 파라미터로 계산합니다.

- up_proj: 폭을 네 배로 넓히는 nn.Linear
- 활성화 함수: GELU 또는 ReLU. GPT-2의 GELU는 F.gelu(x, approximate="tanh")입니다.
- down_proj: 원래 폭으로 돌아가는 nn.Linear

활성화 함수는 두 층 사이에 있습니다. 사이에 없으면 두 층은 행렬 하나와 같습니다.

- - -

The feed-forward layer (MLP)

Attention computes weighted means of the values of other tokens. The MLP then applies a non-linear function to the
resulting vector. It does so for each token by itself, with the same parameters for all tokens.

- up_proj: an nn.Linear that makes the vector four times as wide
- the activation: GELU or ReLU. The GELU of GPT-2 is F.gelu(x, approximate="tanh").
- down_proj: an nn.Linear that returns to the original width

The activation stands between the two layers. Without it, the two layers are equal to a single matrix.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """선형층 두 개와 그 사이의 활성화 함수.

    층: width에서 4 * width로 가는 up_proj, 다시 width로 가는 down_proj. 둘 다 편향이 있습니다.

    - - -

    Two linear layers with an activation between them.

    Layers: up_proj from width to 4 * width, and down_proj back, both with a bias.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        # <solution>
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        # <solution>
        hidden = F.gelu(self.up_proj(x), approximate="tanh")  # (B, T, 4C)
        return self.down_proj(hidden)
        # </solution>
