"""Checks of the exercises on queries, keys and values, on the causal mask, and on one head."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from jumok.course.practice.checking import Checks, Code, Steps, Wrong, hidden, passed, require_tensor, results
from jumok.course.practice.checks.attention_modules import check_dropout, compare_module, copy_all
from jumok.nn import MultiHeadAttention, attention_weights
from jumok.nn import causal_mask as production_mask


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Return the attention of production, with or without a dimension of heads: (..., T, D) -> (..., T, E)."""
    if q.dim() == 3:
        return attended(q[:, None], k[:, None], v[:, None], mask, causal=causal)[:, 0]
    return attention_weights(q, k, mask, causal=causal) @ v


def qkv(*lead: int, t: int, s: int, d: int, e: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden queries (..., T, D), keys (..., S, D) and values (..., S, E)."""
    return hidden(*lead, t, d, scale=2), hidden(*lead, s, d, seed=1), hidden(*lead, s, e or d, seed=2)


# With T = S and D = E first: mistakes that another shape turns into an error give a result there.
query_key_value = results(
    "scaled_dot_product_attention",
    attended,
    {
        "weights-and-output": [qkv(2, t=5, s=5, d=3)],
        "other-number-of-keys": [qkv(2, t=3, s=5, d=7, e=4), qkv(3, t=6, s=2, d=4, e=5)],
    },
)
causal_mask: Checks = {
    "causal_mask": results("causal_mask", production_mask, {"mask": [(4, 4), (3, 5), (1, 6)]}),
    "causal_attention": results(
        "causal_attention",
        partial(attended, causal=True),
        {
            "masked-before-softmax": [qkv(2, t=5, s=5, d=3)],
            "last-queries": [qkv(2, t=3, s=6, d=4), qkv(2, 3, t=4, s=7, d=5)],
        },
    ),
}


def head(code: Code) -> Steps:
    """One head: parameters, the buffer of the mask, the output for every length, dropout."""
    width, d, longest = 12, 5, 8
    ours = code.module("Head", width, d, longest)
    _require_buffer(ours, longest)
    copy_all(MultiHeadAttention(width, d, 1, project=False), ours)
    yield passed("three-projections")
    for c, dim, length, t in ((width, d, longest, longest), (width, d, longest, 6), (6, 9, 7, 4)):
        ours = code.module("Head", c, dim, length)
        theirs = MultiHeadAttention(c, dim, 1, project=False)
        copy_all(theirs, ours)
        x = hidden(2, t, c, scale=3)
        compare_module(ours, theirs(x, causal=True), x)
        if t == length:
            yield passed("output")
    yield passed("shorter-inputs")
    check_dropout(lambda rate: code.module("Head", width, d, longest, rate), _values, width)
    yield passed("dropout-on-weights")


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
