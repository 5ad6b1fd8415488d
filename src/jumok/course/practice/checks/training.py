"""Checks of the exercises on batches, the loss, the training step, the learning rate and the optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW
from torch.utils.flop_counter import FlopCounterMode

from jumok.config import TrainConfig
from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    raises,
    require,
    require_number,
    require_shape,
    require_tensor,
    require_tensors,
    result_of,
)
from jumok.course.practice.course import Words
from jumok.training.optim import orthogonal, rate

# --- get_batch ---


def get_batch(code: Code) -> Steps:
    """Windows at random places, and the tokens one place later."""
    function = code.function("get_batch")
    draw = _Windows(function, tokens=300, cut=200)
    starts = draw(16, 8)
    yield Words(
        "x는 텍스트에서 자른 것이고 y는 한 칸 뒤의 토큰입니다.", "x is cut from the text, and y is one place later."
    )
    require(
        len(starts) > 1,
        Words(
            "모든 행이 같은 위치에서 시작합니다. 같은 내용을 {rows}번 학습하는 것과 같습니다. 시작 위치를 행마다 따로 "
            "고르세요: torch.randint(..., (batch_size,)).",
            "All rows start at the same place, so the model reads the same tokens {rows} times. Choose one start for "
            "each row: torch.randint(..., (batch_size,)).",
        ),
        mistake="same-window",
        rows=16,
    )
    require(
        starts != draw(16, 8) or starts != draw(16, 8),
        Words(
            "부를 때마다 같은 배치가 나옵니다. 모델은 텍스트의 이 부분만 보게 됩니다. 시작 위치를 무작위로 고르고, "
            "함수 안에서 시드를 정하지 마세요.",
            "Each call returns the same batch, so the model sees only this part of the text. Choose the starts at "
            "random, and set no seed inside the function.",
        ),
        mistake="not-random",
    )
    yield Words("시작 위치가 무작위입니다.", "The starts are random.")
    yield from _the_right_part(function)


def _the_right_part(function: Callable[..., Any]) -> Steps:
    leak = Words(
        "학습용 배치에 검증용 부분의 토큰이 있습니다. 모델이 이것을 학습하면 검증 손실은 처음 보는 텍스트의 손실이 "
        "아닙니다.",
        "A training batch contains tokens of the held-out part. Once the model has trained on them, the validation "
        "loss is not the loss on new text.",
    )
    swapped = Words(
        "held_out=True인데 학습용 부분에서 잘랐습니다. 그러면 과적합이 검증 손실에 나타나지 않습니다.",
        "With held_out=True the batch still comes from the training part. Overfitting would not show in the "
        "validation loss.",
    )
    draw = _Windows(function, tokens=300, cut=100)
    require(max(draw(64, 8)) < 100, leak, mistake="leak")
    require(min(draw(64, 8, held_out=True)) >= 100, swapped, mistake="not-held-out")
    yield Words("학습용과 검증용 부분이 섞이지 않습니다.", "The training part and the held-out part stay apart.")
    short = _Windows(function, tokens=22, cut=11)  # a window of 8 tokens and the token after it fit at three places
    for held_out, first in ((False, 0), (True, 11)):
        starts = {start for _ in range(8) for start in short(16, 8, held_out=held_out)}
        require(max(starts) <= first + 2, _BEYOND, mistake="beyond-the-end")
        require(
            len(starts) == 3,
            Words(
                "토큰이 11개이고 T가 8이면 시작 위치는 0, 1, 2의 세 가지인데, 나온 것은 {found}입니다. randint의 위쪽 "
                "끝은 포함되지 않습니다.",
                "With 11 tokens and T = 8 there are three starts, 0, 1 and 2, but only {found} occur. The upper end of "
                "randint is not included.",
            ),
            mistake="start-never-drawn",
            found=sorted(start - first for start in starts),
        )
    yield Words(
        "모든 창이 텍스트 안에 있고, 마지막 창도 나옵니다.", "All windows are inside the text, and the last one occurs."
    )


_BEYOND = Words(
    "창이 끝을 넘습니다. 시작 위치가 i이면 y의 마지막 토큰은 i + T번입니다. 그래서 토큰이 n개일 때 i는 n - T보다 "
    "작아야 합니다.",
    "A window goes beyond the end. If it starts at i, the last token of y is number i + T. So with n tokens, i must "
    "be less than n - T.",
)


class _Windows:
    """Draws batches from a text whose tokens are all different, which tells the place of each."""

    def __init__(self, function: Callable[..., Any], *, tokens: int, cut: int) -> None:
        self._function, self._cut = function, cut
        self._ids = torch.randperm(tokens, generator=torch.Generator().manual_seed(tokens))  # not in order
        self._place_of = self._ids.argsort()

    def __call__(self, rows: int, length: int, held_out: bool = False) -> list[int]:
        """The different starts of the windows of a batch, rising.

        Raises:
            Wrong: x or y is not a window.
        """
        made = raises(
            _BEYOND,
            lambda: self._function(self._ids.clone(), self._cut, rows, length, held_out),
            mistake="beyond-the-end",
            text=("stack expects each tensor to be equal size", "IndexError", "exceeds dimension size"),
        )
        x, y = require_tensors(made, 2)
        require(
            not x.is_floating_point(),
            Words(
                "토큰 id가 실수입니다. 임베딩은 정수 id만 받습니다.", "The ids are floats. An embedding needs integers."
            ),
            mistake="float-ids",
        )
        for tensor in (x, y):
            require_shape(tensor, (rows, length), "(B, T)")
        places, after = self._place_of[x], self._place_of[y]
        require(bool((places.diff() == 1).all()), _SCATTERED, mistake="scattered")
        require(not torch.equal(x, y), _UNSHIFTED, mistake="not-shifted")
        require(not torch.equal(after, places - 1), _BACKWARDS, mistake="shifted-backwards")
        inside = places[:, -1] + 1 < len(self._ids)
        require(bool(inside.all()), _BEYOND, mistake="beyond-the-end")
        require(
            torch.equal(after, places + 1),
            Words(
                "y[b, t]가 텍스트에서 x[b, t] 바로 뒤에 있는 토큰이 아닙니다. x와 y에 같은 시작 위치를 쓰세요.",
                "y[b, t] is not the token after x[b, t] in the text. Use the same starts for x and y.",
            ),
            mistake="other-starts",
        )
        return sorted({int(start) for start in places[:, 0]})


_SCATTERED = Words(
    "x의 한 행이 텍스트에서 이어진 토큰이 아닙니다. 토큰마다가 아니라 행마다 위치를 하나 고르고, 거기서 T개를 "
    "자르세요.",
    "A row of x is not a run of consecutive tokens. Choose one place for each row, not for each token, and cut T "
    "tokens from there.",
)
_UNSHIFTED = Words(
    "y가 x와 같습니다. 모델은 입력을 그대로 출력하는 것만 학습하므로 손실이 0에 가까워져도 글을 쓰지 못합니다. y를 한 "
    "칸 뒤에서 자르세요.",
    "y equals x. The model would learn to copy its input: the loss gets near 0, but the model cannot write. Cut y one "
    "place later.",
)
_BACKWARDS = Words(
    "y가 한 칸 앞의 토큰입니다. 모델이 다음 토큰이 아니라 이미 본 토큰을 예측하게 됩니다.",
    "y is one place earlier. The model would predict a token that it has seen already, not the next one.",
)


# --- cross_entropy ---


def cross_entropy(code: Code) -> Steps:
    """The mean negative log-probability of the targets, also for large logits."""
    function = code.function("cross_entropy")
    logits, targets = hidden(3, 5, 7, scale=2), torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
    right = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    compare(function(logits.clone(), targets.clone()), right, *_wrong_losses(logits, targets, right))
    yield Words("손실이 F.cross_entropy와 같습니다.", "The loss equals that of F.cross_entropy.")
    high = logits + 1000 * torch.arange(1, 6)[:, None]  # each position at another height
    require(
        math.isfinite(require_number(function(high.clone(), targets.clone()))),
        Words(
            "로짓이 1000 이상이면 exp가 무한대가 되어 손실이 무한대나 NaN입니다. 각 행의 최댓값을 먼저 빼세요.",
            "For logits of 1000 and more, exp is infinite, and the loss is infinite or NaN. Subtract the maximum of "
            "each row first.",
        ),
        mistake="overflow",
    )
    far = logits * 100
    small = require_number(function(far.clone(), targets.clone()))
    limit = 0.9 * F.cross_entropy(far.flatten(0, 1), targets.flatten()).item()
    require(not math.isfinite(small) or small > limit, _EPSILON_IN_LOG, mistake="epsilon-in-log", given=small)
    require(
        math.isfinite(require_number(function(far.clone(), targets.clone()))),
        Words(
            "정답의 확률이 아주 작으면 소프트맥스의 결과가 0이고, log 0은 -∞입니다. 확률을 구하지 말고 로그 확률을 "
            "바로 구하세요: z - m - log(exp(z - m)의 합).",
            "If the correct token has a very small probability, the softmax gives 0, and log 0 is -∞. Do not compute "
            "the probability. Compute its logarithm directly: z - m - log(sum of exp(z - m)).",
        ),
        mistake="log-of-zero",
    )
    compare(function(high.clone(), targets.clone()), right, tolerance=1e-3)
    compare(function(far.clone(), targets.clone()), F.cross_entropy(far.flatten(0, 1), targets.flatten()))
    yield Words("큰 로짓에서도 유한합니다.", "It is finite for large logits.")
    given = logits.clone().requires_grad_()
    loss = require_tensor(function(given, targets.clone()))
    require(
        loss.requires_grad,
        Words(
            "손실에 계산 그래프가 없습니다. item(), detach(), torch.no_grad() 없이 계산해야 backward를 부를 수 "
            "있습니다.",
            "The loss has no computation graph. backward needs one: compute the loss without item(), detach() and "
            "torch.no_grad().",
        ),
        mistake="detached",
    )
    loss.backward()
    expected = (logits.softmax(-1) - F.one_hot(targets, 7)) / targets.numel()
    compare(given.grad, expected)
    yield Words("기울기도 맞습니다.", "The gradient is right, too.")


def _wrong_losses(logits: Tensor, targets: Tensor, right: Tensor) -> Iterator[Mistake]:
    count, vocab = targets.numel(), logits.shape[-1]

    def of_targets(values: Tensor) -> Tensor:
        return values.gather(-1, targets[..., None])[..., 0]

    probability = of_targets(logits.softmax(-1))  # (B, T)
    log_probability = probability.log()
    largest = logits.max(-1).values  # (B, T)
    yield Mistake("no-log", -probability.mean(), _NO_LOG)
    yield Mistake("no-minus", -right, _NO_MINUS)
    yield Mistake("sum", right * count, _SUM)
    yield Mistake("sum-over-time", right * logits.shape[1], _SUM)
    yield Mistake("no-mean", -log_probability, _NO_MEAN)
    yield Mistake("mean-over-vocabulary", right / vocab, _MEAN_OVER_VOCABULARY)
    yield Mistake("all-tokens", -logits.log_softmax(-1).mean(), _ALL_TOKENS)
    yield Mistake("dimension", -of_targets(logits.log_softmax(1)).mean(), _DIMENSION)
    yield Mistake("logits-only", -of_targets(logits).mean(), _LOGITS_ONLY)
    yield Mistake("maximum-on-one-side", (right - largest.mean()), _ONE_SIDE)
    yield Mistake("maximum-on-one-side", (right + largest.mean()), _ONE_SIDE)
    yield Mistake("all-pairs", -logits.log_softmax(-1)[..., targets].mean(), _ALL_PAIRS)
    yield Mistake("bits", right / math.log(2), _BITS)


_NO_LOG = Words(
    "확률의 평균에 음수를 취했습니다. 로그가 빠졌습니다. 로그가 있어야 정답의 확률이 0에 가까울 때 손실이 아주 "
    "커집니다.",
    "This is the negative mean of the probabilities: the logarithm is missing. Because of the logarithm, the loss is "
    "very large when the correct token has a probability near 0.",
)
_NO_MINUS = Words(
    "부호가 반대입니다. 로그 확률은 0 이하이므로 음수를 취해야, 예측이 나쁠수록 손실이 커집니다.",
    "The sign is wrong. A log-probability is at most 0. Its negative is larger the worse the prediction is.",
)
_SUM = Words(
    "평균이 아니라 합입니다. 합은 배치와 컨텍스트가 길수록 커지므로, 배치 크기를 바꾸면 스텝의 크기도 바뀝니다.",
    "This is a sum, not the mean over all tokens. A sum grows with the batch and the context, so a change of the "
    "batch size would change the size of the steps.",
)
_NO_MEAN = Words(
    "토큰마다 손실이 하나씩 있습니다. backward는 수 하나에서 시작하므로 모든 토큰에 대해 평균하세요.",
    "The result has one loss for each token. backward begins with a single number, so take the mean over all tokens.",
)
_MEAN_OVER_VOCABULARY = Words(
    "손실이 어휘의 크기로 한 번 더 나누어졌습니다. 원-핫을 곱한 뒤 어휘 차원까지 평균했기 때문입니다. 어휘 차원은 "
    "더하고, 토큰만 평균하세요.",
    "The loss is divided by the size of the vocabulary as well: mean() also ran over the vocabulary. Pick the correct "
    "token (or sum over the vocabulary), and average over tokens only.",
)
_ALL_TOKENS = Words(
    "어휘의 모든 토큰의 로그 확률을 평균했습니다. 손실에는 정답 토큰의 로그 확률만 들어갑니다. gather로 고르세요.",
    "This averages the log-probabilities of all tokens of the vocabulary. Only that of the correct token belongs to "
    "the loss. Pick it with gather.",
)
_DIMENSION = Words(
    "소프트맥스가 위치 차원(T)에 있습니다. 확률은 어휘 차원에서 합이 1이어야 합니다. 어휘는 마지막 차원입니다.",
    "The softmax runs over the positions (T). Probabilities sum to one over the vocabulary, which is the last "
    "dimension.",
)
_LOGITS_ONLY = Words(
    "정답의 로짓만 평균했습니다. log(exp(z)의 합)을 빼야 로그 확률이 됩니다. 그것이 없으면 모든 로짓을 키우기만 해도 "
    "손실이 줄어듭니다.",
    "This is the mean logit of the correct tokens. It becomes a log-probability when log(sum of exp(z)) is subtracted. "
    "Without that, larger logits for all tokens would lower the loss.",
)
_ONE_SIDE = Words(
    "최댓값 m을 한쪽에만 뺐습니다. log(exp(z - m)의 합)에는 m을 다시 더하거나, 정답의 로짓에서도 m을 빼세요.",
    "The maximum m is subtracted on one side only. Add m to log(sum of exp(z - m)) again, or subtract it from the "
    "logit of the correct token as well.",
)
_EPSILON_IN_LOG = Words(
    "아주 나쁜 예측의 손실이 {given:.1f}밖에 되지 않습니다. 로그 안에 더한 작은 수나 clamp가 손실의 위쪽을 막아 "
    "기울기가 없어집니다. 로그 확률을 로짓에서 바로 구하면 필요 없습니다.",
    "The loss of very bad predictions is only {given:.1f}. A small number added inside the log, or a clamp, limits "
    "the loss, and its gradient vanishes. Neither is needed if the log-probability is computed directly from the "
    "logits.",
)
_ALL_PAIRS = Words(
    "[..., targets]는 모든 위치에서 모든 정답을 고르므로 모양이 (B, T, B, T)입니다. 위치마다 자기 정답 하나만 "
    "고르려면 gather를 쓰세요.",
    "[..., targets] picks all targets at each position, which gives the shape (B, T, B, T). gather picks the one "
    "target of each position.",
)
_BITS = Words(
    "단위가 비트입니다. log2가 아니라 자연로그 torch.log를 쓰세요.",
    "The unit is bits. Use the natural logarithm torch.log, not log2.",
)


# --- training_step ---


class _Model(nn.Module):
    """A bigram model that notes the order of calls."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.table = nn.Parameter(hidden(vocab, vocab, seed=3))
        self.happened: list[str] = []
        self.table.register_post_accumulate_grad_hook(lambda _: self.happened.append("backward"))

    def forward(self, ids: Tensor) -> Tensor:
        self.happened.append("train" if self.training else "eval")
        return self.table[ids]


class _Optimizer(SGD):
    """SGD that keeps the gradient with which it stepped."""

    def __init__(self, model: _Model) -> None:
        super().__init__(model.parameters(), lr=0.5)
        self._model = model
        self.gradient: Tensor | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update, and note it."""
        self._model.happened.append("step")
        gradient = self._model.table.grad
        self.gradient = None if gradient is None else gradient.clone()
        super().step()


def training_step(code: Code) -> Steps:
    """One step, by what happened in which order, and by the gradient with which the optimizer stepped."""
    function = code.function("training_step")
    vocab, old = 6, 0.7
    x, y = (torch.randint(vocab, (2, 5), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    right = _Model(vocab)
    loss = F.cross_entropy(right(x).flatten(0, 1), y.flatten())
    loss.backward()
    gradient = right.table.grad
    assert gradient is not None

    def run(clip: float) -> tuple[object, _Model, _Optimizer]:
        model = _Model(vocab).eval()
        optimizer = _Optimizer(model)
        model.table.grad = torch.full_like(model.table, old)
        return _explained_step(lambda: function(model, optimizer, x.clone(), y.clone(), clip)), model, optimizer

    given, model, optimizer = run(clip=1e6)
    _require_order(model.happened)
    yield Words("스텝의 순서가 맞습니다.", "The order of the step is right.")
    if optimizer.gradient is None:
        raise Wrong(_CLEARED, mistake="zero-after-backward")
    compare(optimizer.gradient, gradient, *_wrong_gradients(right.table.detach(), gradient, old, x, y))
    yield Words("기울기가 이번 배치의 것입니다.", "The gradient is that of this batch.")
    _require_loss(given, loss.item())
    yield Words("돌려준 손실이 맞습니다.", "The returned loss is right.")
    clip = gradient.norm().item() / 3
    _, _, optimizer = run(clip)
    compare(
        optimizer.gradient,
        gradient / 3,
        Mistake("no-clip", gradient, _NO_CLIP, {"norm": gradient.norm().item(), "clip": clip}),
        Mistake("clip-each-value", gradient.clamp(-clip, clip), _CLIP_EACH),
        tolerance=1e-4,
    )
    yield Words("기울기의 노름을 제한합니다.", "The norm of the gradient is limited.")


def _wrong_gradients(table: Tensor, gradient: Tensor, old: float, x: Tensor, y: Tensor) -> Iterator[Mistake]:
    def of(loss: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            leaf = table.clone().requires_grad_()
            return torch.autograd.grad(loss(leaf), leaf)[0]

    def entropy(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    yield Mistake("no-zero-grad", gradient + old, _NO_ZERO_GRAD)
    yield Mistake("sum-of-losses", gradient * x.numel(), _SUM)
    yield Mistake("softmax-twice", of(lambda leaf: entropy(leaf[x].softmax(-1), y)), _SOFTMAX_TWICE)
    yield Mistake("shifted-twice", of(lambda leaf: entropy(leaf[x][:, :-1], y[:, 1:])), _SHIFTED_TWICE)
    yield Mistake("input-as-target", of(lambda leaf: entropy(leaf[x], x)), _INPUT_AS_TARGET)
    yield Mistake("last-position-only", of(lambda leaf: F.cross_entropy(leaf[x][:, -1], y[:, -1])), _LAST_POSITION)


def _explained_step(call: Callable[[], object]) -> object:
    def shaped() -> object:
        return raises(_TARGETS, call, mistake="targets-shape", text=("Expected target size", "Expected floating point"))

    return raises(
        _ITEM_FIRST, shaped, mistake="item-before-backward", text="'float' object has no attribute 'backward'"
    )


def _require_order(happened: list[str]) -> None:
    """Check the order: the forward pass in training mode, backward, step."""
    missing = Words("모델을 부르지 않았습니다: model(x).", "The model was not called: model(x).")
    require("train" in happened or "eval" in happened, missing, mistake="no-forward")
    require("backward" in happened, _NO_BACKWARD, mistake="no-backward")
    require("step" in happened, _NO_STEP, mistake="no-step")
    require(happened.index("backward") < happened.index("step"), _STEP_FIRST, mistake="step-before-backward")
    require("eval" not in happened, _EVAL, mistake="eval-mode")


def _require_loss(given: object, right: float) -> None:
    """Check that the loss was returned, as a Python number."""
    require(not isinstance(given, Tensor), _TENSOR, mistake="tensor-returned")
    compare(torch.tensor(require_number(given)), torch.tensor(right))


_TARGETS = Words(
    "F.cross_entropy는 두 번째 차원이 어휘라고 봅니다. 로짓을 (B·T, V)로, y를 (B·T)로 펴서 넘기세요.",
    "F.cross_entropy takes the second dimension as the vocabulary. Flatten the logits to (B·T, V) and y to (B·T).",
)
_ITEM_FIRST = Words(
    "item()이 손실을 파이썬 수로 바꾸어 계산 그래프가 없어졌습니다. backward를 먼저 부르고 item()은 마지막에 쓰세요.",
    "item() made a Python number of the loss, which has no computation graph. Call backward first, and item() at the "
    "end.",
)
_NO_BACKWARD = Words(
    "backward가 불리지 않아 기울기가 없습니다. loss.backward()에 괄호가 있는지도 보세요. 옵티마이저는 "
    "기울기만 보고 파라미터를 바꿉니다.",
    "backward was not called (did you write the brackets of loss.backward()?), so there are no gradients. The "
    "optimizer changes the parameters by their gradients only.",
)
_NO_STEP = Words(
    "optimizer.step()이 불리지 않아 파라미터가 그대로입니다. 괄호가 있는지, 받은 optimizer를 썼는지 보세요.",
    "optimizer.step() was not called, so the parameters did not change. Check the brackets, and use the optimizer that "
    "is given.",
)
_STEP_FIRST = Words(
    "step이 backward보다 먼저입니다. 옵티마이저가 이전 배치의 기울기로 갱신하거나, 기울기가 없어 아무것도 하지 "
    "않습니다.",
    "step comes before backward. The optimizer then uses the gradients of an earlier batch, or has none and does "
    "nothing.",
)
_EVAL = Words(
    "모델이 평가 모드입니다. 드롭아웃이 꺼진 채로 학습하게 됩니다. 시작할 때 model.train()을 부르세요(괄호까지).",
    "The model is in eval mode, so dropout is off during training. Call model.train() at the start, with the brackets.",
)
_CLEARED = Words(
    "backward 뒤에 기울기를 지웠으므로 step이 쓸 것이 없습니다. zero_grad는 backward 앞에 부르세요.",
    "The gradients were cleared after backward, so step has nothing to use. Call zero_grad before backward.",
)
_NO_ZERO_GRAD = Words(
    "이전 기울기가 남아 있습니다. backward는 기울기를 덮어쓰지 않고 더합니다. backward 앞에 "
    "optimizer.zero_grad()를 부르세요.",
    "The old gradients are still there. backward adds to the gradients and does not replace them. Call "
    "optimizer.zero_grad() before backward.",
)
_SOFTMAX_TWICE = Words(
    "F.cross_entropy에 확률을 넘겼습니다. 이 함수는 안에서 소프트맥스를 취하므로 두 번 취한 것이 됩니다. 오류 없이 "
    "아주 느리게 학습합니다. 로짓을 그대로 넘기세요.",
    "F.cross_entropy was given probabilities. It takes the softmax itself, so the softmax is taken twice. That raises "
    "no error, but the model learns very slowly. Give it the logits.",
)
_SHIFTED_TWICE = Words(
    "y를 한 칸 더 밀었습니다. get_batch의 y는 이미 한 칸 뒤의 토큰이므로, 그러면 모델은 두 칸 뒤를 예측합니다. "
    "logits와 y를 그대로 비교하세요.",
    "y is shifted once more. The y of get_batch is one place later already, so the model would predict two places "
    "ahead. Compare logits and y as they are.",
)
_INPUT_AS_TARGET = Words(
    "손실을 y가 아니라 x와 비교했습니다. 모델이 입력을 그대로 출력하는 것을 배웁니다.",
    "The loss compares with x, not with y. The model would learn to copy its input.",
)
_LAST_POSITION = Words(
    "마지막 위치의 손실만 구했습니다. 모든 위치가 자기 다음 토큰을 예측하므로, 한 창에서 T개를 배울 수 있습니다.",
    "The loss is that of the last position only. Every position predicts its next token, so a window has T of them to "
    "learn from.",
)
_TENSOR = Words(
    "손실을 텐서로 돌려주었습니다. 손실을 목록에 모으면 모든 스텝의 계산 그래프가 메모리에 남습니다. loss.item()을 "
    "돌려주세요.",
    "The loss is returned as a tensor. In a list of losses, the graph of each step would stay in memory. Return "
    "loss.item().",
)
_NO_CLIP = Words(
    "갱신할 때 기울기의 노름이 {norm:.3f}이고 clip은 {clip:.3f}입니다. clip_grad_norm_을 backward와 step 사이에서 "
    "부르세요. 그 앞에는 기울기가 없고, 그 뒤에는 이미 갱신했습니다.",
    "At the update the norm of the gradient is {norm:.3f}, and clip is {clip:.3f}. Call clip_grad_norm_ between "
    "backward and step: before backward there are no gradients, and after step the update is done.",
)
_CLIP_EACH = Words(
    "값을 하나씩 잘랐습니다(clip_grad_value_). 그러면 기울기의 방향이 바뀝니다. clip_grad_norm_은 방향을 두고 "
    "길이만 줄입니다.",
    "Each value was clipped by itself (clip_grad_value_), which changes the direction of the gradient. "
    "clip_grad_norm_ keeps the direction, and only reduces the length.",
)


# --- learning_rate ---


def learning_rate(code: Code) -> Steps:
    """The schedules of the production trainer."""
    function = code.function("learning_rate")
    steps, warmup, peak = 50, 8, 0.3
    at = range(steps + 1)
    by_zero = Words(
        "warmup이 0이면 0으로 나눕니다. step < warmup일 때만 warmup으로 나누세요.",
        "With warmup = 0 there is a division by zero. Divide by warmup only where step < warmup.",
    )

    def rates(warmup: int, schedule: str) -> Tensor:
        made = [function(step, steps, warmup, peak, schedule) for step in at]
        return torch.tensor([require_number(one) for one in made], dtype=torch.float64)

    def right(warmup: int, schedule: str) -> Tensor:
        config = TrainConfig(warmup=warmup / steps, schedule=schedule)  # type: ignore[arg-type]
        return torch.tensor([peak * rate(config, step / steps) for step in at], dtype=torch.float64)

    given = rates(warmup, "linear")
    compare(given[:warmup], right(warmup, "linear")[:warmup], *_wrong_warmups(warmup, peak))
    yield Words("웜업이 맞습니다.", "The warm-up is right.")
    compare(given, right(warmup, "linear"), *_wrong_falls(right(warmup, "linear"), steps, warmup, peak))
    yield Words("직선으로 0까지 내려갑니다.", "It falls to 0 in a straight line.")
    compare(rates(warmup, "cosine"), right(warmup, "cosine"), *_wrong_cosines(right(warmup, "cosine"), warmup, peak))
    yield Words("코사인을 따라 0까지 내려갑니다.", "It falls to 0 along the cosine.")
    for schedule in ("linear", "cosine"):
        without = raises(by_zero, partial(rates, 0, schedule), mistake="no-warmup-steps", text="ZeroDivisionError")
        compare(without, right(0, schedule))
    yield Words("웜업이 없어도 됩니다.", "It works without a warm-up.")


def _wrong_warmups(warmup: int, peak: float) -> Iterator[Mistake]:
    up = torch.arange(warmup, dtype=torch.float64)
    yield Mistake(
        "no-warmup",
        lambda result: bool((result[0] - peak).abs() < 1e-6),
        Words(
            "0번 스텝의 학습률이 이미 peak입니다. 웜업이 없습니다. 처음에는 기울기의 평균이 아직 부정확하므로 작은 "
            "스텝으로 시작합니다.",
            "The rate is peak at step 0 already: there is no warm-up. Training begins with small steps, because the "
            "averages of the gradients are still inexact.",
        ),
    )
    yield Mistake(
        "whole-division",
        peak * (up // warmup),
        Words(
            "// 는 정수로 내림하므로 웜업 동안 학습률이 0입니다. / 로 나누세요.",
            "// rounds down to an integer, so the rate is 0 during the warm-up. Divide with / instead.",
        ),
    )
    yield Mistake(
        "no-peak",
        up / warmup,
        Words(
            "peak를 곱하지 않았습니다. 결과는 0에서 1까지의 비율이 아니라 학습률이어야 합니다.",
            "peak is missing. The result is a share from 0 to 1; it should be the learning rate.",
        ),
    )
    yield Mistake(
        "one-step-early",
        peak * (up + 1) / warmup,
        Words(
            "웜업이 한 스텝 앞서 있습니다. 0번 스텝의 학습률은 0이고, warmup번 스텝에서 peak가 됩니다.",
            "The warm-up is one step early. The rate is 0 at step 0, and peak at step number warmup.",
        ),
    )


def _wrong_falls(right: Tensor, steps: int, warmup: int, peak: float) -> Iterator[Mistake]:
    at = torch.arange(steps + 1, dtype=torch.float64)
    jump = Words(
        "웜업이 끝나는 곳에서 학습률이 peak에서 갑자기 {after:.3f}까지 떨어집니다. done을 웜업이 끝난 스텝부터 "
        "세세요: (step - warmup) / (steps - warmup).",
        "After the warm-up the rate jumps from peak to {after:.3f}. Count done from the end of the warm-up: "
        "(step - warmup) / (steps - warmup).",
    )
    after = 1 - at / steps
    fallen = torch.where(at < warmup, right, peak * after)
    yield Mistake("done-from-the-start", fallen, jump, {"after": fallen[warmup].item()})
    late = torch.where(at < warmup, right, peak * (1 - (at - warmup) / steps))
    yield Mistake(
        "not-to-zero",
        late,
        Words(
            "마지막 스텝의 학습률이 0이 아니라 {last:.3f}입니다. 웜업 뒤에 남은 스텝은 steps - warmup개입니다.",
            "The rate at the last step is {last:.3f}, not 0. After the warm-up, steps - warmup steps remain.",
        ),
        {"last": late[-1].item()},
    )
    yield Mistake(
        "constant",
        torch.where(at < warmup, right, torch.full_like(at, peak)),
        Words(
            "웜업 뒤에 학습률이 내려가지 않습니다. 끝으로 갈수록 작은 스텝으로 가야 손실이 더 내려갑니다.",
            "The rate does not fall after the warm-up. The loss falls further when the steps get smaller towards the "
            "end.",
        ),
    )


_FROM_THE_START = Words(
    "done을 0번 스텝부터 세었습니다. 웜업이 끝난 스텝부터 세세요: (step - warmup) / (steps - warmup).",
    "done is counted from step 0. Count it from the end of the warm-up: (step - warmup) / (steps - warmup).",
)


def _wrong_cosines(right: Tensor, warmup: int, peak: float) -> Iterator[Mistake]:
    at = torch.arange(len(right), dtype=torch.float64)
    done = (at - warmup) / (len(right) - 1 - warmup)

    def fallen(share: Tensor) -> Tensor:
        return torch.where(at < warmup, right, peak * share)

    yield Mistake(
        "schedule-ignored",
        fallen(1 - done),
        Words(
            'schedule이 "cosine"인데 직선으로 내려갑니다.',
            'The schedule is "cosine", but the rate falls in a straight line.',
        ),
    )
    yield Mistake("done-from-the-start", fallen((1 + torch.cos(math.pi * at / at[-1])) / 2), _FROM_THE_START)
    yield Mistake(
        "rising-cosine",
        fallen((1 - torch.cos(math.pi * done)) / 2),
        Words(
            "학습률이 올라갑니다. cos은 1에서 시작해 -1에서 끝나므로, 내려가려면 1 + cos이어야 합니다.",
            "The rate rises. The cosine begins at 1 and ends at -1, so 1 + cos falls.",
        ),
    )
    yield Mistake(
        "no-half",
        fallen(1 + torch.cos(math.pi * done)),
        Words(
            "웜업 뒤에 학습률이 peak의 두 배입니다. 1 + cos은 2에서 0까지이므로 2로 나누세요.",
            "After the warm-up the rate is twice the peak. 1 + cos goes from 2 to 0, so divide it by 2.",
        ),
    )
    yield Mistake(
        "degrees",
        fallen((1 + torch.cos(180 * done)) / 2),
        Words(
            "math.cos은 각도를 라디안으로 받습니다. 180°는 π입니다.", "math.cos takes the angle in radians. 180° is π."
        ),
    )
    yield Mistake(
        "no-pi",
        fallen((1 + torch.cos(done)) / 2),
        Words(
            "각도에 π가 없어 마지막 스텝의 학습률이 0이 아닙니다. 코사인은 각도 π에서 -1이 됩니다.",
            "The angle lacks π, so the rate is not 0 at the last step. The cosine is -1 at the angle π.",
        ),
    )


# --- adamw ---


def adamw(code: Code) -> Steps:
    """AdamW, part by part and then against torch.optim over several steps."""
    function = code.function("adamw")
    w, g = hidden(4, 3, seed=1), hidden(4, 3, seed=2)
    zero = torch.zeros_like(w)

    def one(m: Tensor, v: Tensor, t: int, **settings: float) -> tuple[Tensor, ...]:
        made = function(w.clone(), g.clone(), m.clone(), v.clone(), t, lr=0.1, beta1=0.8, beta2=0.9, **settings)
        return require_tensors(made, 3)

    _, m, v = one(w, g**2, 3, epsilon=0.0, weight_decay=0.0)
    compare(
        m,
        0.8 * w + 0.2 * g,
        Mistake("swapped-shares", 0.2 * w + 0.8 * g, _SHARES),
        Mistake("corrected-returned", (0.8 * w + 0.2 * g) / (1 - 0.8**3), _CORRECTED),
        Mistake("beta2-for-m", 0.9 * w + 0.1 * g, _BETA_OF_M),
    )
    compare(
        v,
        0.9 * g**2 + 0.1 * g**2,
        Mistake("gradient-not-squared", 0.9 * g**2 + 0.1 * g, _NOT_SQUARED),
        Mistake("beta1-for-v", 0.8 * g**2 + 0.1 * g**2, _SHARES),
    )
    _, _, v = one(w, w**2, 3, epsilon=0.0, weight_decay=0.0)
    compare(v, 0.9 * w**2 + 0.1 * g**2, Mistake("beta1-for-v", 0.8 * w**2 + 0.2 * g**2, _BETA_OF_V))
    yield Words("m과 v가 맞습니다.", "m and v are right.")
    first, _, _ = one(zero, zero, 1, epsilon=0.0, weight_decay=0.0)
    compare(first, w - 0.1 * g.sign(), *_wrong_first_steps(w, g))
    yield Words(
        "편향 보정이 맞습니다. 첫 스텝에서는 모든 값이 lr만큼 움직입니다.",
        "The bias correction is right: in the first step every entry moves by lr.",
    )
    later, _, _ = one(zero, zero, 3, epsilon=0.0, weight_decay=0.0)
    moved = (0.2 * g / (1 - 0.8**3)) / (0.1 * g**2 / (1 - 0.9**3)).sqrt()
    times = (0.2 * g / (1 - 0.8 * 3)) / (0.1 * g**2 / (1 - 0.9 * 3)).abs().sqrt()
    one_power = (0.2 * g / (1 - 0.8)) / (0.1 * g**2 / (1 - 0.9)).sqrt()
    compare(
        later,
        w - 0.1 * moved,
        Mistake("not-a-power", w - 0.1 * one_power, _NOT_A_POWER),
        Mistake(
            "not-a-power", lambda result: bool(result.isnan().any()) or _close(result, w - 0.1 * times), _NOT_A_POWER
        ),
    )
    yield from _epsilon_and_decay(one, w, g, zero)
    yield from _several_steps(function)


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-5)


def _wrong_first_steps(w: Tensor, g: Tensor) -> Iterator[Mistake]:
    m, v = 0.2 * g, 0.1 * g**2
    yield Mistake("no-bias-correction", w - 0.1 * m / v.sqrt(), _NO_CORRECTION)
    yield Mistake("correction-of-m-only", w - 0.1 * g / v.sqrt(), _ONE_CORRECTION)
    yield Mistake("correction-of-m-only", w - 0.1 * m / g.abs(), _ONE_CORRECTION)
    yield Mistake("no-root", w - 0.1 * g / g**2, _NO_ROOT)
    yield Mistake("uphill", w + 0.1 * g.sign(), _UPHILL)
    yield Mistake("no-rate", w - g.sign(), _NO_RATE)


def _epsilon_and_decay(one: Callable[..., tuple[Tensor, ...]], w: Tensor, g: Tensor, zero: Tensor) -> Steps:
    large, _, _ = one(zero, zero, 1, epsilon=0.5, weight_decay=0.0)
    compare(
        large,
        w - 0.1 * g / (g.abs() + 0.5),
        Mistake("epsilon-inside", w - 0.1 * g / (g**2 + 0.5).sqrt(), _EPSILON_INSIDE),
        Mistake("epsilon-before-correction", w - 0.1 * g / (g.abs() + 0.5 / 0.1**0.5), _EPSILON_EARLY),
        Mistake("no-epsilon", w - 0.1 * g.sign(), _NO_EPSILON),
    )
    yield Words("ε의 자리가 맞습니다.", "ε is in the right place.")
    decayed, m, v = one(zero, zero, 1, epsilon=0.0, weight_decay=0.5)
    both = g + 0.5 * w
    compare(m, 0.2 * g, Mistake("l2", 0.2 * both, _L2))
    compare(v, 0.1 * g**2, Mistake("l2", 0.1 * both**2, _L2))
    compare(
        decayed,
        w - 0.1 * 0.5 * w - 0.1 * g.sign(),
        Mistake("no-decay", w - 0.1 * g.sign(), _NO_DECAY),
        Mistake("decay-without-rate", w - 0.5 * w - 0.1 * g.sign(), _DECAY_WITHOUT_RATE),
        Mistake("decay-after", (w - 0.1 * g.sign()) * 0.95, _DECAY_AFTER),
        Mistake("decay-adds", w + 0.1 * 0.5 * w - 0.1 * g.sign(), _DECAY_ADDS),
    )
    yield Words("가중치 감쇠가 기울기와 따로입니다.", "The weight decay is apart from the gradient.")


def _several_steps(function: Callable[..., Any]) -> Steps:
    """Compare with torch.optim.AdamW over five steps."""
    theirs = nn.Parameter(hidden(4, 3, seed=1))
    optimizer = AdamW([theirs], lr=0.02, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v = theirs.detach().clone(), torch.zeros(4, 3), torch.zeros(4, 3)
    for t in range(1, 6):
        theirs.grad = hidden(4, 3, seed=10 + t)
        optimizer.step()
        given = (w.clone(), theirs.grad.clone(), m.clone(), v.clone())
        w, m, v = require_tensors(result_of(partial(function, lr=0.02), *given, t), 3)
        compare(w, theirs.detach())
    yield Words("다섯 스텝 뒤에 torch.optim.AdamW와 같습니다.", "After five steps it equals torch.optim.AdamW.")


_SHARES = Words(
    "비율이 바뀌었습니다. 이전 값의 비율이 β이고 새 값의 비율이 1 - β입니다. β가 1에 가까우므로 평균은 천천히 "
    "바뀝니다.",
    "The shares are wrong. The old value has the share β, and the new one 1 - β. β is near 1, so the average changes "
    "slowly.",
)
_CORRECTED = Words(
    "m̂을 돌려주었습니다. 다음 스텝은 보정하지 않은 m과 v에서 이어지므로 m과 v를 돌려주세요. 그러지 않으면 스텝마다 "
    "다시 보정합니다.",
    "m̂ is returned. The next step continues from m and v without the correction, so return these. Otherwise each "
    "step corrects once more.",
)
_BETA_OF_M = Words("m에 β₂를 썼습니다. m의 비율은 β₁입니다.", "m is computed with β₂. Its share is β₁.")
_BETA_OF_V = Words("v에 β₁을 썼습니다. v의 비율은 β₂입니다.", "v is computed with β₁. Its share is β₂.")
_NOT_SQUARED = Words(
    "v에 기울기가 제곱 없이 들어갔습니다. v는 기울기의 크기를 재므로 제곱의 평균입니다.",
    "v averages the gradient, not its square. v measures the size of the gradient, so it needs the square.",
)
_NO_CORRECTION = Words(
    "편향 보정이 없습니다. m과 v는 0에서 시작하므로 첫 스텝에서 m은 (1 - β₁) g뿐입니다. 1 - β₁ᵗ과 1 - β₂ᵗ으로 "
    "나누세요.",
    "The bias correction is missing. m and v begin at 0, so after the first step m is only (1 - β₁) g. Divide by 1 - "
    "β₁ᵗ and 1 - β₂ᵗ.",
)
_ONE_CORRECTION = Words(
    "m과 v 가운데 하나만 보정했습니다. 둘 다 0에서 시작하므로 둘 다 보정해야 합니다.",
    "Only one of m and v is corrected. Both begin at 0, so both need it.",
)
_NO_ROOT = Words(
    "v̂로 나누었습니다. v̂는 제곱의 평균이므로 제곱근을 취해야 기울기와 단위가 같습니다.",
    "The step divides by v̂. v̂ is a mean of squares; its square root has the unit of the gradient.",
)
_UPHILL = Words(
    "기울기의 방향으로 움직였습니다. 손실이 커지는 방향입니다. 빼세요.",
    "The step goes along the gradient, which increases the loss. Subtract it.",
)
_NO_RATE = Words("학습률 lr을 곱하지 않았습니다.", "The learning rate lr is missing.")
_NOT_A_POWER = Words(
    "t = 3일 때 편향 보정이 틀립니다. βᵗ은 β의 t제곱입니다: beta1**t.",
    "The bias correction is wrong at t = 3. βᵗ is β to the power of t: beta1**t.",
)
_EPSILON_INSIDE = Words(
    "ε이 제곱근 안에 있습니다. 그러면 ε의 크기가 √ε이 되어, 1e-8이 1e-4처럼 작용합니다. 제곱근을 취한 뒤에 더하세요.",
    "ε is inside the root. There it acts like √ε: 1e-8 acts like 1e-4. Add it after the root.",
)
_EPSILON_EARLY = Words(
    "ε을 편향 보정 전의 √v에 더했습니다. 그러면 첫 스텝에서 ε이 더 크게 작용합니다. √v̂에 더하세요.",
    "ε is added to √v, before the bias correction. In the first steps it then has a larger effect. Add it to √v̂.",
)
_NO_EPSILON = Words(
    "ε이 없습니다. 기울기가 계속 0인 파라미터는 0 / 0이 되어 NaN이 됩니다.",
    "ε is missing. A parameter whose gradient was always 0 becomes 0 / 0, which is NaN.",
)
_L2 = Words(
    "가중치 감쇠를 기울기에 더했습니다. 이것은 L2 정규화입니다. √v̂로 나눌 때 감쇠도 나누어지므로, 기울기가 큰 "
    "파라미터는 거의 줄지 않습니다. AdamW는 w에서 따로 뺍니다.",
    "The weight decay is added to the gradient, which is L2 regularisation. The decay is then divided by √v̂ as well, "
    "so parameters with large gradients hardly shrink. AdamW subtracts it from w by itself.",
)
_NO_DECAY = Words("가중치 감쇠가 없습니다.", "The weight decay is missing.")
_DECAY_WITHOUT_RATE = Words(
    "감쇠에 lr을 곱하지 않았습니다. λ = 0.1이면 파라미터가 스텝마다 10%씩 줄어듭니다.",
    "The decay lacks lr. With λ = 0.1 the parameters would shrink by 10% in each step.",
)
_DECAY_AFTER = Words(
    "감쇠를 갱신한 w에 적용했습니다. 공식은 스텝 전의 w를 줄입니다. 갱신보다 먼저 빼세요.",
    "The decay is applied to the updated w. The formula shrinks w as it was before the step. Subtract it before the "
    "update.",
)
_DECAY_ADDS = Words(
    "감쇠가 파라미터를 키웁니다. lr · λ · w를 빼세요.", "The decay makes the parameters larger. Subtract lr · λ · w."
)


# --- muon ---


def muon(code: Code) -> Steps:
    """Newton–Schulz iterations: the values, the singular values, and the cost for a tall matrix."""
    function = code.function("orthogonalise")
    matrix = hidden(6, 10, scale=0.1)  # small enough that the iteration does not diverge without the division
    compare(function(matrix.clone()), _orthogonalised(matrix), *_wrong_iterations(matrix), tolerance=1e-3)
    yield Words("뉴턴–슐츠 반복이 맞습니다.", "The Newton–Schulz iteration is right.")
    tall = hidden(128, 4, seed=1)
    counter = FlopCounterMode(display=False)
    with counter:
        made = require_tensor(function(tall.clone()))
    require(tuple(made.shape) != (4, 128), _NOT_BACK, mistake="not-transposed-back")
    require_shape(made, (128, 4))
    compare(made, _orthogonalised(tall.T).T, tolerance=1e-3)
    flops = 2 * 5 * (2 * 4 * 4 * 128 + 4**3)  # the multiplications and additions of our own solution
    times = counter.get_total_flops() / flops
    require(
        times < 4,
        Words(
            "128 × 4 행렬에서 계산이 {times:.0f}배 많습니다. 행이 많으면 x xᵀ가 128 × 128입니다. 먼저 전치하면 4 × "
            "4입니다.",
            "For a matrix of 128 × 4 it computes {times:.0f} times as much as necessary: x xᵀ is 128 × 128. It is 4 × "
            "4 if x is transposed first.",
        ),
        mistake="tall-not-transposed",
        times=times,
    )
    yield Words("행이 많은 행렬은 전치해서 계산합니다.", "A tall matrix is transposed first.")
    zero = require_tensor(function(torch.zeros(3, 5)))
    require(
        bool((zero == 0).all()),
        Words(
            "영행렬에서 0 / 0이 되어 NaN이 나옵니다. 노름에 1e-7을 더하고 나누세요. 쓰이지 않은 층의 기울기는 0입니다.",
            "A zero matrix gives 0 / 0, which is NaN. Add 1e-7 to the norm before dividing. The gradient of a layer "
            "that was not used is zero.",
        ),
        mistake="zero-matrix",
    )
    compare(function(torch.zeros(3, 5)), torch.zeros(3, 5))
    square = hidden(12, 20, seed=5)
    made, theirs = require_tensor(function(square.clone())), orthogonal(square).float()
    values = torch.linalg.svdvals(made)
    require(values.min().item() > 0.5 and values.max().item() < 1.3, _SPREAD, low=values.min(), high=values.max())
    cosine = (made * theirs).sum() / (made.norm() * theirs.norm())
    require(cosine.item() > 0.97, _OTHER_DIRECTION, cosine=cosine.item())
    yield Words(
        f"특잇값이 {values.min():.2f}에서 {values.max():.2f} 사이이고, 방향이 jumok의 Muon과 같습니다.",
        f"The singular values are between {values.min():.2f} and {values.max():.2f}, and the direction is that of "
        f"jumok's Muon.",
    )


_NOT_BACK = Words(
    "결과가 전치된 채로 있습니다. 파라미터와 모양이 같아야 하므로 처음에 전치했으면 마지막에 다시 전치하세요.",
    "The result is still transposed. It needs the shape of the parameter: if x was transposed first, transpose it "
    "back.",
)
_SPREAD = Words(
    "특잇값이 {low:.2f}에서 {high:.2f} 사이입니다. 1에 가까워야 합니다.",
    "The singular values are between {low:.2f} and {high:.2f}; they should be near 1.",
)
_OTHER_DIRECTION = Words(
    "jumok의 Muon과 방향이 다릅니다(코사인 {cosine:.2f}).",
    "The direction differs from that of jumok's Muon (the cosine is {cosine:.2f}).",
)
_A, _B, _C = 3.4445, -4.7750, 2.0315  # https://kellerjordan.github.io/posts/muon/


def _orthogonalised(matrix: Tensor, iterations: int = 5, norm: Tensor | float | None = None) -> Tensor:
    x = matrix / (matrix.norm() + 1e-7 if norm is None else norm)
    for _ in range(iterations):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x


def _largest(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, 2)


_NOT_NORMALISED = Words(
    "x를 노름으로 나누지 않았습니다. 이 다항식은 0과 1 사이의 특잇값만 1 근처로 보냅니다. 더 큰 특잇값에서는 "
    "발산합니다.",
    "x is not divided by its norm. The polynomial moves only singular values between 0 and 1 towards 1. It diverges "
    "for larger ones.",
)
_OTHER_NORM = Words(
    "다른 노름으로 나누었습니다. 프로베니우스 노름 x.norm()은 모든 원소의 제곱합의 제곱근이고 수 하나입니다. 가장 큰 "
    "특잇값보다 작지 않으므로, 나누면 특잇값이 모두 1 이하가 됩니다.",
    "x is divided by another norm. The Frobenius norm x.norm() is one number, the root of the sum of all squared "
    "entries. It is at least the largest singular value, so after the division all singular values are at most 1.",
)


def _wrong_iterations(matrix: Tensor) -> Iterator[Mistake]:
    yield Mistake("not-normalised", _orthogonalised(matrix, norm=1.0), _NOT_NORMALISED)
    for norm in (matrix.abs().max(), matrix.norm(dim=1, keepdim=True), _largest(matrix)):
        yield Mistake("other-norm", _orthogonalised(matrix, norm=norm), _OTHER_NORM)
    yield Mistake(
        "one-iteration",
        _orthogonalised(matrix, 1),
        Words(
            "반복이 한 번뿐입니다. return이 반복문 안에 있거나, x를 갱신하지 않고 매번 처음 값에서 계산했습니다.",
            "There is only one iteration. The return is inside the loop, or each round begins from the first value "
            "again.",
        ),
    )
    x = matrix / matrix.norm()
    for _ in range(5):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * gram**2) @ x
    yield Mistake(
        "square-of-entries",
        x,
        Words(
            "G의 제곱이 원소별 제곱입니다. G ** 2가 아니라 행렬곱 G @ G입니다.",
            "The square of G is taken entry by entry. It is the matrix product G @ G, not G ** 2.",
        ),
    )
    x = matrix / matrix.norm()
    gram = x @ x.T
    for _ in range(5):
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    yield Mistake(
        "gram-only-once",
        x,
        Words(
            "G를 반복문 앞에서 한 번만 계산했습니다. x가 바뀌면 x xᵀ도 바뀌므로 반복할 때마다 다시 계산하세요.",
            "G is computed only once, before the loop. x xᵀ changes with x, so compute it in each iteration.",
        ),
    )
    x = matrix / matrix.norm()
    for _ in range(5):
        x = _A * x + _B * x**3 + _C * x**5
    yield Mistake(
        "powers-of-entries",
        x,
        Words(
            "다항식을 원소마다 계산했습니다. 그러면 특잇값이 아니라 원소의 크기가 바뀝니다. s³은 행렬곱 (x xᵀ) x에서 "
            "나옵니다.",
            "The polynomial is computed entry by entry. That changes the entries, not the singular values. s³ comes "
            "from the matrix product (x xᵀ) x.",
        ),
    )
    yield Mistake(
        "no-iteration",
        lambda result: _close(result, matrix / matrix.norm()),
        Words("노름으로 나누기만 하고 반복하지 않았습니다.", "The matrix is divided by its norm, but not iterated."),
    )
