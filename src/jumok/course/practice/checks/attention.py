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
    passed,
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
            yield passed("weights-and-output")
    yield passed("other-number-of-keys")


def _causal_mask(code: Code) -> Steps:
    """Check the mask for T queries at the last of S positions."""
    function = code.function("causal_mask")
    for t, s in ((4, 4), (3, 5), (1, 6)):
        _check_mask(function(t, s), t, s)
    yield passed("mask")


def _causal_attention(code: Code) -> Steps:
    """Check that the mask is applied before the softmax."""
    function = code.function("causal_attention")
    for lead, t, s, d in (((2,), 5, 5, 3), ((2,), 3, 6, 4), ((2, 3), 4, 7, 5)):
        q, k, v = hidden(*lead, t, d, scale=2), hidden(*lead, s, d, seed=1), hidden(*lead, s, d, seed=2)
        heads = [x if len(lead) == 2 else x[:, None] for x in (q, k, v)]  # (B, H, T, D)
        weights = attention_weights(heads[0], heads[1], causal=True)
        right = (weights @ heads[2]).view(q.shape)
        compare(
            _run_causal(function, q, k, v), right, *attention_mistakes(q, k, v, production_mask(t, s), widths={"S": s})
        )
        if t == s:
            yield passed("masked-before-softmax")
    yield passed("last-queries")


causal_mask: Checks = {"causal_mask": _causal_mask, "causal_attention": _causal_attention}


def _run_causal(function: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor) -> Any:
    def call() -> Any:
        return result_of(function, q, k, v)

    if q.dim() == 3:
        return call()
    return raises("counted-from-front", call, text="at non-singleton dimension")


def _check_mask(given: object, t: int, s: int) -> None:
    ones, right = torch.ones(t, s, dtype=torch.bool), production_mask(t, s)
    compare(
        given,
        right,
        Mistake("sees-future/attention", ones.triu(s - t)),
        Mistake("mask-inverted/attention", ~right),
        Mistake("top-left/attention", ones.tril()),
        Mistake("diagonal/attention", ones.tril(s - t - 1)),
    )


def head(code: Code) -> Steps:
    """One head: parameters, the buffer of the mask, the output for every length, dropout."""
    width, d, longest = 12, 5, 8
    ours = code.module("Head", width, d, longest)
    _require_buffer(ours, longest)
    names = {f"{name}_proj.weight": f"{name}_proj.weight" for name in "qkv"}
    require_no_bias(ours)
    require_parameters(ours, names.values())
    yield passed("three-projections")
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
            yield passed("output")
    yield passed("shorter-inputs")
    check_dropout(lambda rate: code.module("Head", width, d, longest, rate), _values, width)
    yield passed("dropout-on-weights")


def run_module(ours: Any, x: Tensor, *, whole: bool) -> Any:
    """Return the output of the reader's causal module. whole: whether T is context_length.

    Raises:
        Wrong: it is random or changes x, or its mask does not fit a shorter input.
    """

    def call() -> Any:
        result = result_of(ours, x)
        require_repeatable(ours, x)
        return result

    return call() if whole else raises("mask-not-cut", call, text="must match")


def _values(head: nn.Module, x: Tensor) -> list[Tensor]:
    """Return what one token gets if its only weight is 1: its value, (B, 1, D), for each head."""
    return [require_tensor(head.get_submodule("v_proj")(x))]


def _require_buffer(ours: nn.Module, longest: int) -> None:
    """Check that the mask is a buffer, which moves with the module and is not learned."""
    square = (longest, longest)
    if any(tuple(parameter.shape[-2:]) == square for parameter in ours.parameters()):
        raise Wrong("mask-as-parameter")
    buffers = [buffer for buffer in ours.buffers() if tuple(buffer.shape[-2:]) == square]
    attributes = [name for name, value in vars(ours).items() if isinstance(value, Tensor)]
    if not buffers and attributes:
        raise Wrong("mask-as-attribute", name=attributes[0])
    if not buffers:
        raise Wrong("no-buffer", size=longest)
