"""텍스트 생성

텍스트 뒤에 토큰을 하나씩 생성하세요. 매번 마지막 context_length개의 토큰을 모델에 넣고, 마지막 위치의 로짓에서
앞에서 작성한 probabilities로 확률을 구하고, torch.multinomial로 한 토큰을 뽑아 뒤에 붙입니다.
모델은 평가 모드여야 하고 기울기는 필요 없습니다.

- - -

Generating text

Continue a text token by token. Each time, give the model the last context_length tokens, turn the logits of the last
position into probabilities with your function probabilities, draw one token with torch.multinomial and append it. The
model must be in eval mode, and no gradients are needed.
"""

import torch
from torch import Tensor, nn

from jumok.course.practice import mine

probabilities = mine("temperature").probabilities  # (logits (B, V), temperature) -> (B, V)


def generate(model: nn.Module, ids: Tensor, tokens: int, context_length: int, temperature: float = 1.0) -> Tensor:
    """ids 뒤에 새 토큰을 tokens개 붙여 반환합니다: (B, T) -> (B, T + tokens).

    인자:
        model: ids (B, T) -> 로짓 (B, T, V). T는 context_length 이하입니다.

    - - -

    Return the ids with so many new tokens after them: (B, T) -> (B, T + tokens).

    Args:
        model: ids (B, T) -> logits (B, T, V). T is at most context_length.
    """
    # <solution>
    model.eval()
    with torch.no_grad():
        for _ in range(tokens):
            logits = model(ids[:, -context_length:])[:, -1]  # (B, V)
            new = torch.multinomial(probabilities(logits, temperature), 1)  # (B, 1)
            ids = torch.cat((ids, new), dim=1)
    return ids
    # </solution>
