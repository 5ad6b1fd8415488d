"""손으로 구현하는 AdamW

AdamW의 한 스텝을 구현하세요. w는 파라미터, g는 기울기, t는 1부터 세는 스텝 번호입니다.

    m = β₁ m + (1 - β₁) g              기울기의 이동 평균
    v = β₂ v + (1 - β₂) g²             기울기 제곱의 이동 평균
    m̂ = m / (1 - β₁ᵗ)                  편향 보정: m과 v는 0에서 시작하므로 처음에 너무 작습니다
    v̂ = v / (1 - β₂ᵗ)
    w = w - lr · λ · w                 가중치 감쇠: 기울기와 따로
    w = w - lr · m̂ / (√v̂ + ε)

받은 텐서를 바꾸지 말고 새 w, m, v를 반환하세요. torch.optim은 쓰지 마세요.

- - -

AdamW by hand

Write one step of AdamW. w is a parameter, g its gradient, and t the number of the step, counted from 1.

    m = β₁ m + (1 - β₁) g              the moving average of the gradient
    v = β₂ v + (1 - β₂) g²             the moving average of its square
    m̂ = m / (1 - β₁ᵗ)                  bias correction: m and v begin at 0, so at first they are too small
    v̂ = v / (1 - β₂ᵗ)
    w = w - lr · λ · w                 weight decay, apart from the gradient
    w = w - lr · m̂ / (√v̂ + ε)

Leave the arguments as they are, and return the new w, m and v. Do not use torch.optim.
"""

from torch import Tensor


def adamw(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    t: int,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.95,
    epsilon: float = 1e-8,
    weight_decay: float = 0.1,
) -> tuple[Tensor, Tensor, Tensor]:
    """스텝 t 뒤의 w, m, v를 반환합니다. 모양은 모두 w와 같습니다. weight_decay는 λ입니다.

    - - -

    Return w, m and v after step t, each of the shape of w. weight_decay is λ.
    """
    # <solution>
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**t)
    v_hat = v / (1 - beta2**t)
    w = w - lr * weight_decay * w
    w = w - lr * m_hat / (v_hat.sqrt() + epsilon)
    return w, m, v
    # </solution>
