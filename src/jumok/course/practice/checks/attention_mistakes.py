"""Mistakes in attention, by what they compute. The checks of several parts share them.

Each function takes the scores in all scalings that are possible, right and wrong: a mistake in the mask is recognised
even if the scaling is wrong, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from jumok.course.practice.checking import Mistake, same
from jumok.course.practice.course import Words

Finish = Callable[[Tensor], Tensor]  # from the weights to what the reader's code returns


def _as_it_is(weights: Tensor) -> Tensor:
    return weights


def attention_mistakes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    widths: Mapping[str, int] | None = None,
    finish: Finish = _as_it_is,
) -> list[Mistake]:
    """The mistakes of scaled dot-product attention.

    Args:
        q, k, v: (..., T, D), (..., S, D), (..., S, E).
        mask: broadcastable to (..., T, S), True where a query may attend; None: everywhere.
        widths: numbers that the reader may take for D: the letter or name of each, and its value.
        finish: from (..., T, E) to what the reader's code returns.
    """
    d = q.shape[-1]
    others = {name: width for name, width in (widths or {}).items() if width != d}
    wrong = {
        "not-scaled": (1.0, NOT_SCALED),
        "multiplied": (d**0.5, MULTIPLIED),
        "no-root": (1 / d, NO_ROOT),
    }

    def scores(a: Tensor = q, b: Tensor = k) -> list[Tensor]:
        scales = [d**-0.5, *(scale for scale, _ in wrong.values()), *(width**-0.5 for width in others.values())]
        return [a @ b.transpose(-2, -1) * scale for scale in scales]

    def averaged(values: Tensor) -> Finish:
        return lambda weights: finish(weights @ values)

    def weights_of(some: Tensor) -> Tensor:
        return (some if mask is None else some.masked_fill(~mask, float("-inf"))).softmax(-1)

    raw = q @ k.transpose(-2, -1)
    found: list[Mistake] = []
    if mask is not None:
        found += mask_mistakes(scores(), mask, averaged(v))
    found += softmax_mistakes(scores(), mask, averaged(v))
    found += [Mistake(name, averaged(v)(weights_of(raw * scale)), words) for name, (scale, words) in wrong.items()]
    found += [
        Mistake(
            "wrong-width",
            averaged(v)(weights_of(raw * width**-0.5)),
            WRONG_WIDTH,
            {"given": f"{name} = {width}", "right": f"D = {d}"},
        )
        for name, width in others.items()
    ]
    found.append(Mistake("weights-returned", _any(scores(), weights_of), WEIGHTS_RETURNED))
    found.append(Mistake("scaled-after", averaged(v)(weights_of(raw) * d**-0.5), SCALED_AFTER))
    if q.shape[-2] == k.shape[-2]:
        found.append(Mistake("query-and-key", _any(scores(k, q), lambda s: averaged(v)(weights_of(s))), QUERY_AND_KEY))
    if v.shape == k.shape:
        found.append(Mistake("key-and-value", _any(scores(q, v), lambda s: averaged(k)(weights_of(s))), KEY_AND_VALUE))
        found.append(Mistake("keys-averaged", _any(scores(), lambda s: averaged(k)(weights_of(s))), KEYS_AVERAGED))
    return found


def mask_mistakes(scores: Sequence[Tensor], mask: Tensor, finish: Finish = _as_it_is) -> Iterator[Mistake]:
    """The mistakes of a mask.

    Args:
        scores: (..., T, S) each; the mistake with any of them is recognised.
        mask: broadcastable to (..., T, S).
    """
    t, s = scores[0].shape[-2:]
    minus = float("-inf")
    ones = torch.ones(t, s, dtype=torch.bool)
    if bool(mask.all()):
        return
    if mask.shape[-2] > 1:  # causal
        # Two orders: T queries that are the last T of S positions, and the upper triangle from the top left.
        for future in (ones.triu(s - t), ones.triu()):
            yield Mistake("sees-future", _masked(scores, future, finish), SEES_FUTURE)
        yield Mistake("diagonal", _masked(scores, mask & ~ones.triu(s - t), finish), DIAGONAL)
        if t != s:
            yield Mistake("top-left", _masked(scores, ones.tril(), finish), TOP_LEFT)
    yield Mistake(
        "plus-infinity", _any(scores, lambda x: finish(x.masked_fill(~mask, -minus).softmax(-1))), PLUS_INFINITY
    )
    yield Mistake(
        "zero-times-infinity", _any(scores, lambda x: finish((x + mask * minus).softmax(-1))), ZERO_TIMES_INFINITY
    )
    yield Mistake("mask-inverted", _masked(scores, ~mask, finish), MASK_INVERTED)
    yield Mistake("not-masked", _any(scores, lambda x: finish(x.softmax(-1))), NOT_MASKED)
    yield Mistake("mask-after-softmax", _any(scores, lambda x: finish(x.softmax(-1) * mask)), MASK_AFTER)
    yield Mistake(
        "mask-after-softmax",
        _any(scores, lambda x: finish(x.softmax(-1).masked_fill(~mask, minus))),
        MINUS_INFINITY_AFTER,
    )
    yield Mistake("filled-with-zero", _any(scores, lambda x: finish((x * mask).softmax(-1))), FILLED_WITH_ZERO)


def softmax_mistakes(
    scores: Sequence[Tensor], mask: Tensor | None = None, finish: Finish = _as_it_is
) -> Iterator[Mistake]:
    """The mistakes of a softmax over (..., T, S): another dimension, or none."""

    def masked(some: Tensor) -> Tensor:
        return some if mask is None else some.masked_fill(~mask, float("-inf"))

    for dim, letter in zip(range(-2, -scores[0].dim() - 1, -1), "THB" if scores[0].dim() == 4 else "TB", strict=False):
        yield Mistake(
            "dimension",
            _any(scores, lambda x, dim=dim: finish(masked(x).softmax(dim))),  # type: ignore[misc]
            SOFTMAX_DIMENSION,
            {"letter": letter, "dim": scores[0].dim() + dim, "last": scores[0].dim() - 1},
        )
    yield Mistake("no-softmax", _any(scores, lambda x: finish(x if mask is None else x * mask)), NO_SOFTMAX)
    yield Mistake("no-softmax", _any(scores, lambda x: finish(masked(x))), NO_SOFTMAX)


def _masked(scores: Sequence[Tensor], mask: Tensor, finish: Finish) -> Callable[[Tensor], bool]:
    return _any(scores, lambda x: finish(x.masked_fill(~mask, float("-inf")).softmax(-1)))


def _any(scores: Sequence[Tensor], result: Finish) -> Callable[[Tensor], bool]:
    """A test: whether a tensor is the result for any of the scores."""
    return lambda given: any(same(given, result(some)) for some in scores)


NOT_SCALED = Words(
    "점수를 √D로 나누지 않았습니다. D가 크면 점수의 차이도 커집니다. 그러면 소프트맥스가 키 하나에 몰려 기울기가 "
    "거의 0이 됩니다.",
    "The scores are not divided by √D. With a large D the scores differ so much that softmax picks a single key, and "
    "the gradient is nearly 0.",
)
MULTIPLIED = Words(
    "점수에 √D를 곱했습니다. 점수는 D가 클수록 커지므로 √D로 나누어야 크기가 일정해집니다.",
    "The scores are multiplied by √D. Scores grow with D: divide them by √D, which keeps their size the same.",
)
NO_ROOT = Words(
    "점수를 √D가 아니라 D로 나누었습니다. 점수의 표준편차는 √D에 비례합니다. D로 나누면 점수가 너무 작아져 가중치가 "
    "평균에 가까워집니다.",
    "The scores are divided by D, not √D. Their standard deviation grows with √D. Divided by D they are too small, and "
    "the weights are close to a plain average.",
)
WRONG_WIDTH = Words(
    "점수를 √({given})로 나누었습니다. 점수는 곱 D개를 더한 값이므로 √({right})로 나누어야 합니다. D는 쿼리와 키의 폭, "
    "곧 헤드 하나의 폭입니다.",
    "The scores are divided by √({given}). A score is a sum of D products, D being the width of the queries and keys "
    "of one head: divide by √({right}).",
)
SCALED_AFTER = Words(
    "소프트맥스 뒤에 √D로 나누었습니다. 그러면 가중치의 합이 1이 아니라 1/√D가 됩니다. 소프트맥스 전의 점수를 "
    "나누세요.",
    "The division by √D comes after the softmax, so the weights sum to 1/√D instead of 1. Divide the scores, before "
    "the softmax.",
)
WEIGHTS_RETURNED = Words(
    "가중치를 돌려주었습니다. 출력은 가중치에 값을 곱한 것입니다: weights @ v.",
    "The weights are returned. The output is their product with the values: weights @ v.",
)
QUERY_AND_KEY = Words(
    "쿼리와 키가 바뀌었습니다. 점수 행렬의 행은 쿼리, 열은 키입니다: q @ k.transpose(-2, -1). k @ q.transpose(-2, "
    "-1)은 그 전치이므로 키마다 가중치의 합이 1이 됩니다.",
    "Queries and keys are exchanged. The rows of the scores are queries, the columns keys: q @ k.transpose(-2, -1). k "
    "@ q.transpose(-2, -1) is its transpose, whose weights sum to one for each key.",
)
KEY_AND_VALUE = Words(
    "키와 값이 바뀌었습니다. 점수는 쿼리와 키로 계산하고, 가중치는 값에 곱합니다.",
    "Keys and values are exchanged. The scores come from queries and keys, and the weights multiply the values.",
)
KEYS_AVERAGED = Words(
    "가중치를 값이 아니라 키에 곱했습니다. 키는 점수를 계산할 때만 쓰고, 출력은 값의 가중 평균입니다.",
    "The weights multiply the keys, not the values. Keys only serve to compute the scores. The output is a weighted "
    "average of the values.",
)
SEES_FUTURE = Words(
    "이전 토큰이 아니라 미래 토큰을 참조합니다. 참조할 수 있는 자리는 위쪽 삼각형(triu)이 아니라 아래쪽 "
    "삼각형(tril)입니다. 이렇게 학습하면 모델이 정답을 미리 보므로 손실이 지나치게 낮아집니다.",
    "Each token attends to the future, not to the past. The allowed places are the lower triangle (tril), not the "
    "upper one (triu). A model trained like this sees the answers, and its loss is too good.",
)
DIAGONAL = Words(
    "자기 자신까지 가렸습니다. 첫 토큰은 참조할 키가 없어 소프트맥스가 NaN이 됩니다. 대각선은 참조할 수 있는 "
    "자리입니다. triu로 가릴 자리를 만들었다면 triu(diagonal=1)이어야 합니다.",
    "The mask also blocks a token from itself. The first token then has no key at all, and its softmax is NaN. The "
    "diagonal is allowed. If triu makes the blocked places, use triu(diagonal=1).",
)
TOP_LEFT = Words(
    "삼각형이 왼쪽 위에 맞추어져 있습니다. 쿼리 T개는 S개 위치 중 마지막 T개이므로 삼각형을 오른쪽 아래에 맞추어야 "
    "합니다: tril(diagonal=s - t). 마지막 쿼리는 모든 키를 참조합니다.",
    "The triangle is aligned top-left. The T queries are the last T of S positions, so it must be aligned "
    "bottom-right: tril(diagonal=s - t). The last query attends to all keys.",
)
PLUS_INFINITY = Words(
    "가릴 점수를 +∞로 바꾸었습니다. exp(+∞)는 무한대이므로 결과가 NaN이 됩니다. 가중치를 0으로 만드는 것은 -∞입니다.",
    "The hidden scores are set to +inf. exp(+inf) is infinite, and the result is NaN. It is -inf that gives the weight "
    "0.",
)
ZERO_TIMES_INFINITY = Words(
    "결과가 모두 NaN입니다. 마스크에 -∞를 곱하면 0 × ∞ = NaN이 됩니다. 곱하지 말고 masked_fill로 -∞를 넣으세요.",
    "The whole result is NaN. If a mask is multiplied by -inf, 0 times infinity is NaN. Do not multiply: put -inf in "
    "with masked_fill.",
)
MASK_INVERTED = Words(
    "마스크가 반대로 적용되었습니다. masked_fill은 True인 자리를 바꾸는데, 마스크의 True는 참조할 수 있다는 뜻입니다. "
    "masked_fill(~mask, ...)로 쓰세요.",
    'The mask is inverted. masked_fill replaces the entries where it gets True, but True in the mask means "may '
    'attend". Write masked_fill(~mask, ...).',
)
NOT_MASKED = Words(
    "마스크가 적용되지 않아 가려야 할 자리도 참조합니다. masked_fill은 새 텐서를 돌려주므로 결과를 변수에 받아야 "
    "합니다: scores = scores.masked_fill(...).",
    "No mask is applied, so queries attend to places that must be hidden. masked_fill returns a new tensor, which must "
    "be assigned: scores = scores.masked_fill(...).",
)
MASK_AFTER = Words(
    "소프트맥스 뒤에 마스크를 적용했습니다. 가린 가중치만큼 행의 합이 1보다 작아지고, 가려야 할 점수가 나머지 가중치에 "
    "영향을 줍니다. 소프트맥스 전의 점수를 -∞로 바꾸세요.",
    "The mask is applied after the softmax. The rows then sum to less than one, and the hidden scores still influence "
    "the other weights. Set the scores to -inf before the softmax.",
)
MINUS_INFINITY_AFTER = Words(
    "소프트맥스 뒤의 가중치를 -∞로 바꾸었습니다. -∞는 exp를 거쳐야 0이 됩니다. 소프트맥스 전의 점수를 바꾸세요.",
    "The weights are set to -inf after the softmax. -inf becomes 0 only through exp. Set the scores before the "
    "softmax.",
)
FILLED_WITH_ZERO = Words(
    "가릴 점수를 0으로 바꾸었습니다. e⁰ = 1이므로 가중치가 0이 되지 않습니다. -∞로 바꾸세요: masked_fill(~mask, "
    'float("-inf")).',
    "The hidden scores are set to 0. As e⁰ = 1, their weights do not become 0. Set them to -inf: masked_fill(~mask, "
    'float("-inf")).',
)
SOFTMAX_DIMENSION = Words(
    "행의 합이 1이 아닙니다. 소프트맥스가 차원 {dim}({letter})을 따라 계산되었습니다. 키는 마지막 차원 {last}(S)이므로 "
    "dim=-1을 쓰세요.",
    "The rows do not sum to one: the softmax runs over dimension {dim} ({letter}). The keys are the last dimension, "
    "{last} (S). Use dim=-1.",
)
NO_SOFTMAX = Words(
    "소프트맥스를 적용하지 않았습니다. 점수는 음수일 수 있고 합도 1이 아니므로 그대로는 가중치로 쓸 수 없습니다.",
    "No softmax is applied. Scores can be negative and do not sum to one, so they cannot serve as weights.",
)
