"""학습 한 스텝

모델을 한 번 갱신하세요. 순서는 이렇습니다. 학습 모드로 바꾸고, 이전 기울기를 지우고, 로짓과 손실을 구하고,
backward로 기울기를 구하고, 기울기 전체의 길이(노름)가 clip을 넘지 않도록 기울기를 줄이고, 옵티마이저로 갱신합니다.
손실은 F.cross_entropy로 구하세요. 길이는 torch.nn.utils.clip_grad_norm_으로 제한합니다. 모델은 평가 모드로, 기울기가
남아 있는 채로 들어올 수 있습니다.

- - -

One training step

Update the model once. The order is: switch to training mode, clear the old gradients, compute the logits and the loss,
compute the gradients with backward, scale them so that their total norm is at most clip, and let the optimizer update
the parameters. Compute the loss with F.cross_entropy, and limit the norm with torch.nn.utils.clip_grad_norm_. The
model may arrive in eval mode, and with old gradients.
"""

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer


def training_step(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor, clip: float) -> float:
    """모델을 한 번 갱신하고 손실을 파이썬의 수로 반환합니다.

    인자:
        model: ids (B, T) -> 로짓 (B, T, V).
        optimizer: 모델의 파라미터를 갱신하는 옵티마이저.
        x: id, (B, T).
        y: 다음 토큰, (B, T).
        clip: 모든 기울기를 한 벡터로 볼 때 그 길이의 상한.

    - - -

    Update the model once, and return the loss as a Python number.

    Args:
        model: ids (B, T) -> logits (B, T, V).
        optimizer: of the parameters of the model.
        x: ids, (B, T).
        y: the next tokens, (B, T).
        clip: the largest norm of all gradients together.
    """
    # <solution>
    model.train()
    optimizer.zero_grad()
    logits = model(x)  # (B, T, V)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()
    # </solution>
