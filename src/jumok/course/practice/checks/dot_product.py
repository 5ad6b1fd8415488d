"""Checks of the exercises on softmax and attention without parameters."""

from __future__ import annotations

from jumok.course.practice.checking import (
    Code,
    Steps,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
    results,
)
from jumok.course.practice.checks.attention import attended


def softmax(code: Code) -> Steps:
    """Softmax over the last dimension, in a way that does not overflow."""
    function = code.function("softmax")
    scores = hidden(2, 5, 7, scale=3)
    compare(result_of(function, scores), scores.softmax(-1))
    yield passed("rows-sum-to-one")
    result = require_tensor(function(100 * scores))
    require(bool(result.isfinite().all()), "overflow")
    compare(result, (100 * scores).softmax(-1))
    yield passed("no-overflow")


# Attention with x as queries, keys and values, not scaled: the production function divides by the root of the width.
dot_product_attention = results(
    "dot_product_attention",
    lambda x: attended(x * x.shape[-1] ** 0.5, x, x),
    {"attends-to-all": [(hidden(2, 5, 3),), (hidden(3, 4, 7),)]},
)
