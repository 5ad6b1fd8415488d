"""Checks of the exercises on softmax and attention without parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
)
from jumok.course.practice.checks.attention_mistakes import softmax_mistakes
from jumok.nn import attention_weights


def softmax(code: Code) -> Steps:
    """Softmax over the last dimension, in a way that does not overflow."""
    function = code.function("softmax")
    scores = hidden(2, 5, 7, scale=3)
    largest = scores.max(-1, keepdim=True).values
    compare(
        function(scores.clone()),
        scores.softmax(-1),
        Mistake("dimension/dot_product", any_of(*_other_dimensions(scores))),
        Mistake("all-entries", lambda result: abs(result.sum().item() - 1) < 1e-3),
        Mistake("no-exp", any_of(*(each / each.sum(-1, keepdim=True) for each in (scores, scores - largest)))),
        Mistake("not-divided/dot_product", any_of(torch.exp(scores), torch.exp(scores - largest))),
        Mistake("maximum-dimension", any_of(*(each / each.sum(-1, keepdim=True) for each in _shifted(scores)))),
    )
    yield passed("rows-sum-to-one")
    kept = scores.clone()
    function(kept)
    require(torch.equal(kept, scores), "in-place/dot_product")
    large = scores * 100
    result = require_tensor(function(large.clone()))
    require(bool(result.isfinite().all()), "overflow/dot_product", largest=large.max().item())
    compare(result, large.softmax(-1))
    yield passed("no-overflow")


def _shifted(scores: Tensor) -> Iterator[Tensor]:
    """Yield exp of the scores less the maximum of another dimension than the last."""
    yield from (torch.exp(scores - scores.max(dim, keepdim=True).values) for dim in range(scores.dim() - 1))


def _other_dimensions(scores: Tensor) -> Iterator[Tensor]:
    """Yield the softmaxes over a dimension that is not the last, whatever the dimension of the maximum."""
    for dim in range(scores.dim()):
        e = torch.exp(scores - scores.max(dim, keepdim=True).values)
        yield from (e / e.sum(over, keepdim=True) for over in range(scores.dim() - 1))


def dot_product_attention(code: Code) -> Steps:
    """Attention with x as queries, keys and values, not scaled."""
    function = code.function("dot_product_attention")
    for batch, t, width in ((2, 5, 3), (3, 4, 7)):
        x = hidden(batch, t, width)
        scores = x @ x.transpose(-2, -1)  # (B, T, T)
        unscaled = x * width**0.5  # the production module divides by it
        compare(
            result_of(function, x),
            attention_weights(unscaled[:, None], x[:, None])[:, 0] @ x,
            Mistake("scaled", (scores * width**-0.5).softmax(-1) @ x),
            Mistake("weights-returned/dot_product", scores.softmax(-1)),
            Mistake(
                "batch-mixed", (x.flatten(0, 1) @ x.flatten(0, 1).T).softmax(-1).matmul(x.flatten(0, 1)).view(x.shape)
            ),
            *softmax_mistakes([scores], None, lambda weights, x=x: weights @ x),  # type: ignore[misc]
        )
    yield passed("attends-to-all")
