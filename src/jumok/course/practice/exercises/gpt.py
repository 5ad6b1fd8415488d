"""완전한 GPT

지금까지 작성한 부품으로 완전한 GPT를 만드세요. 이 파일은 실제로 학습됩니다. 다 만들면 `jumok learn use`로 여러분의
모델을 학습시킬 수 있습니다.

    토큰 임베딩 → 위치를 더함 → 드롭아웃 → 블록 n_layer개 → LayerNorm → 출력층

- 블록은 nn.ModuleList에 담고, 블록마다 따로 만드세요.
- pre-norm에서는 블록의 결과가 정규화되어 있지 않습니다. 그래서 출력층 앞에 LayerNorm이 하나 더 있습니다.
- 출력층은 폭에서 어휘로 가는 편향 없는 nn.Linear입니다.
- 결과는 로짓입니다. 소프트맥스는 손실(F.cross_entropy)과 샘플링에서 계산하므로 여기에 쓰지 않습니다.

- - -

A complete GPT

Build a complete GPT from the parts that you have written. This file is for real training: when it is finished, `jumok
learn use` trains your model.

    token embedding → add positions → dropout → n_layer blocks → LayerNorm → output layer

- Put the blocks into an nn.ModuleList, and create each of them separately.
- With pre-norm, the result of a block is not normalised. So another LayerNorm stands before the output layer.
- The output layer is an nn.Linear from the width to the vocabulary, without a bias.
- The result is logits. The softmax is part of the loss (F.cross_entropy) and of sampling, and does not stand here.
"""

from torch import Tensor, nn

from jumok.course.practice import mine

Block = mine("block").Block
LayerNorm = mine("layer_norm").LayerNorm
LearnedPositions = mine("learned_positions").LearnedPositions
Dropout = mine("dropout").Dropout


class GPT(nn.Module):
    """인과 언어 모델.

    층: token_embedding, positions, drop, blocks, norm, head.

    인자:
        vocab_size: 토큰 id의 수 V.
        context_length: 토큰의 최대 수 T.
        n_layer: 블록의 수.
        n_head: 블록마다 있는 헤드의 수. n_embd의 약수입니다.
        n_embd: 폭(임베딩 차원) C.
        dropout: 임베딩 뒤와 블록 안의 드롭아웃 확률.

    - - -

    A causal language model.

    Layers: token_embedding, positions, drop, blocks, norm and head.

    Args:
        vocab_size: V, the number of token ids.
        context_length: the largest number of tokens, T.
        n_layer: the number of blocks.
        n_head: heads of each block, a divisor of n_embd.
        n_embd: C, the width.
        dropout: the rate after the embeddings and in the blocks.
    """

    def __init__(
        self, vocab_size: int, context_length: int, n_layer: int, n_head: int, n_embd: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        # <solution>
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.positions = LearnedPositions(context_length, n_embd)
        self.drop = Dropout(dropout)
        self.blocks = nn.ModuleList(Block(n_embd, n_head, dropout) for _ in range(n_layer))
        self.norm = LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        # </solution>

    def forward(self, ids: Tensor) -> Tensor:
        """위치마다 다음 토큰의 로짓을 반환합니다: (B, T) -> (B, T, V).

        - - -

        Return the logits of the next token at each position: (B, T) -> (B, T, V).
        """
        # <solution>
        x = self.drop(self.positions(self.token_embedding(ids)))  # (B, T, C)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
        # </solution>
