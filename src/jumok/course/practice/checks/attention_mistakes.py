"""Mistakes in attention, by what they compute. The checks of several parts share them.

Each function takes the scores in all scalings that are possible, right and wrong: a mistake in the mask is recognised
even if the scaling is wrong, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from jumok.course.practice.checking import Mistake, same

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
    """Return the mistakes of scaled dot-product attention.

    Args:
        q, k, v: (..., T, D), (..., S, D), (..., S, E).
        mask: broadcastable to (..., T, S), True where a query may attend; None: everywhere.
        widths: numbers that the reader may take for D: the letter or name of each, and its value.
        finish: from (..., T, E) to what the reader's code returns.
    """
    d = q.shape[-1]
    others = {name: width for name, width in (widths or {}).items() if width != d}
    wrong = {"not-scaled": 1.0, "multiplied": d**0.5, "no-root": 1 / d}

    def scores(a: Tensor = q, b: Tensor = k) -> list[Tensor]:
        scales = [d**-0.5, *wrong.values(), *(width**-0.5 for width in others.values())]
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
    found += [Mistake(name, averaged(v)(weights_of(raw * scale))) for name, scale in wrong.items()]
    found += [
        Mistake(
            "wrong-width",
            averaged(v)(weights_of(raw * width**-0.5)),
            {"given": f"{name} = {width}", "right": f"D = {d}"},
        )
        for name, width in others.items()
    ]
    found.append(Mistake("weights-returned", _any(scores(), weights_of)))
    found.append(Mistake("scaled-after", averaged(v)(weights_of(raw) * d**-0.5)))
    if q.shape[-2] == k.shape[-2]:
        found.append(Mistake("values-returned", finish(v)))
        found.append(Mistake("query-and-key", _any(scores(k, q), lambda s: averaged(v)(weights_of(s)))))
    if v.shape == k.shape:
        found.append(Mistake("key-and-value", _any(scores(q, v), lambda s: averaged(k)(weights_of(s)))))
        found.append(Mistake("keys-averaged", _any(scores(), lambda s: averaged(k)(weights_of(s)))))
    return found


def mask_mistakes(scores: Sequence[Tensor], mask: Tensor, finish: Finish = _as_it_is) -> Iterator[Mistake]:
    """Yield the mistakes of a mask.

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
            yield Mistake("sees-future", _masked(scores, future, finish))
        yield Mistake("diagonal", _masked(scores, mask & ~ones.triu(s - t), finish))
        if t != s:
            yield Mistake("top-left", _masked(scores, ones.tril(), finish))
    yield Mistake("plus-infinity", _any(scores, lambda x: finish(x.masked_fill(~mask, -minus).softmax(-1))))
    yield Mistake("zero-times-infinity", _any(scores, lambda x: finish((x + mask * minus).softmax(-1))))
    yield Mistake("mask-inverted", _masked(scores, ~mask, finish))
    yield Mistake("not-masked", _any(scores, lambda x: finish(x.softmax(-1))))
    yield Mistake("mask-after-softmax/mask_mistakes", _any(scores, lambda x: finish(x.softmax(-1) * mask)))
    yield Mistake(
        "mask-after-softmax/mask_mistakes-2", _any(scores, lambda x: finish(x.softmax(-1).masked_fill(~mask, minus)))
    )
    yield Mistake("filled-with-zero", _any(scores, lambda x: finish((x * mask).softmax(-1))))


def softmax_mistakes(
    scores: Sequence[Tensor], mask: Tensor | None = None, finish: Finish = _as_it_is
) -> Iterator[Mistake]:
    """Yield the mistakes of a softmax over (..., T, S): another dimension, or none."""

    def masked(some: Tensor) -> Tensor:
        return some if mask is None else some.masked_fill(~mask, float("-inf"))

    def along(dim: int) -> Callable[[Tensor], bool]:
        return _any(scores, lambda x: finish(masked(x).softmax(dim)))

    dims = scores[0].dim()
    for dim, letter in zip(range(-2, -dims - 1, -1), "THB" if dims == 4 else "TB", strict=False):
        yield Mistake("dimension", along(dim), {"letter": letter, "dim": dims + dim, "last": dims - 1})
    yield Mistake("no-softmax", _any(scores, lambda x: finish(x if mask is None else x * mask)))
    yield Mistake("no-softmax", _any(scores, lambda x: finish(masked(x))))


def _masked(scores: Sequence[Tensor], mask: Tensor, finish: Finish) -> Callable[[Tensor], bool]:
    return _any(scores, lambda x: finish(x.masked_fill(~mask, float("-inf")).softmax(-1)))


def _any(scores: Sequence[Tensor], result: Finish) -> Callable[[Tensor], bool]:
    """Return a test: whether a tensor is the result for any of the scores."""
    return lambda given: any(same(given, result(some)) for some in scores)
