"""Checks of the exercises on the block and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BlockConfig
from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    any_of,
    compare,
    hidden,
    require,
    require_earlier,
    require_one_device,
    require_shape,
    require_tensor,
    same,
)
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn.blocks import ACTIVATION, MLP, Block

ACTIVATIONS = ("gelu_tanh", "gelu", "relu")  # those that a reader may choose


def layer_norm(code: Code) -> Steps:
    """Normalisation over the last dimension, with epsilon inside the root."""
    eps = 0.5  # so large that its place shows
    norm = code.module("LayerNorm", 8, eps)
    start = {name: value.clone() for name, value in norm.named_parameters()}
    right = nn.LayerNorm(8, eps=eps)
    started = {name: value.detach().clone() for name, value in right.named_parameters()}
    fill(right, scale=1.0)
    copy_parameters(right, norm, {"weight": "weight", "bias": "bias"})
    require(
        all(same(start[name], value) for name, value in started.items()),
        Words(
            "weight는 1로, bias는 0으로 초기화하세요. 학습을 시작할 때 LayerNorm은 정규화만 합니다.",
            "Initialise weight with ones and bias with zeros. At the start of training, LayerNorm only normalises.",
        ),
        mistake="initial-values",
    )
    yield Words("weight와 bias가 파라미터입니다.", "weight and bias are parameters.")
    x = hidden(3, 5, 8) + 1
    kept = x.clone()
    with torch.no_grad():
        compare(norm(kept), right(x), *_norm_mistakes(x, right), letters="(B, T, C)")
        _require_unchanged(kept, x)
        yield Words("모든 토큰이 정규화되었습니다.", "Each token is normalised.")
        usual = code.module("LayerNorm", 8)
        flat = usual(torch.full((1, 1, 8), 3.0))
        compare(flat, torch.zeros(1, 1, 8))
    yield Words("모든 값이 같은 벡터에서도 NaN이 없습니다.", "A vector of equal values does not give NaN.")


WHY_NORM = {
    "batch-norm": Words(
        "배치 정규화입니다. 평균과 분산을 배치와 위치에서 구했습니다. 그러면 한 문장의 결과가 같은 배치의 다른 "
        "문장에 따라 달라지고, 토큰을 하나씩 생성할 때는 평균을 구할 배치도 없습니다. 마지막 차원(dim=-1)에서 "
        "구하세요.",
        "This is batch normalisation: mean and variance are taken over the batch and the positions. The result of a "
        "sentence then depends on the others in the batch, and in generation, one token at a time, there is no batch "
        "to average over. Take them over the last dimension, dim=-1.",
    ),
    "over-positions": Words(
        "평균과 분산을 위치 차원에서 구했습니다. 그러면 앞 토큰의 결과에 뒤 토큰이 들어갑니다. 마지막 "
        "차원(dim=-1)에서 구하세요.",
        "Mean and variance are taken over the positions. Later tokens then change the result of earlier ones. Take "
        "them over the last dimension, dim=-1.",
    ),
    "whole-tensor": Words(
        "토큰 하나가 아니라 여러 토큰의 값 전체에서 평균과 분산을 구했습니다. mean과 var에 dim=-1, keepdim=True를 "
        "주세요.",
        "Mean and variance are those of all values of many tokens, not of one token. Give mean and var the arguments "
        "dim=-1, keepdim=True.",
    ),
    "unbiased": Words(
        "분산을 C - 1로 나누었습니다. torch의 var와 std는 표본의 분산을 추정하려고 C - 1로 나누지만, 여기에서는 "
        "추정하지 않습니다. unbiased=False를 주세요.",
        "The variance was divided by C - 1. var and std of torch do so to estimate the variance from a sample. "
        "Nothing is estimated here: pass unbiased=False.",
    ),
    "eps-outside": Words(
        "eps를 제곱근 밖에서 더했습니다. 공식은 sqrt(분산 + eps)입니다. 분산이 0일 때 sqrt의 기울기는 무한대이므로 "
        "eps는 제곱근 안에 있어야 합니다.",
        "eps is added outside the root. The formula is sqrt(variance + eps). For variance 0 the gradient of the root "
        "is infinite, so eps belongs inside.",
    ),
    "no-eps": Words(
        "결과에 인자로 받은 eps가 없습니다. __init__에서 self.eps = eps로 저장하고 sqrt(분산 + self.eps)로 나누세요.",
        "The result does not contain the argument eps. Store it in __init__, self.eps = eps, and divide by "
        "sqrt(variance + self.eps).",
    ),
    "not-divided": Words(
        "제곱 편차의 합을 C로 나누지 않았습니다. 분산은 제곱 편차의 평균입니다. sum 대신 mean을 쓰세요.",
        "The sum of the squared deviations is not divided by C. The variance is their mean: use mean, not sum.",
    ),
    "bias-scaled": Words(
        "bias를 더한 뒤에 weight를 곱했습니다. weight를 먼저 곱하고 bias를 더하세요.",
        "bias is added before the product with weight. Multiply by weight first, then add bias.",
    ),
    "no-root": Words(
        "분산으로 나누었습니다. 값의 크기는 표준편차이므로 분산의 제곱근으로 나누어야 분산이 1이 됩니다.",
        "The values are divided by the variance. To get variance 1, divide by its root, the standard deviation.",
    ),
    "mean-kept": Words(
        "평균을 빼지 않았습니다. 평균을 빼지 않고 제곱평균의 제곱근으로 나누는 것은 RMSNorm입니다.",
        "The mean is not subtracted. A norm that keeps the mean and divides by the root mean square is RMSNorm.",
    ),
    "no-parameters": Words(
        "weight를 곱하고 bias를 더해야 합니다. 이 둘이 없으면 모델이 특징마다 알맞은 크기와 평균을 학습할 수 없습니다.",
        "Multiply by weight and add bias. Without both, the model cannot learn a size and a mean for each feature.",
    ),
}


def _norm_mistakes(x: Tensor, norm: nn.LayerNorm) -> list[Mistake]:
    def made(centred: Tensor, deviation: Tensor) -> Tensor:
        return centred / deviation * norm.weight + norm.bias

    def over(*dimensions: int) -> Tensor:
        mean = x.mean(dimensions, keepdim=True)
        return made(x - mean, (x.var(dimensions, unbiased=False, keepdim=True) + norm.eps).sqrt())

    centred = x - x.mean(-1, keepdim=True)
    variance, unbiased = (x.var(-1, unbiased=choice, keepdim=True) for choice in (False, True))
    plain = centred / (variance + norm.eps).sqrt()
    return [
        Mistake("batch-norm", over(0, 1), WHY_NORM["batch-norm"]),
        Mistake("over-positions", over(1), WHY_NORM["over-positions"]),
        Mistake("whole-tensor", any_of(over(0, 1, 2), over(1, 2)), WHY_NORM["whole-tensor"]),
        Mistake(
            "unbiased",
            any_of(
                made(centred, (unbiased + norm.eps).sqrt()),
                made(centred, unbiased.sqrt() + norm.eps),
                made(centred, unbiased.sqrt()),
            ),
            WHY_NORM["unbiased"],
        ),
        Mistake("eps-outside", made(centred, variance.sqrt() + norm.eps), WHY_NORM["eps-outside"]),
        Mistake(
            "no-eps",
            any_of(*(made(centred, (variance + other).sqrt()) for other in (0.0, 1e-5, 1e-6))),
            WHY_NORM["no-eps"],
        ),
        Mistake(
            "not-divided",
            made(centred, (centred.square().sum(-1, keepdim=True) + norm.eps).sqrt()),
            WHY_NORM["not-divided"],
        ),
        Mistake("bias-scaled", (plain + norm.bias) * norm.weight, WHY_NORM["bias-scaled"]),
        Mistake("no-root", made(centred, variance + norm.eps), WHY_NORM["no-root"]),
        Mistake(
            "mean-kept",
            any_of(
                made(x, (variance + norm.eps).sqrt()), made(x, (x.square().mean(-1, keepdim=True) + norm.eps).sqrt())
            ),
            WHY_NORM["mean-kept"],
        ),
        Mistake("no-parameters", any_of(plain, plain * norm.weight, plain + norm.bias), WHY_NORM["no-parameters"]),
    ]


WHY_MLP = {
    "no-activation": Words(
        "활성화 함수가 없습니다. 선형층 두 개를 이으면 행렬 하나와 같으므로, 네 배로 넓혀도 달라지는 것이 없습니다.",
        "There is no activation. Two linear layers in a row are equal to a single matrix, so the extra width adds "
        "nothing.",
    ),
    "activation-last": Words(
        "활성화 함수가 down_proj 뒤에 있습니다. 그러면 MLP의 결과가 거의 양수뿐이어서 x에 더할 때 값을 줄일 수 "
        "없습니다. up_proj와 down_proj 사이에만 두세요.",
        "An activation follows down_proj. The result of the MLP is then hardly ever negative, and adding it cannot "
        "make a value smaller. Put it only between up_proj and down_proj.",
    ),
    "other-activation": Words(
        "다른 활성화 함수를 썼습니다. 이것으로도 학습은 되지만, 이 과정의 GPT는 GELU나 ReLU를 씁니다.",
        "The activation is another one. A model can be trained with it, but the GPT of this course uses GELU or ReLU.",
    ),
    "softmax": Words(
        "활성화 함수 대신 소프트맥스를 썼습니다. 소프트맥스는 합이 1인 가중치를 만들기 때문에 은닉 유닛이 서로 "
        "경쟁합니다. GELU나 ReLU는 값마다 따로 계산합니다.",
        "A softmax stands in the place of the activation. It makes weights that sum to one, so the hidden units "
        "compete. GELU and ReLU are computed for each value by itself.",
    ),
    "residual-inside": Words(
        "MLP 안에서 x를 더했습니다. 잔차 연결은 블록에 있으므로, 여기에서도 더하면 x를 두 번 더하게 됩니다.",
        "x is added inside the MLP. The residual connection belongs to the block; x would be added twice.",
    ),
}


def mlp(code: Code) -> Steps:
    """Two linear layers with GELU or ReLU between them."""
    own = code.module("MLP", 6)
    right = MLP(6, 24, "gelu_tanh")
    fill(right)
    copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
    yield Words(
        "up_proj는 폭을 네 배로 넓히고 down_proj는 되돌립니다.",
        "up_proj makes the vector four times as wide, and down_proj returns.",
    )
    x = hidden(3, 5, 6)
    with torch.no_grad():
        up, down = right.up_proj(x), right.down_proj
        chosen = _activation_of(own, right)
        compare(
            own(x.clone()),
            chosen(x),
            Mistake("no-activation", down(up), WHY_MLP["no-activation"]),
            Mistake(
                "activation-last",
                any_of(
                    *(
                        after(down(inner))
                        for after in _allowed()
                        for inner in (up, F.gelu(up), F.gelu(up, approximate="tanh"), F.relu(up))
                    )
                ),
                WHY_MLP["activation-last"],
            ),
            Mistake(
                "other-activation",
                any_of(*(down(other(up)) for other in (F.silu, torch.tanh, torch.sigmoid, F.leaky_relu, F.elu))),
                WHY_MLP["other-activation"],
            ),
            Mistake("softmax", any_of(*(down(up.softmax(dimension)) for dimension in (-1, -2, 0))), WHY_MLP["softmax"]),
            Mistake(
                "residual-inside",
                any_of(*(x + down(activation(up)) for activation in _allowed())),
                WHY_MLP["residual-inside"],
            ),
        )
    yield Words("결과가 맞습니다.", "The result is right.")


def _allowed() -> list[Callable[[Tensor], Tensor]]:
    return [ACTIVATION[name] for name in ACTIVATIONS]


def _with(right: MLP, name: str) -> MLP:
    right.activation = ACTIVATION[name]
    return right


def _activation_of(own: Any, right: MLP) -> MLP:
    """The production MLP with the activation that the reader's MLP, which has the same parameters, uses."""
    x = hidden(2, 3, right.up_proj.in_features, seed=7)
    with torch.no_grad():
        result = own(x.clone())
        found = (n for n in ACTIVATIONS if isinstance(result, Tensor) and same(result, _with(right, n)(x)))
        return _with(right, next(found, ACTIVATIONS[0]))


WHY_RESIDUAL = {
    "x-lost": Words(
        "x가 사라졌습니다. 층의 결과로 x를 바꾸었기 때문입니다. 층이 많으면 기울기가 층마다 곱해져 아래층에 거의 "
        "전달되지 않습니다. x에 더하세요.",
        "x is lost: each layer replaces it. With many layers the gradient is multiplied by that of each layer, and "
        "hardly any of it reaches the lower ones. Add the result to x.",
    ),
    "first-x": Words(
        "모든 층이 처음의 x를 받았습니다. 그러면 뒤 층이 앞 층의 결과를 쓸 수 없습니다. 다음 층에는 앞 층까지 더한 "
        "x를 주세요.",
        "All layers get the first x, so a later layer cannot use the result of an earlier one. Give the next layer "
        "the x to which the earlier results have been added.",
    ),
    "adds-first-x": Words(
        "매번 처음의 x를 더했습니다. 그러면 앞 층에서 더한 것이 사라집니다. 그 층이 받은 x를 더하세요.",
        "The first x is added each time, and what earlier layers added is lost. Add the x that this layer got.",
    ),
    "once-around": Words(
        "잔차 연결이 층 전체에 하나뿐입니다. 층마다 하나씩 있어야 층 사이에서도 기울기가 그대로 전달됩니다.",
        "There is one residual connection around all layers. Each layer needs its own, so that the gradient passes "
        "each of them unchanged.",
    ),
    "last-layer-only": Words(
        "마지막 층의 결과만 남았습니다. 반복할 때마다 처음의 x에서 다시 시작하기 때문입니다. 결과를 x에 다시 "
        "대입하세요: x = x + layer(x)",
        "Only the result of the last layer remains, because each turn of the loop starts from the first x. Assign "
        "the result to x: x = x + layer(x)",
    ),
    "first-layer-only": Words(
        "첫 층만 적용하고 끝났습니다. return이 for 문 안에 있는지 확인하세요.",
        "Only the first layer is applied. Check whether the return stands inside the for loop.",
    ),
    "no-gradient": Words(
        "기울기가 x에 전달되지 않습니다. detach, .data, torch.no_grad()는 계산 그래프를 끊습니다.",
        "The gradient does not reach x. detach, .data and torch.no_grad() cut the graph.",
    ),
}


def residual(code: Code) -> Steps:
    """x + f(x), layer after layer, without changing the argument."""
    function = code.function("apply_residual")
    x = hidden(2, 5, 7)
    first, second, third = layers = [nn.Linear(7, 7) for _ in range(3)]
    for seed, layer in enumerate(layers):
        fill(layer, seed=seed)

    def apply(step: Callable[[Tensor, nn.Module], Tensor]) -> Tensor:
        result = x
        for layer in layers:
            result = step(result, layer)
        return result

    one = x + first(x)
    right = one + second(one)
    right = right + third(right)
    kept = x.clone()
    result = function(kept, layers)
    compare(
        result,
        right,
        Mistake(
            "x-lost",
            any_of(apply(lambda y, layer: layer(y)), apply(lambda y, layer: layer(y) + layer(layer(y)))),
            WHY_RESIDUAL["x-lost"],
        ),
        Mistake("first-x", x + first(x) + second(x) + third(x), WHY_RESIDUAL["first-x"]),
        Mistake("adds-first-x", apply(lambda y, layer: x + layer(y)), WHY_RESIDUAL["adds-first-x"]),
        Mistake("once-around", x + third(second(first(x))), WHY_RESIDUAL["once-around"]),
        Mistake("last-layer-only", x + third(x), WHY_RESIDUAL["last-layer-only"]),
        Mistake("first-layer-only", one, WHY_RESIDUAL["first-layer-only"]),
    )
    _require_unchanged(kept, x)
    yield Words(
        "층마다 x에 더했고, 받은 x는 그대로입니다.", "Each layer adds to x, and the x of the caller is unchanged."
    )
    _require_gradient(function, x, layers)
    yield Words(
        "아무것도 더하지 않는 층 열두 개를 지나도 기울기는 1입니다.",
        "After twelve layers that add nothing, the gradient is still 1.",
    )


def _require_gradient(function: Callable[..., Any], x: Tensor, layers: list[nn.Linear]) -> None:
    """Check that the gradient passes layers that add nothing, and that those of the layers can be computed."""
    start = x.clone().requires_grad_()
    result = require_tensor(function(start, [lambda y: 0.0 * y] * 12))
    gradient = torch.autograd.grad(result.sum(), start)[0] if result.requires_grad else torch.zeros_like(x)
    require(same(gradient, torch.ones_like(x)), WHY_RESIDUAL["no-gradient"], mistake="no-gradient")
    learning = function(x.clone().requires_grad_(), layers)
    learning.sum().backward()


def _require_unchanged(kept: Tensor, x: Tensor) -> None:
    require(
        torch.equal(kept, x),
        Words(
            "받은 x의 값이 바뀌었습니다. +=, x[...] = ..., 이름이 _로 끝나는 메서드는 새 텐서를 만들지 않고 부른 "
            "쪽의 텐서를 바꿉니다. x = x + ...처럼 쓰세요.",
            "The values of the argument changed. +=, x[...] = ... and methods whose name ends with _ make no new "
            "tensor: they change that of the caller. Write x = x + ...",
        ),
        mistake="in-place",
    )


WHY_DROPOUT = {
    "scaled-in-eval": Words(
        "평가 모드에서 값의 크기를 바꾸었습니다. 학습 중에 1 / (1 - p)를 곱하므로 평가할 때는 입력을 그대로 돌려주면 "
        "됩니다.",
        "The values are scaled in evaluation mode. They are scaled by 1 / (1 - p) in training, so in evaluation the "
        "layer returns its input.",
    ),
    "active-in-eval": Words(
        "평가 모드에서도 값을 0으로 만듭니다. 그러면 같은 입력에 매번 다른 결과가 나옵니다. self.training이 "
        "False이면 x를 그대로 돌려주세요.",
        "Values are set to zero in evaluation mode, too. The same input then gives another result each time. If "
        "self.training is False, return x.",
    ),
    "no-scale": Words(
        "남은 값을 1 / (1 - p)배로 키우지 않았습니다. 그러면 학습 중의 합이 평가할 때보다 평균 p만큼 작아, 다음 층이 "
        "학습 때와 다른 크기의 입력을 받게 됩니다.",
        "The values that remain are not scaled by 1 / (1 - p). Sums are then smaller in training than in evaluation, "
        "by the share p on average, and the next layer is evaluated on inputs of another size than it was trained on.",
    ),
    "wrong-scale": Words(
        "남은 값에 다른 수를 곱했습니다. 1 - p의 비율로 남으므로 기댓값을 유지하려면 1 / (1 - p)를 곱해야 합니다.",
        "The values that remain are multiplied by another number. The share 1 - p of them remains, so the factor "
        "that keeps the expected value is 1 / (1 - p).",
    ),
}


def dropout(code: Code) -> Steps:
    """Zeros with probability p in training, the others scaled by 1 / (1 - p), and the identity in evaluation."""
    p = 0.3
    layer = code.module("Dropout", p)
    x = hidden(4, 30, 50) + 3
    kept = x.clone()
    evaluated = layer.eval()(kept)
    compare(
        evaluated,
        x,
        Mistake("scaled-in-eval", any_of(x * (1 - p), x / (1 - p)), WHY_DROPOUT["scaled-in-eval"]),
        Mistake("active-in-eval", lambda result: bool((result == 0).any()), WHY_DROPOUT["active-in-eval"]),
    )
    yield Words("평가 모드에서는 입력을 그대로 돌려줍니다.", "In evaluation mode the layer returns its input.")
    first, second = (require_tensor(layer.train()(kept)) for _ in range(2))
    require_shape(first, tuple(x.shape))
    _require_unchanged(kept, x)
    _require_random(layer, x, first, second, p)
    survived = first != 0
    wanted = torch.where(survived, x / (1 - p), 0.0)
    compare(
        first,
        wanted,
        Mistake("no-scale", torch.where(survived, x, 0.0), WHY_DROPOUT["no-scale"]),
        Mistake(
            "wrong-scale",
            any_of(*(torch.where(survived, x * factor, 0.0) for factor in (1 - p, 1 / p, p, 1 + p))),
            WHY_DROPOUT["wrong-scale"],
        ),
    )
    compare(code.module("Dropout", 0.0).train()(kept), x)
    require_one_device(layer, x)
    yield Words(
        "0의 비율, 남은 값의 크기, 무작위성이 맞습니다.",
        "The share of zeros, the scale of the others and the randomness are right.",
    )


WHY_RANDOM = {
    "inactive": Words(
        "학습 모드에서 아무 값도 0이 되지 않았습니다. self.training의 조건이 반대인지 확인하세요.",
        "No value is zero in training mode. Check whether the condition on self.training is the wrong way round.",
    ),
    "one-choice": Words(
        "무작위 수 하나로 텐서 전체를 0으로 만들거나 남깁니다. 값마다 따로 정하도록 torch.rand_like(x)처럼 x와 같은 "
        "모양의 무작위 수를 쓰세요.",
        "One random number decides about the whole tensor. Each value is decided by itself: draw random numbers in "
        "the shape of x, as torch.rand_like(x) does.",
    ),
    "fixed-mask": Words(
        "호출할 때마다 같은 값이 0이 됩니다. forward를 부를 때마다 torch.rand_like(x)로 새 무작위 마스크를 만드세요.",
        "The same values are zero in each call. Draw a new random mask in each call of forward, with "
        "torch.rand_like(x).",
    ),
    "same-mask": Words(
        "배치의 모든 문장에 같은 마스크를 썼습니다. 문장마다 다른 값을 빼야 서로 다른 예에서 배웁니다. 마스크는 x와 "
        "같은 모양이어야 합니다.",
        "All sequences of the batch have the same mask. They should lose different values, so the mask needs the "
        "shape of x.",
    ),
    "shared-mask": Words(
        "마스크가 위치나 특징마다 같습니다. 각 값을 따로 정하도록 마스크를 x와 같은 모양으로 만드세요.",
        "The mask is the same for all positions, or for all features. Each value is decided by itself: the mask "
        "needs the shape of x.",
    ),
    "p-reversed": Words(
        "p = {p}인데 {share:.0%}가 0이 되었습니다. p는 남길 확률이 아니라 0으로 만들 확률입니다.",
        "For p = {p}, {share:.0%} of the values are zero. p is the probability of a zero, not of keeping a value.",
    ),
    "share": Words(
        "p = {p}인데 {share:.0%}가 0이 되었습니다. torch.rand는 0과 1 사이에서 고르게 나오는 수입니다. torch.randn은 "
        "정규분포입니다.",
        "For p = {p}, {share:.0%} of the values are zero. torch.rand is uniform between 0 and 1; torch.randn is "
        "normal.",
    ),
}


def _require_random(layer: Any, x: Tensor, first: Tensor, second: Tensor, p: float) -> None:
    zero = first == 0
    share = zero.float().mean().item()
    if share in (0, 1):
        require(
            not any((layer(x) == 0).float().mean().item() == 1 - share for _ in range(12)),
            WHY_RANDOM["one-choice"],
            mistake="one-choice",
        )
    require(share > 0, WHY_RANDOM["inactive"], mistake="inactive")
    require(not torch.equal(zero, second == 0), WHY_RANDOM["fixed-mask"], mistake="fixed-mask")
    require(not torch.equal(zero, zero[:1].expand_as(zero)), WHY_RANDOM["same-mask"], mistake="same-mask")
    require(
        not torch.equal(zero, zero[:, :1].expand_as(zero)) and not torch.equal(zero, zero[..., :1].expand_as(zero)),
        WHY_RANDOM["shared-mask"],
        mistake="shared-mask",
    )
    require(
        abs(share - (1 - p)) > 0.05,
        WHY_RANDOM["p-reversed"],
        mistake="p-reversed",
        p=p,
        share=share,
    )
    require(
        abs(share - p) < 0.05,
        WHY_RANDOM["share"],
        mistake="share",
        p=p,
        share=share,
    )


def block(code: Code) -> Steps:
    """A pre-norm block, equal to the production block, with dropout in three places."""
    own = code.module("Block", 12, 3, 0.0)
    right = _production_block()
    fill(right)
    require(
        getattr(own, "attention_norm", None) is None or own.attention_norm is not getattr(own, "mlp_norm", None),
        Words(
            "attention_norm과 mlp_norm이 같은 층입니다. 어텐션과 MLP는 서로 다른 크기의 입력이 필요하므로 "
            "LayerNorm을 두 개 만드세요.",
            "attention_norm and mlp_norm are the same layer. Attention and MLP need inputs of different sizes: "
            "create two LayerNorm.",
        ),
        mistake="shared-norm",
    )
    copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
    yield Words("필요한 층이 모두 있습니다.", "All layers are there.")
    x = hidden(2, 5, 12)
    with torch.no_grad():
        right.mlp = _activation_of(own.mlp, right.mlp)  # type: ignore[arg-type]
        own.eval()
        require_earlier("output_projection", own.attention(x, causal=True), right.attention(x, causal=True))
        require_earlier("layer_norm", own.attention_norm(x), right.attention_norm(x))
        require_earlier("mlp", own.mlp(x), right.mlp(x))
        kept = x.clone()
        result = require_tensor(own(kept))
        try:
            compare(result, right(x), *_block_mistakes(right, x), letters="(B, T, C)")
        except Wrong as wrong:
            if wrong.mistake:
                raise
            _name_the_line(own, right, x)
            raise
        _require_unchanged(kept, x)
        yield Words("결과가 jumok의 블록과 같습니다.", "The result is equal to that of jumok's block.")
        _require_dropout(code.module("Block", 12, 3, 0.5))
    yield Words("드롭아웃이 세 곳에 모두 있습니다.", "Dropout stands in all three places.")


def _name_the_line(own: Any, right: Block, x: Tensor) -> None:
    """Explain a result that is no known mistake: say which of the two lines makes it, with the other part silent."""
    for silent, line, mistake in (
        ("mlp.down_proj", "x = x + drop(attention(attention_norm(x)))", "attention-line"),
        ("attention.o_proj", "x = x + drop(mlp(mlp_norm(x)))", "mlp-line"),
    ):
        fill(right)
        for parameter in right.get_submodule(silent).parameters():
            parameter.zero_()
        copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
        require(same(require_tensor(own(x.clone())), right(x)), LINE, mistake=mistake, line=line)


LINE = Words(
    "다음 줄이 다른 것을 계산합니다: {line}. 정규화한 x를 어디에 주는지, 무엇을 더하는지 확인하세요.",
    "This line computes something else: {line}. Check what gets the normalised x, and what is added.",
)


def _production_block() -> Block:
    return Block(
        BlockConfig(width=12, n_head=3, n_kv_head=3, head_dim=4, mlp_width=48, activation="gelu_tanh"), causal=True
    )


WHY_BLOCK = {
    "post-norm": Words(
        "더한 뒤에 정규화했습니다. 이것은 2017년 논문과 BERT의 post-norm입니다. 정규화가 잔차 연결의 경로에 있으면 "
        "층이 많을 때 웜업 없이는 학습이 불안정합니다. 어텐션과 MLP의 입력만 정규화하세요.",
        "The norm follows the sum. This is the post-norm of the 2017 paper and of BERT. With a norm on the residual "
        "path, deep models do not train stably without warm-up. Normalise only the inputs of attention and MLP.",
    ),
    "no-residual": Words(
        "잔차 연결이 빠졌습니다. 어텐션의 결과와 MLP의 결과를 각각 x에 더하세요. 더하지 않으면 x의 정보가 사라지고 "
        "기울기가 아래층에 전달되지 않습니다.",
        "A residual connection is missing. Add the results of attention and MLP to x, each of them. Otherwise the "
        "information in x is lost, and the gradient does not reach the lower layers.",
    ),
    "one-norm": Words(
        "두 정규화 층 중 하나를 두 번 썼거나 서로 바꾸어 썼습니다. 어텐션 앞은 attention_norm, MLP 앞은 "
        "mlp_norm입니다.",
        "One of the two norms is used twice, or they are exchanged. attention_norm stands before the attention, "
        "mlp_norm before the MLP.",
    ),
    "adds-normed": Words(
        "정규화한 x에 더했습니다. 그러면 x의 원래 값이 블록마다 사라집니다. 정규화한 값은 어텐션과 MLP에만 주고, "
        "정규화하지 않은 x에 더하세요.",
        "The result is added to the normalised x, so each block loses the original one. Give the normalised x only "
        "to attention and MLP, and add to x itself.",
    ),
    "no-norm": Words(
        "정규화가 빠졌습니다. x에는 층마다 값이 더해져 커지므로, 어텐션과 MLP의 입력을 각각 정규화해야 합니다.",
        "A norm is missing. Each layer adds to x, and its values grow. The inputs of both attention and MLP must be "
        "normalised.",
    ),
    "mlp-without-x": Words(
        "MLP가 어텐션의 결과만 받고 x를 받지 않았습니다. 어텐션의 결과를 x에 먼저 더하고, 그 합을 정규화하여 MLP에 "
        "주세요.",
        "The MLP gets the result of the attention without x. First add that result to x, then give the normalised "
        "sum to the MLP.",
    ),
    "norm-of-result": Words(
        "어텐션과 MLP의 입력이 아니라 결과를 정규화했습니다. x는 층마다 커지므로 정규화해야 하는 것은 입력입니다: "
        "f(norm(x))",
        "The results of attention and MLP are normalised, not their inputs. x grows from layer to layer, so the "
        "input needs the norm: f(norm(x))",
    ),
    "parallel": Words(
        "MLP가 어텐션 이전의 x를 받았습니다. 그러면 MLP가 어텐션이 모은 정보를 변환할 수 없습니다. 어텐션의 결과를 "
        "더한 x를 주세요.",
        "The MLP gets the x from before the attention, and cannot transform what the attention has gathered. Give it "
        "the x to which the result of the attention has been added.",
    ),
    "mlp-first": Words(
        "MLP를 어텐션보다 먼저 적용했습니다. 순서는 어텐션, MLP입니다.",
        "The MLP comes before the attention. The attention comes first.",
    ),
}


def _block_mistakes(right: Block, x: Tensor) -> list[Mistake]:
    assert right.mlp is not None
    assert right.mlp_norm is not None
    norm, mlp_norm, feed = right.attention_norm, right.mlp_norm, right.mlp

    def attention(y: Tensor) -> Tensor:
        return right.attention(y, causal=True)

    def finish(y: Tensor) -> Tensor:
        return y + feed(mlp_norm(y))

    middle = x + attention(norm(x))
    seeing = x + right.attention(norm(x))
    post = norm(x + attention(x))
    normed, lost = norm(x), attention(norm(x))
    swapped = x + attention(mlp_norm(x))
    from_norm = normed + attention(normed)
    return [
        Mistake("not-causal", finish(seeing), NOT_CAUSAL),
        Mistake(
            "post-norm",
            any_of(mlp_norm(post + feed(post)), mlp_norm(middle + feed(middle)), norm(finish(middle))),
            WHY_BLOCK["post-norm"],
        ),
        Mistake(
            "no-residual", any_of(finish(lost), feed(mlp_norm(middle)), feed(mlp_norm(lost))), WHY_BLOCK["no-residual"]
        ),
        Mistake(
            "one-norm",
            any_of(middle + feed(norm(middle)), finish(swapped), swapped + feed(norm(swapped))),
            WHY_BLOCK["one-norm"],
        ),
        Mistake(
            "adds-normed",
            any_of(
                finish(from_norm),
                mlp_norm(middle) + feed(mlp_norm(middle)),
                mlp_norm(from_norm) + feed(mlp_norm(from_norm)),
            ),
            WHY_BLOCK["adds-normed"],
        ),
        Mistake(
            "no-norm",
            any_of(finish(x + attention(x)), middle + feed(middle), (y := x + attention(x)) + feed(y)),
            WHY_BLOCK["no-norm"],
        ),
        Mistake("norm-of-result", (w := x + norm(attention(x))) + mlp_norm(feed(w)), WHY_BLOCK["norm-of-result"]),
        Mistake("mlp-without-x", x + lost + feed(mlp_norm(lost)), WHY_BLOCK["mlp-without-x"]),
        Mistake("parallel", middle + feed(mlp_norm(x)), WHY_BLOCK["parallel"]),
        Mistake("mlp-first", (z := x + feed(mlp_norm(x))) + attention(norm(z)), WHY_BLOCK["mlp-first"]),
    ]


NOT_CAUSAL = Words(
    "어텐션에 인과 마스크가 없어 미래 토큰을 참조합니다. 정답인 다음 토큰이 보이므로 학습 손실은 아주 낮아지지만, "
    "생성할 때는 미래 토큰이 없어 모델이 쓸모없어집니다. causal=True를 주세요.",
    "The attention has no causal mask and sees future tokens. The next token is the target: the training loss "
    "becomes very low, but in generation there are no future tokens, and the model is useless. Pass causal=True.",
)


def _require_dropout(own: Any) -> None:
    """Check the three places of dropout, each with the other parts set to zero."""
    own.train()
    x = hidden(4, 10, 12)
    fill(own, scale=0.5)
    for silent, mistake, words in (
        (own.mlp.down_proj, "no-attention-dropout", ATTENTION_DROPOUT),
        (own.attention.o_proj, "no-mlp-dropout", MLP_DROPOUT),
    ):
        fill(own, scale=0.5)
        for parameter in silent.parameters():
            parameter.zero_()
        result = require_tensor(own(x.clone()))
        require(
            bool((result != 0).float().mean() > 0.9),
            Words(
                "x에 더한 뒤에 드롭아웃을 적용했습니다. 그러면 잔차 연결의 경로에서 x의 값이 블록마다 0이 됩니다. "
                "어텐션과 MLP의 결과에만 적용하고 더하세요.",
                "Dropout is applied after the sum. Values of x on the residual path then become zero in each block. "
                "Apply it only to the results of attention and MLP, and add.",
            ),
            mistake="dropout-on-sum",
        )
        require(bool(((result - x).abs() < 1e-6).float().mean() > 0.3), words, mistake=mistake)
    fill(own, scale=0.5)
    for layer in (own.mlp.down_proj, own.attention.v_proj):
        layer.weight.zero_()
    own.mlp.down_proj.bias.zero_()
    added = own(x.clone()) - x  # all values are equal: without dropout the weighted mean is the same at each position
    columns = [c[c.abs() > 1e-5] for c in added.flatten(0, 1).T]
    require(
        any(len(c) and (c.max() - c.min()).item() > 1e-4 for c in columns),
        Words(
            "어텐션 가중치에 드롭아웃이 없습니다. MultiHeadAttention을 만들 때 dropout=dropout을 넘기세요.",
            "The attention weights have no dropout. Pass dropout=dropout when you create MultiHeadAttention.",
        ),
        mistake="no-weight-dropout",
    )


ATTENTION_DROPOUT = Words(
    "어텐션의 결과에 드롭아웃이 없습니다. x에 더하기 전에 self.drop을 적용하세요.",
    "The result of the attention has no dropout. Apply self.drop before it is added to x.",
)
MLP_DROPOUT = Words(
    "MLP의 결과에 드롭아웃이 없습니다. x에 더하기 전에 self.drop을 적용하세요.",
    "The result of the MLP has no dropout. Apply self.drop before it is added to x.",
)
