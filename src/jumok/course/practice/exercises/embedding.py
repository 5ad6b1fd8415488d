"""임베딩은 원-핫 벡터와 행렬의 곱

모델은 토큰의 id를 표의 행으로 바꿉니다. 표는 (V, C) 모양의 행렬이고, id가 5인 토큰의 벡터는 5번 행입니다. 이것은 id의
자리만 1이고 나머지는 0인 원-핫 벡터에 행렬을 곱한 것과 같습니다. 따라서 임베딩은 편향이 없는 선형층이며, 보통의
파라미터처럼 학습됩니다.

bert-base-uncased의 설정에는 vocab_size 30522와 hidden_size 768이 있습니다. 표는 30,522 x 768이고, 토큰 하나를 원-핫
벡터로 쓰면 30,522개의 수 중 하나만 1입니다. 그래서 실제로는 곱하지 않고 행을 찾습니다.

네 함수를 작성하세요. F.embedding, nn.Embedding, F.one_hot은 쓰지 마세요.

- - -

An embedding is a one-hot vector times a matrix

A model turns the ids of tokens into rows of a table. The table is a matrix of shape (V, C), and the vector of the
token with id 5 is row 5. This is equal to multiplying the matrix by a one-hot vector, which is 1 at the id and 0
elsewhere. So an embedding is a linear layer without a bias, and it is trained as any other parameter.

The config of bert-base-uncased has vocab_size 30522 and hidden_size 768. The table is 30,522 x 768, and the one-hot
vector of a token has 30,522 numbers, of which one is 1. For this reason the row is looked up and nothing is
multiplied.

Write the four functions. Do not use F.embedding, nn.Embedding or F.one_hot.
"""

import torch
from torch import Tensor


def look_up(ids: Tensor, table: Tensor) -> Tensor:
    """표의 행을 반환합니다: ids (B, T), table (V, C) -> (B, T, C).

    - - -

    Return the rows of the table: ids (B, T), table (V, C) -> (B, T, C).
    """
    # <solution>
    return table[ids]
    # </solution>


def one_hot(ids: Tensor, vocab_size: int) -> Tensor:
    """id의 자리에서 1이고 나머지는 0인 실수를 반환합니다: (B, T) -> (B, T, vocab_size).

    - - -

    Return floats that are 1 at the id and 0 elsewhere: (B, T) -> (B, T, vocab_size).
    """
    # <solution>
    return (ids[..., None] == torch.arange(vocab_size)).float()
    # </solution>


def multiply(ids: Tensor, table: Tensor) -> Tensor:
    """look_up과 같은 결과를 행렬곱으로 구합니다: ids (B, T), table (V, C) -> (B, T, C).

    - - -

    Return the same as look_up, as a product of matrices: ids (B, T), table (V, C) -> (B, T, C).
    """
    # <solution>
    return one_hot(ids, table.shape[0]) @ table
    # </solution>


def parameter_count(vocab_size: int, width: int) -> int:
    """임베딩의 파라미터 수를 반환합니다.

    - - -

    Return the number of parameters of an embedding.
    """
    # <solution>
    return vocab_size * width
    # </solution>
