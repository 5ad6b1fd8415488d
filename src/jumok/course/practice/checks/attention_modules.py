"""What the checks of attention modules have in common: their parameters, and where dropout stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import Wrong, hidden, raises, require_shape, require_tensor, same
from jumok.course.practice.course import Words

RATE = 0.5
MANY = 64  # samples: the chance that all of them are dropped, or none, is 2^-64


def require_no_bias(ours: nn.Module) -> None:
    """Check that q_proj, k_proj and v_proj have no bias.

    Raises:
        Wrong: one has.
    """
    for name, _ in ours.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias")):
            raise Wrong(
                Words(
                    "{name} 파라미터가 있습니다. 이 연습에서는 쿼리, 키, 값에 bias를 쓰지 않습니다: nn.Linear(..., "
                    "bias=False).",
                    "There is a {name}. In this exercise queries, keys and values have no bias: nn.Linear(..., "
                    "bias=False).",
                ),
                mistake="bias",
                name=name,
            )


def require_parameters(ours: nn.Module, names: Iterable[str]) -> None:
    """Check that there are these parameters and no others.

    Raises:
        Wrong: one is missing, or there is another one.
    """
    expected, found = list(names), [name for name, _ in ours.named_parameters()]
    for name in expected:
        if name not in found:
            raise Wrong(
                Words(
                    "{name} 파라미터가 없습니다. 있는 것: {found}. 층의 이름을 문제와 똑같이 쓰고 __init__에서 "
                    "self에 넣으세요.",
                    "The parameter {name} is missing. The module has: {found}. Use the names of the task, and assign "
                    "the layers to self in __init__.",
                ),
                mistake="missing-parameter",
                name=name,
                found=", ".join(found) or "-",
            )
    for name in found:
        if name not in expected:
            raise Wrong(
                Words(
                    "{name} 파라미터는 문제에 없습니다. 학습하는 수가 늘어납니다.",
                    "The parameter {name} is not in the task. It adds numbers that are learned.",
                ),
                mistake="extra-parameter",
                name=name,
            )


def run_with_heads(call: Callable[[], Any]) -> Any:
    """The result of code that splits tensors into heads, in shapes of which T, H and D differ.

    Raises:
        Wrong: dimensions are confused, so that the keys do not fit the queries, or the mask the scores.
    """

    def swapped() -> Any:
        return raises(SWAPPED, call, mistake="transposed-heads", text="at non-singleton dimension 1")

    return raises(MASK_SIZE, swapped, mistake="mask-size", text="at non-singleton dimension 3")


SWAPPED = Words(
    "4차원 텐서에서 transpose(1, 2)는 H와 T를 맞바꿉니다. 키의 마지막 두 차원을 맞바꾸는 것은 transpose(-2, -1)입니다.",
    "On a 4-D tensor transpose(1, 2) exchanges H and T. transpose(-2, -1) exchanges the last two dimensions of the "
    "keys.",
)
MASK_SIZE = Words(
    "마스크와 점수의 크기가 다릅니다. 헤드로 나눈 텐서의 모양은 (B, H, T, D)여야 합니다(view 다음에 transpose(1, 2)). "
    "그러면 T는 q.shape[-2]이고 점수는 (B, H, T, T)입니다.",
    "The mask and the scores differ in size. Split tensors must have the shape (B, H, T, D): view, then transpose(1, "
    "2). T is then q.shape[-2], and the scores are (B, H, T, T).",
)


def require_repeatable(ours: Callable[[Tensor], Any], x: Tensor) -> None:
    """Check that a module made with dropout 0 is not random.

    Raises:
        Wrong: two calls differ.
    """
    first, second = ours(x), ours(x)
    if isinstance(first, Tensor) and isinstance(second, Tensor) and not same(first, second):
        raise Wrong(
            Words(
                "dropout=0.0인데 같은 입력의 결과가 호출할 때마다 다릅니다. nn.Dropout에 인자 dropout을 넘기세요. "
                "인자가 없으면 비율이 0.5입니다.",
                "With dropout=0.0, two calls with the same input differ. Pass the argument dropout to nn.Dropout, "
                "whose rate is 0.5 if none is given.",
            ),
            mistake="random",
        )


def check_dropout(
    make: Callable[[float], Any], values: Callable[[Any, Tensor], list[Tensor]], width: int, after: str = ""
) -> None:
    """Check where dropout stands, with sequences of one token: the only weight is 1, or dropped.

    Args:
        make: the reader's module for a rate.
        values: the module's values of each head for (B, 1, C), (B, 1, D) each, in the order of the output.
        width: C.
        after: the name of a linear layer after the concatenated heads, which the check replaces by the identity.

    Raises:
        Wrong: there is no dropout, or it is used in evaluation, or it is not on the weights.
    """
    ours, x = make(RATE), hidden(MANY, 1, width, scale=3)
    if after:
        setattr(ours, after, nn.Identity())
    value = torch.stack(values(ours, x), dim=-2)  # (B, 1, H, D)
    with torch.no_grad():
        ours.eval()
        quiet = require_tensor(ours(x))
        require_shape(quiet, (MANY, 1, value.shape[-2] * value.shape[-1]))
        if not same(quiet.view(value.shape), value):
            raise Wrong(
                Words(
                    "eval()에서도 드롭아웃이 적용됩니다. 학습하지 않을 때는 결과가 무작위이면 안 됩니다. nn.Dropout을 "
                    "__init__에서 만들거나 F.dropout에 training=self.training을 주세요.",
                    "Dropout is active in eval(), too. Outside of training the result must not be random. Make an "
                    "nn.Dropout in __init__, or give F.dropout training=self.training.",
                ),
                mistake="dropout-in-eval",
            )
        ours.train()
        noisy = require_tensor(ours(x)).view(value.shape)
    dropped = noisy == 0  # (B, 1, H, D)
    if not dropped.any():
        raise Wrong(
            Words(
                "학습할 때(train()) 드롭아웃이 가중치를 0으로 만들지 않습니다. 소프트맥스 다음에 "
                "self.dropout(weights)를 쓰세요. 소프트맥스 전의 점수에 적용하면 0이 된 점수도 가중치를 받습니다.",
                "In training (train()) dropout sets no weight to 0. After the softmax write self.dropout(weights). On "
                "the scores, before the softmax, it does not help: a score of 0 still gets a weight.",
            ),
            mistake="no-dropout",
        )
    if not same(dropped.float().amin(-1), dropped.float().amax(-1)):
        raise Wrong(
            Words(
                "드롭아웃이 가중치가 아닌 것(출력이나 값)에 적용되었습니다. 벡터의 일부 수만 0입니다. 가중치에 "
                "적용하면 토큰 하나를 통째로 참조하지 않게 됩니다. 이 연습에서는 가중치에만 적용하세요.",
                "Dropout is applied to something else than the weights, the output or the values: only some numbers of "
                "a vector are 0. On the weights it removes the attention to a whole token. Apply it to the weights "
                "only.",
            ),
            mistake="dropout-on-output",
        )
