"""Checks of the exercises on cross-attention and padding."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.course.practice.checking import (
    Checks,
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    require,
    require_tensor,
    result_of,
    same,
)
from jumok.course.practice.checks.attention_mistakes import attention_mistakes
from jumok.course.practice.checks.attention_modules import require_no_bias, require_parameters
from jumok.course.practice.checks.heads import projected, projection_mistakes
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, require_gradients
from jumok.models.pooling import Pooling
from jumok.nn import MultiHeadAttention, attention_weights


def cross_attention(code: Code) -> Steps:
    """Queries from one sequence, keys and values from another."""
    names = [*(f"{name}_proj.weight" for name in "qkvo"), "o_proj.bias"]
    # With equal lengths and widths first: what another shape turns into an error gives a result there.
    for width, d_context, n_head, t, s in ((6, 6, 2, 5, 5), (12, 7, 3, 4, 6), (8, 10, 2, 6, 3)):
        ours = code.module("CrossAttention", width, d_context, n_head)
        require_no_bias(ours)
        require_parameters(ours, names)
        theirs = MultiHeadAttention(width, width, n_head, d_context=d_context)
        copy_parameters(theirs, ours, {name: name for name in names})
        x, context = hidden(2, t, width, scale=2), hidden(2, s, d_context, seed=1, scale=2)
        q, k, v = (
            projection(source).unflatten(-1, (n_head, -1)).transpose(1, 2)  # (B, H, T or S, D)
            for projection, source in ((theirs.q_proj, x), (theirs.k_proj, context), (theirs.v_proj, context))
        )
        given = result_of(ours, x, context)
        compare(
            given,
            theirs(x, context),
            *(_source_mistakes(theirs, x, context) if x.shape == context.shape else []),
            *projection_mistakes(attention_weights(q, k) @ v, theirs),
            *attention_mistakes(
                q, k, v, widths={"n_embd": width, "d_context": d_context, "n_head": n_head},
                finish=projected(theirs),
            ),
        )  # fmt: skip
        require_gradients(given, ours)
        if t == s:
            yield Words(
                "쿼리는 x에서, 키와 값은 context에서 계산합니다.",
                "The queries come from x, keys and values from context.",
            )
    yield Words("두 문장의 길이와 폭이 달라도 맞습니다.", "It also works for texts of different lengths and widths.")


def _source_mistakes(theirs: MultiHeadAttention, x: Tensor, context: Tensor) -> list[Mistake]:
    """Projections of the wrong sequence. x and context have one shape."""

    def attend(queries: Tensor, keys: Tensor, values: Tensor, causal: bool = False) -> Tensor:
        q, k, v = (
            projection(source).unflatten(-1, (theirs.n_head, -1)).transpose(1, 2)
            for projection, source in ((theirs.q_proj, queries), (theirs.k_proj, keys), (theirs.v_proj, values))
        )
        return finish(attention_weights(q, k, causal=causal) @ v)

    finish = projected(theirs)
    return [
        Mistake(
            "context-ignored",
            attend(x, x, x),
            Words(
                "context를 쓰지 않았습니다. x만 참조하는 셀프 어텐션입니다. 키와 값은 context에서 계산하세요.",
                "context is not used: this is self-attention over x. Keys and values come from context.",
            ),
        ),
        Mistake(
            "sources-exchanged",
            attend(context, x, x),
            Words(
                "x와 context가 바뀌었습니다. 쓰고 있는 문장 x가 쿼리입니다. 출력의 길이는 쿼리의 개수 T입니다.",
                "x and context are exchanged. The text being written, x, gives the queries. The output has T "
                "positions, one for each query.",
            ),
        ),
        Mistake(
            "values-from-x",
            attend(x, context, x),
            Words(
                "값을 x에서 계산했습니다. 가중치는 context의 위치에 대한 것이므로 값도 context에서 와야 합니다.",
                "The values come from x. The weights are over the positions of context, so the values must come from "
                "there, too.",
            ),
        ),
        Mistake(
            "keys-from-x",
            attend(x, x, context),
            Words(
                "키를 x에서 계산했습니다. 쿼리는 참조할 문장의 키와 비교해야 하므로 키는 context에서 계산합니다.",
                "The keys come from x. A query is compared with the keys of the text it attends to: context.",
            ),
        ),
        Mistake(
            "causal",
            attend(x, context, context, causal=True),
            Words(
                "인과 마스크를 적용했습니다. 원문은 이미 전부 있으므로 모든 위치를 참조할 수 있습니다. 인과 마스크는 "
                "쓰고 있는 문장 안에서만 필요합니다.",
                "A causal mask is applied. The whole source is known, and every query may attend to all of it. Only "
                "attention within the text being written needs a causal mask.",
            ),
        ),
    ]


def _padding_mask(code: Code) -> Steps:
    """Check the mask from lengths."""
    function = code.function("padding_mask")
    for lengths, s in ((torch.tensor([3, 5, 1]), 5), (torch.tensor([2, 0, 4, 6]), 7)):
        _check_padding_mask(result_of(function, lengths, s), lengths, s)
    yield Words("마스크가 맞습니다.", "The mask is right.")


def _masked_attention(code: Code) -> Steps:
    """Check attention, also with rows that have no key."""
    function = code.function("masked_attention")
    for n_head, t, s, d in ((2, 4, 5, 3), (3, 6, 7, 5)):
        q, k, v = (hidden(3, n_head, n, d, seed=n + d, scale=2) for n in (t, s, s))
        v = v + 1
        mask = _mask(torch.tensor([2, s, 1]), s)
        compare(
            result_of(function, q, k, v, mask),
            attention_weights(q, k, mask) @ v,
            *attention_mistakes(q, k, v, mask, widths={"T": t, "S": s, "H": n_head}),
        )
    yield Words("패딩의 가중치가 0입니다.", "Padding gets the weight 0.")
    _check_empty_rows(code)
    yield Words(
        "모두 패딩인 행은 0이고, 입력의 NaN은 숨기지 않으며, 기울기에도 NaN이 없습니다.",
        "Rows of padding only give 0, a NaN in the input is not hidden, and the gradient contains no NaN.",
    )


padding_mask: Checks = {"padding_mask": _padding_mask, "masked_attention": _masked_attention}


def _mask(lengths: Tensor, s: int) -> Tensor:
    return (torch.arange(s) < lengths[:, None])[:, None, None]  # (B, 1, 1, S)


def _check_padding_mask(given: object, lengths: Tensor, s: int) -> None:
    right = _mask(lengths, s)
    shape = Words(
        "모양이 {given}입니다. 점수는 (B, H, T, S)이고 브로드캐스팅은 오른쪽 끝부터 맞추므로, 헤드와 쿼리의 자리에 "
        "크기 1인 차원을 넣어야 합니다: mask[:, None, None, :].",
        "The shape is {given}. Scores are (B, H, T, S), and broadcasting aligns shapes at the right end: put "
        "dimensions of size 1 in the places of heads and queries, mask[:, None, None, :].",
    )
    compare(
        given,
        right,
        Mistake(
            "mask-inverted",
            ~right,
            Words(
                "마스크가 반대입니다. 패딩이 True이고 실제 토큰이 False입니다. True는 참조할 수 있다는 뜻입니다.",
                'The mask is inverted: padding is True, and the tokens are False. True means "may attend".',
            ),
        ),
        Mistake(
            "one-too-many",
            torch.arange(s) <= lengths[:, None, None, None],
            Words(
                "패딩이 하나씩 들어갔습니다. 위치는 0부터 세므로 길이가 n이면 실제 토큰은 n - 1번까지입니다: <= 대신 "
                "<를 쓰세요.",
                "One padding token is included. Positions count from 0, so n tokens end at position n - 1: use < "
                "instead of <=.",
            ),
        ),
        Mistake("mask-shape", right[:, 0, 0], shape, {"given": "(B, S)"}),
        Mistake("mask-shape", right[:, 0], shape, {"given": "(B, 1, S)"}),
    )


def _check_empty_rows(code: Code) -> None:
    """Rows without any key: zero, without hiding a NaN of the input, and with a gradient."""
    function = code.function("masked_attention")
    q, k, v = (hidden(2, 3, n, 4, seed=seed, scale=2) for n, seed in ((5, 1), (6, 2), (6, 3)))
    mask = _mask(torch.tensor([0, 4]), 6)
    given = require_tensor(function(q, k, v, mask))
    require(
        not bool(given.isnan().any()),
        Words(
            "모든 키가 패딩인 행이 NaN입니다. 모든 점수가 -∞이면 소프트맥스는 0 ÷ 0을 계산하고, NaN에 0을 곱해도 "
            "NaN입니다. mask.any(dim=-1, keepdim=True)가 False인 행의 가중치를 0으로 바꾸세요.",
            "The rows of which all keys are padding are NaN: if all scores are -inf, softmax computes 0 / 0, and NaN "
            "times 0 is NaN. Set the weights to 0 in the rows where mask.any(dim=-1, keepdim=True) is False.",
        ),
        mistake="empty-row-nan",
    )
    compare(
        given,
        attention_weights(q, k, mask) @ v,
        Mistake(
            "padding-averaged",
            lambda result: same(result[0], v[0].mean(-2, keepdim=True).expand(q[0].shape)),
            Words(
                "모든 키가 패딩인 행이 패딩의 평균입니다. 점수를 -∞가 아니라 -1e9 같은 수로 바꾸면 모든 점수가 같아져 "
                "가중치가 1/S씩 됩니다. 이런 행의 출력은 0이어야 합니다.",
                "The rows of which all keys are padding hold the mean of the padding. With a number such as -1e9 "
                "instead of -inf all scores are equal, and each weight is 1/S. The output of such a row must be 0.",
            ),
        ),
    )
    broken = q.clone()
    broken[1, 0, 2] = float("nan")
    require(
        bool(require_tensor(function(broken, k, v, mask))[1, 0, 2].isnan().all()),
        Words(
            "쿼리에 NaN이 있는데 출력은 NaN이 아닙니다. nan_to_num처럼 모든 NaN을 바꾸는 방법은 오류를 숨깁니다. "
            "참조할 키가 없는 행만 0으로 바꾸세요.",
            "A query holds NaN, but the output does not. Replacing every NaN, as nan_to_num does, hides errors. Set "
            "only the rows without any allowed key to 0.",
        ),
        mistake="nan-hidden",
    )
    leaf = q.clone().requires_grad_()
    result = function(leaf, k, v, mask)
    if result.requires_grad and not torch.autograd.grad(result.sum(), leaf)[0].isfinite().all():
        raise Wrong(
            Words(
                "출력은 맞지만 기울기가 NaN입니다. 점수에 -∞를 더하면 역전파가 소프트맥스의 NaN을 그대로 전합니다. "
                'masked_fill(~mask, float("-inf"))로 바꾸면 가린 자리의 기울기가 0이 됩니다.',
                "The output is right, but the gradient is NaN. If -inf is added to the scores, the NaN of the softmax "
                'passes through the backward pass. With masked_fill(~mask, float("-inf")) the gradient of the hidden '
                "places is 0.",
            ),
            mistake="nan-gradient",
        )


def masked_mean(code: Code) -> Steps:
    """The mean of the tokens that are not padding."""
    function = code.function("masked_mean")
    for lengths, s, width in (([2, 5, 3], 5, 4), ([1, 4], 7, 3)):
        x = hidden(len(lengths), s, width) + 3
        mask = _mask(torch.tensor(lengths), s)[:, 0, 0]  # (B, S)
        right = Pooling("mean", width)(x, mask).detach()
        compare(result_of(function, x, mask), right, *_mean_mistakes(x, mask))
    yield Words("실제 토큰만 평균했습니다.", "Only the real tokens are averaged.")
    x, mask = hidden(2, 4, 3), _mask(torch.tensor([0, 3]), 4)[:, 0, 0]
    given = require_tensor(function(x, mask))
    require(
        not bool(given.isnan().any()),
        Words(
            "실제 토큰이 없는 시퀀스에서 0 ÷ 0 = NaN이 됩니다. 개수가 0이면 1로 나누세요: count.clamp(min=1).",
            "For a sequence without tokens the result is 0 / 0 = NaN. Divide by at least 1: count.clamp(min=1).",
        ),
        mistake="empty-row-nan",
    )
    compare(given, torch.stack([torch.zeros(3), x[1, :3].mean(0)]))
    yield Words("실제 토큰이 없는 시퀀스의 결과는 0입니다.", "A sequence without tokens gives 0.")


def _mean_mistakes(x: Tensor, mask: Tensor) -> list[Mistake]:
    total = (x * mask[:, :, None]).sum(1)
    return [
        Mistake(
            "mean-over-padding",
            x.mean(1),
            Words(
                "패딩까지 평균했습니다. 그러면 같은 문장의 결과가 배치에 있는 다른 문장의 길이에 따라 달라집니다.",
                "The mean includes the padding. The result of a text then depends on the length of the other texts in "
                "its batch.",
            ),
        ),
        Mistake(
            "divided-by-s",
            total / x.shape[1],
            Words(
                "합에서는 패딩을 뺐지만 S로 나누었습니다. 시퀀스마다 실제 토큰의 개수로 나누세요: mask.sum(dim=1, "
                "keepdim=True).",
                "The sum leaves out the padding, but it is divided by S. Divide by the number of real tokens of each "
                "sequence: mask.sum(dim=1, keepdim=True).",
            ),
        ),
        Mistake(
            "one-count",
            total / mask.sum(),
            Words(
                "배치 전체의 토큰 수로 나누었습니다. 개수는 시퀀스마다 다릅니다: mask.sum(dim=1, keepdim=True).",
                "The sums are divided by the number of tokens in the whole batch. Each sequence has its own: "
                "mask.sum(dim=1, keepdim=True).",
            ),
        ),
        Mistake(
            "not-divided",
            total,
            Words("합을 토큰의 개수로 나누지 않았습니다.", "The sum is not divided by the number of tokens."),
        ),
        Mistake(
            "one-too-many",
            total / (mask.sum(1, keepdim=True) + 1),
            Words(
                "개수에 1을 더하여 나누었습니다. 0으로 나누지 않으려면 clamp(min=1)을 쓰세요. 그러면 다른 시퀀스의 "
                "결과는 그대로입니다.",
                "The count is one too high. To avoid a division by 0 use clamp(min=1), which leaves the other "
                "sequences as they are.",
            ),
        ),
        *_wrong_tokens(x, mask),
    ]


def _wrong_tokens(x: Tensor, mask: Tensor) -> list[Mistake]:
    """Means of other tokens, or of another shape."""
    real, padding = mask[:, :, None].float(), (~mask)[:, :, None].float()  # (B, S, 1)
    total, inverted = (x * real).sum(1), (x * padding).sum(1)
    return [
        Mistake(
            "mask-inverted",
            lambda given: any(
                same(given, inverted / count)
                for count in (padding.sum(1), padding.sum(1).clamp(min=1), real.sum(1), x.shape[1])
            ),
            Words(
                "마스크가 반대입니다. 실제 토큰이 아니라 패딩을 평균했습니다. masked_fill은 True인 자리를 바꿉니다.",
                "The mask is inverted: this is the mean of the padding. masked_fill replaces the places that are True.",
            ),
        ),
        Mistake(
            "batch-averaged",
            lambda given: any(same(given, x[mask].mean(dim, keepdim=keep)) for dim in (0, 1) for keep in (True, False)),
            Words(
                "x[mask]는 배치의 모든 실제 토큰을 한 줄로 모은 (개수, C)이므로 시퀀스를 구별할 수 없습니다. 결과는 "
                "시퀀스마다 하나, (B, C)여야 합니다.",
                "x[mask] collects the real tokens of the whole batch in one list, (count, C), in which the sequences "
                "are no longer apart. The result has one vector for each sequence, (B, C).",
            ),
        ),
        Mistake(
            "kept-dim",
            (total / mask.sum(1, keepdim=True)).unsqueeze(1),
            Words(
                "모양이 (B, 1, C)입니다. x의 합에는 keepdim을 쓰지 마세요.",
                "The shape is (B, 1, C). Do not use keepdim in the sum of x.",
            ),
        ),
    ]
