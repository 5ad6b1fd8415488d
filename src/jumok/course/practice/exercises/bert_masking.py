"""BERT의 마스킹

BERT의 학습 데이터를 만드세요. 특수 토큰이 아닌 토큰을 각각 15% 확률로 고릅니다. 고른 토큰의 80%는 [MASK]로, 10%는
어휘의 무작위 토큰으로 바꾸고, 10%는 그대로 둡니다. labels에는 고른 위치에만 원래 토큰을 쓰고, 나머지 위치에는 -100을
씁니다. F.cross_entropy는 -100인 위치를 손실에서 제외합니다. [CLS], [SEP], [PAD] 같은 특수 토큰은 고르지 않습니다. 받은
ids는 바꾸지 마세요. 무작위 수는 torch의 어떤 함수로 만들어도 되지만 시드를 정하지 마세요.

- - -

The masking of BERT

Make the training data of BERT. Choose each token that is not special with a probability of 15%. Of the chosen tokens,
80% become [MASK], 10% become a random token of the vocabulary, and 10% stay as they are. labels holds the original
token at the chosen places, and -100 at all others. F.cross_entropy leaves out the places with -100. Special tokens
such as [CLS], [SEP] and [PAD] are never chosen. Leave the given ids as they are. Any random function of torch will do,
but set no seed.
"""

import torch
from torch import Tensor


def mask_tokens(ids: Tensor, special_ids: list[int], mask_id: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """배치의 입력과 레이블을 반환합니다. 모양은 각각 (B, T)입니다.

    인자:
        ids: (B, T).
        special_ids: 모든 특수 토큰의 id. 패딩과 mask_id도 들어 있습니다.
        mask_id: [MASK]의 id.
        vocab_size: 어휘의 크기. 무작위 토큰의 id는 이 수보다 작습니다.

    - - -

    Return the inputs and the labels of a batch, (B, T) each.

    Args:
        ids: (B, T).
        special_ids: of all special tokens, the padding and mask_id included.
        mask_id: of [MASK].
        vocab_size: random tokens are less than this.
    """
    # <solution>
    ordinary = ~torch.isin(ids, torch.tensor(special_ids))
    chosen = (torch.rand(ids.shape) < 0.15) & ordinary  # (B, T)
    labels = ids.masked_fill(~chosen, -100)
    fate = torch.rand(ids.shape)
    inputs = ids.masked_fill(chosen & (fate < 0.8), mask_id)
    random_ids = torch.randint(vocab_size, ids.shape)
    inputs = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, inputs)
    return inputs, labels
    # </solution>
