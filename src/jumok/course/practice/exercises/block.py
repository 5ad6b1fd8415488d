"""블록

앞에서 작성한 부품으로 블록을 만드세요. mine은 여러분의 파일을 불러옵니다. 아직 채우지 않은 파일은 jumok의 답으로
대신합니다. 블록은 다음 두 줄을 계산합니다.

    x = x + drop(attention(attention_norm(x)))
    x = x + drop(mlp(mlp_norm(x)))

- 정규화는 어텐션과 MLP의 입력에만 적용하고, 더하는 것은 정규화하지 않은 x입니다. 이 배치가 pre-norm입니다.
- 정규화 층은 두 개입니다. 각각 자기 파라미터를 학습합니다.
- 어텐션은 인과 마스크를 씁니다: self.attention(..., causal=True). GPT-2처럼 qkv_bias=True로 만드세요.
- 드롭아웃은 세 곳에 있습니다. 어텐션 가중치(MultiHeadAttention에 dropout을 넘깁니다), 어텐션의 결과, MLP의
  결과입니다.

- - -

The block

Build a block from the parts that you have written. mine imports your own file. If it is not written yet, jumok's
solution takes its place. A block computes two lines:

    x = x + drop(attention(attention_norm(x)))
    x = x + drop(mlp(mlp_norm(x)))

- The norm is applied only to the input of the attention and of the MLP. The x that is added is not normalised. This
  is called pre-norm.
- There are two norms. Each learns its own parameters.
- The attention uses the causal mask: self.attention(..., causal=True). Create it with qkv_bias=True, as in GPT-2.
- Dropout stands in three places: on the attention weights (pass dropout to MultiHeadAttention), on the result of the
  attention, and on the result of the MLP.
"""

from torch import Tensor, nn

from jumok.course.practice import mine

MultiHeadAttention = mine("output_projection").MultiHeadAttention
LayerNorm = mine("layer_norm").LayerNorm
MLP = mine("mlp").MLP
Dropout = mine("dropout").Dropout


class Block(nn.Module):
    """인과 셀프 어텐션을 쓰는 pre-norm 블록.

    층: attention_norm, attention, mlp_norm, mlp.

    인자:
        width: 폭 C.
        n_head: 헤드의 수 H. 폭의 약수입니다.
        dropout: 드롭아웃을 적용하는 세 곳 모두의 확률.

    - - -

    A pre-norm block with causal self-attention.

    Layers: attention_norm, attention, mlp_norm and mlp.

    Args:
        width: C.
        n_head: H, a divisor of the width.
        dropout: the rate in all three places.
    """

    def __init__(self, width: int, n_head: int, dropout: float = 0.0) -> None:
        super().__init__()
        # <solution>
        self.attention_norm = LayerNorm(width)
        self.attention = MultiHeadAttention(width, width, n_head, qkv_bias=True, dropout=dropout)
        self.mlp_norm = LayerNorm(width)
        self.mlp = MLP(width)
        self.drop = Dropout(dropout)
        # </solution>

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        # <solution>
        x = x + self.drop(self.attention(self.attention_norm(x), causal=True))
        return x + self.drop(self.mlp(self.mlp_norm(x)))
        # </solution>
