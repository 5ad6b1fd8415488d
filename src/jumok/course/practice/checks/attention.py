"""Checks of the exercises on queries, keys and values, on the causal mask, and on one head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Checks,
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    raises,
    require_tensor,
    result_of,
)
from jumok.course.practice.checks.attention_mistakes import attention_mistakes
from jumok.course.practice.checks.attention_modules import (
    check_dropout,
    require_no_bias,
    require_parameters,
    require_repeatable,
)
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, require_gradients
from jumok.nn import MultiHeadAttention, attention_weights
from jumok.nn import causal_mask as production_mask


def query_key_value(code: Code) -> Steps:
    """Scaled dot-product attention."""
    function = code.function("scaled_dot_product_attention")
    # With T = S and D = E first: mistakes that another shape turns into an error give a result there.
    for batch, t, s, d, e in ((2, 5, 5, 3, 3), (2, 3, 5, 7, 4), (3, 6, 2, 4, 5)):
        q, k, v = hidden(batch, t, d, scale=2), hidden(batch, s, d, seed=1), hidden(batch, s, e, seed=2)
        compare(
            result_of(function, q, k, v),
            attention_weights(q[:, None], k[:, None])[:, 0] @ v,
            *attention_mistakes(q, k, v, widths={"B": batch, "T": t, "S": s, "E": e}),
        )
        if t == s:
            yield Words("가중치와 출력이 맞습니다.", "The weights and the output are right.")
    yield Words(
        "쿼리와 키의 개수가 다르고 값의 폭이 달라도 맞습니다.",
        "It also works for another number of keys than queries, and another width of the values.",
    )


def _causal_mask(code: Code) -> Steps:
    """Check the mask for T queries at the last of S positions."""
    function = code.function("causal_mask")
    for t, s in ((4, 4), (3, 5), (1, 6)):
        _check_mask(function(t, s), t, s)
    yield Words("마스크가 맞습니다.", "The mask is right.")


def _causal_attention(code: Code) -> Steps:
    """Check that the mask is applied before the softmax."""
    function = code.function("causal_attention")
    for lead, t, s, d in (((2,), 5, 5, 3), ((2,), 3, 6, 4), ((2, 3), 4, 7, 5)):
        q, k, v = hidden(*lead, t, d, scale=2), hidden(*lead, s, d, seed=1), hidden(*lead, s, d, seed=2)
        heads = [x if len(lead) == 2 else x[:, None] for x in (q, k, v)]  # (B, H, T, D)
        weights = attention_weights(heads[0], heads[1], causal=True)
        right = (weights @ heads[2]).view(q.shape)
        compare(
            _run_causal(function, q, k, v),
            right,
            *attention_mistakes(q, k, v, production_mask(t, s), widths={"S": s}),
        )
        if t == s:
            yield Words("소프트맥스 전에 마스크를 적용했습니다.", "The mask is applied before the softmax.")
    yield Words(
        "쿼리가 마지막 T개 위치일 때와 헤드의 차원이 있을 때도 맞습니다.",
        "It also works for queries at the last T positions, and with a dimension of heads.",
    )


causal_mask: Checks = {"causal_mask": _causal_mask, "causal_attention": _causal_attention}


def _run_causal(function: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor) -> Any:
    def call() -> Any:
        return result_of(function, q, k, v)

    if q.dim() == 3:
        return call()
    words = Words(
        "헤드의 차원이 있으면 모양이 (B, H, T, D)라서, 앞에서 센 차원 번호가 달라집니다. 뒤에서 세세요: q.shape[-2], "
        "k.transpose(-2, -1).",
        "With a dimension of heads the shape is (B, H, T, D), and dimensions counted from the front move. Count from "
        "the end: q.shape[-2], k.transpose(-2, -1).",
    )
    return raises(words, call, mistake="counted-from-front", text="at non-singleton dimension")


def _check_mask(given: object, t: int, s: int) -> None:
    ones, right = torch.ones(t, s, dtype=torch.bool), production_mask(t, s)
    compare(
        given,
        right,
        Mistake(
            "sees-future",
            ones.triu(s - t),
            Words(
                "위쪽 삼각형입니다. 이 마스크로는 이전 토큰이 아니라 미래 토큰을 참조합니다. 참조할 수 있는 자리는 "
                "대각선과 그 아래(tril)입니다.",
                "This is the upper triangle: it lets a token attend to the future, not to the past. The allowed places "
                "are on and below the diagonal (tril).",
            ),
        ),
        Mistake(
            "mask-inverted",
            ~right,
            Words(
                "True와 False가 반대입니다. True는 참조할 수 있다는 뜻이고, 가릴 자리가 False입니다.",
                'True and False are exchanged. True means "may attend"; the hidden places are False.',
            ),
        ),
        Mistake(
            "top-left",
            ones.tril(),
            Words(
                "삼각형이 왼쪽 위에 맞추어져 있습니다. 쿼리 T개는 마지막 T개 위치이므로 마지막 쿼리는 모든 키를 "
                "참조해야 합니다. tril(diagonal=s - t)로 삼각형을 오른쪽 아래에 맞추세요.",
                "The triangle is aligned top-left. The queries are the last T positions, so the last query must attend "
                "to all keys. Align it bottom-right with tril(diagonal=s - t).",
            ),
        ),
        Mistake(
            "diagonal",
            ones.tril(s - t - 1),
            Words(
                "대각선이 False입니다. 토큰은 자기 자신도 참조합니다. 그렇지 않으면 첫 토큰은 참조할 키가 없습니다.",
                "The diagonal is False. A token attends to itself, too; otherwise the first token has no key at all.",
            ),
        ),
    )


def head(code: Code) -> Steps:
    """One head: parameters, the buffer of the mask, the output for every length, dropout."""
    width, d, longest = 12, 5, 8
    ours = code.module("Head", width, d, longest)
    _require_buffer(ours, longest)
    names = {f"{name}_proj.weight": f"{name}_proj.weight" for name in "qkv"}
    require_no_bias(ours)
    require_parameters(ours, names.values())
    yield Words(
        "파라미터는 세 선형층뿐이고 마스크는 버퍼입니다.",
        "The only parameters are those of the three linear layers, and the mask is a buffer.",
    )
    for c, dim, length, t in ((width, d, longest, longest), (width, d, longest, 6), (6, 9, 7, 4)):
        ours = code.module("Head", c, dim, length)
        theirs = MultiHeadAttention(c, dim, 1, project=False)
        copy_parameters(theirs, ours, names)
        x = hidden(2, t, c, scale=3)
        q, k, v = theirs.q_proj(x), theirs.k_proj(x), theirs.v_proj(x)
        given = run_module(ours, x, whole=t == length)
        compare(
            given,
            theirs(x, causal=True),
            *attention_mistakes(q, k, v, production_mask(t, t), widths={"n_embd": c, "context_length": length, "T": t}),
        )
        require_gradients(given, ours)
        if t == length:
            yield Words("출력이 맞습니다.", "The output is right.")
    yield Words("context_length보다 짧은 입력에서도 맞습니다.", "It also works for inputs shorter than context_length.")
    check_dropout(lambda rate: code.module("Head", width, d, longest, rate), _values, width)
    yield Words("드롭아웃은 학습할 때만 가중치에 적용됩니다.", "Dropout applies to the weights, and only in training.")


def run_module(ours: Any, x: Tensor, *, whole: bool) -> Any:
    """The output of the reader's causal module. whole: whether T is context_length.

    Raises:
        Wrong: it is random or changes x, or its mask does not fit a shorter input.
    """

    def call() -> Any:
        result = result_of(ours, x)
        require_repeatable(ours, x)
        return result

    return call() if whole else raises(NOT_CUT, call, mistake="mask-not-cut", text="must match")


NOT_CUT = Words(
    "마스크의 크기가 점수와 다릅니다. 입력의 길이 T는 context_length보다 짧을 수 있으므로 마스크에서 T × T 부분만 "
    "쓰세요: self.mask[:t, :t].",
    "The mask and the scores differ in size. The input may be shorter than context_length: use only the T × T part of "
    "the mask, self.mask[:t, :t].",
)


def _values(head: nn.Module, x: Tensor) -> list[Tensor]:
    """What one token gets if its only weight is 1: its value, (B, 1, D), for each head."""
    return [require_tensor(head.get_submodule("v_proj")(x))]


def _require_buffer(ours: nn.Module, longest: int) -> None:
    """Check that the mask is a buffer, which moves with the module and is not learned."""
    square = (longest, longest)
    if any(tuple(parameter.shape[-2:]) == square for parameter in ours.parameters()):
        raise Wrong(
            Words(
                "마스크가 파라미터입니다. 옵티마이저는 모든 파라미터를 바꾸므로 마스크도 바뀌고, 파라미터의 개수도 "
                "틀립니다. register_buffer로 등록하세요.",
                "The mask is a parameter. The optimizer changes all parameters, so it would change the mask; and the "
                "count of parameters is wrong. Register the mask with register_buffer.",
            ),
            mistake="mask-as-parameter",
        )
    buffers = [buffer for buffer in ours.buffers() if tuple(buffer.shape[-2:]) == square]
    attributes = [name for name, value in vars(ours).items() if isinstance(value, Tensor)]
    if not buffers and attributes:
        raise Wrong(
            Words(
                '마스크(self.{name})가 버퍼가 아니라 보통 속성입니다. 그러면 model.to("cuda")를 해도 마스크는 CPU에 '
                '남아 오류가 납니다. self.register_buffer("mask", ...)로 등록하세요.',
                'The mask self.{name} is a plain attribute, not a buffer. model.to("cuda") would leave it on the CPU, '
                'and forward would fail. Register it with self.register_buffer("mask", ...).',
            ),
            mistake="mask-as-attribute",
            name=attributes[0],
        )
    if not buffers:
        raise Wrong(
            Words(
                "{size} × {size} 모양의 버퍼가 없습니다. __init__에서 context_length × context_length의 마스크를 "
                'self.register_buffer("mask", ...)로 등록하세요.',
                "There is no buffer of the shape {size} × {size}. In __init__, register the mask for context_length × "
                'context_length with self.register_buffer("mask", ...).',
            ),
            mistake="no-buffer",
            size=longest,
        )
