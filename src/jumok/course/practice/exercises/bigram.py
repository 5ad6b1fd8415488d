"""바이그램 모델

가장 작은 언어 모델을 작성하세요. 현재 토큰 하나만 보고 다음 토큰을 예측합니다. 파라미터는 V x V 표 하나이고, 행은
현재 토큰, 열은 다음 토큰의 로짓입니다. nn.Embedding(V, V)가 바로 이 표입니다.

손실은 교차 엔트로피입니다. F.cross_entropy는 로짓 (N, V)와 정답 (N,)을 받으므로, 배치와 위치를 한 차원으로 펼쳐야
합니다. 소프트맥스는 F.cross_entropy 안에서 계산합니다.

정답 targets는 한 칸 뒤의 토큰입니다. targets[b, t]가 ids[b, t] 다음에 오는 토큰이므로 여기에서 다시 옮기지 않습니다.

- - -

The bigram model

Write the smallest language model. It predicts the next token from the current token alone. Its only parameter is a
table of V x V: a row for the current token, with the logits of the next token in the columns. nn.Embedding(V, V) is
this table.

The loss is the cross-entropy. F.cross_entropy takes logits (N, V) and targets (N,), so flatten batch and positions
into one dimension. F.cross_entropy computes the softmax itself.

The targets are already shifted: targets[b, t] is the token that follows ids[b, t]. Do not shift them again.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Bigram(nn.Module):
    """로짓의 표. 층: table(nn.Embedding).

    - - -

    A table of logits. Layers: table, an nn.Embedding.
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        # <solution>
        self.table = nn.Embedding(vocab_size, vocab_size)
        # </solution>

    def forward(self, ids: Tensor) -> Tensor:
        """위치마다 다음 토큰의 로짓을 반환합니다: (B, T) -> (B, T, V).

        - - -

        Return the logits of the next token at each position: (B, T) -> (B, T, V).
        """
        # <solution>
        return self.table(ids)
        # </solution>

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """교차 엔트로피의 평균을 스칼라로 반환합니다. ids와 targets: (B, T).

        - - -

        Return the mean cross-entropy, a scalar. ids and targets: (B, T).
        """
        # <solution>
        logits = self(ids)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        # </solution>
