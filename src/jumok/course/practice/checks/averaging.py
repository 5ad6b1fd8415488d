"""Checks of the exercises on shapes and on averaging the past."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from jumok.course.practice.checking import Checks, Code, Mistake, Steps, compare, hidden, passed, result_of, same
from jumok.course.practice.checks.attention_mistakes import mask_mistakes, softmax_mistakes
from jumok.nn import attention_weights, causal_mask


def _split_width(code: Code) -> Steps:
    for batch, t, n, width in ((2, 3, 4, 5), (3, 5, 2, 7)):
        x = hidden(batch, t, n * width)
        compare(
            result_of(code.function("split_width"), x, n),
            x.unflatten(-1, (n, width)),
            Mistake("part-and-width", x.unflatten(-1, (width, n))),
            Mistake("view-across", x.reshape(batch, n, t, width)),
        )
    yield passed("width-is-split")


def _swap(code: Code) -> Steps:
    for shape in ((2, 3, 5), (4, 2, 3)):
        x = hidden(*shape)
        compare(
            result_of(code.function("swap"), x),
            x.transpose(1, 2),
            Mistake("view-for-transpose", x.reshape(shape[0], shape[2], shape[1])),
            Mistake("all-reversed", x.permute(2, 1, 0)),
        )
    yield passed("dimensions-exchanged")


def _sum_keys(code: Code) -> Steps:
    for shape in ((2, 3, 5), (3, 4, 4)):
        scores = hidden(*shape)
        compare(
            result_of(code.function("sum_keys"), scores),
            scores.sum(-1),
            Mistake("wrong-dim", scores.sum(1)),
            Mistake("batch-dim", scores.sum(0)),
            Mistake("kept-dim/averaging", scores.sum(-1, keepdim=True)),
            Mistake("all-summed", scores.sum()),
        )
    yield passed("rows-summed")


def _scale_rows(code: Code) -> Steps:
    square, tall = (hidden(4, 4), hidden(4, seed=1)), (hidden(5, 3), hidden(5, seed=1))
    for x, factors in (square, tall):
        compare(
            result_of(code.function("scale_rows"), x, factors),
            torch.diag(factors) @ x,
            *(Mistake("columns-scaled", x * factors) for _ in range(int(x is square[0]))),
        )
    yield passed("rows-scaled")


# view, transpose, the dimension that a sum removes, broadcasting.
shapes: Checks = {"split_width": _split_width, "swap": _swap, "sum_keys": _sum_keys, "scale_rows": _scale_rows}


def _averaging_matrix(code: Code) -> Steps:
    """Check the triangular matrix that averages."""
    function = code.function("averaging_matrix")
    for t in (5, 8):
        compare(function(t), _averages(t), *_matrix_mistakes(t))
    yield passed("averaging-matrix")


def _average_past(code: Code) -> Steps:
    """Check the product with it."""
    function = code.function("average_past")
    for batch, t, width in ((3, 5, 5), (2, 4, 3)):
        x = hidden(batch, t, width)
        mistakes = [
            Mistake("transposed", _averages(t).T @ x),
            *(Mistake("all-averaged", x.mean(dim, keepdim=keep)) for dim in (1, -1) for keep in (True, False)),
        ]
        if t == width:
            mistakes.append(Mistake("elementwise", x * _averages(t)))
            mistakes.append(Mistake("wrong-side", x @ _averages(t)))
        compare(result_of(function, x), _averages(t) @ x, *mistakes)
    yield passed("all-averaged-right")


averaging_matrix: Checks = {"averaging_matrix": _averaging_matrix, "average_past": _average_past}


def _averages(t: int) -> Tensor:
    """(T, T): attention of which all scores are 0."""
    zeros = torch.zeros(1, t, 1)
    return attention_weights(zeros, zeros, causal=True)[0]


def _matrix_mistakes(t: int) -> Iterator[Mistake]:
    past = torch.ones(t, t).tril()
    yield Mistake("sees-future/averaging", past.T / past.T.sum(1, keepdim=True))
    yield Mistake("sees-future/averaging", past.T / past.T.sum(0, keepdim=True))
    yield Mistake("not-divided/averaging", past)
    yield Mistake("divided-by-columns", past / past.sum(0, keepdim=True))
    yield Mistake("no-keepdim", past / past.sum(1))
    yield Mistake("divided-by-all", past / past.sum())
    yield from _which_tokens(past)


def _which_tokens(past: Tensor) -> Iterator[Mistake]:
    """Averages of the wrong tokens. past: (T, T), the lower triangle."""
    t = len(past)
    yield Mistake("divided-by-t", past / t)
    yield Mistake("no-triangle", torch.full((t, t), 1 / t))
    strict = past.tril(-1)
    divisors = (strict.sum(1, keepdim=True), past.sum(1, keepdim=True), strict.sum(1, keepdim=True).clamp(min=1))
    yield Mistake("diagonal/averaging", lambda given: any(same(given, strict / divisor) for divisor in divisors))


def averaging_softmax(code: Code) -> Steps:
    """Softmax of masked scores: zeros give the averages."""
    function = code.function("causal_softmax")
    for shape, scale in (((2, 5, 5), 2.0), ((3, 4, 4), 1.0), ((2, 5, 5), 0.0)):
        scores = hidden(*shape, scale=scale)
        t = shape[-1]
        mask = causal_mask(t, t)
        compare(
            result_of(function, scores),
            scores.masked_fill(~mask, float("-inf")).softmax(-1),
            *([Mistake("zero-scores", lambda given: bool(given.isnan().all()))] if not scale else []),
            *mask_mistakes([scores], mask),
            *softmax_mistakes([scores], mask),
            Mistake("scores-ignored", _averages(t).expand(shape)),
        )
    yield passed("causal-softmax")
