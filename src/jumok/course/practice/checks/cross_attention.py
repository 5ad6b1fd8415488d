"""Checks of the exercises on cross-attention and padding."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.course.practice.checking import (
    Checks,
    Code,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
    results,
)
from jumok.course.practice.checks.attention import attended, qkv
from jumok.course.practice.checks.attention_modules import compare_module, copy_all
from jumok.models.pooling import Pooling
from jumok.nn import MultiHeadAttention


def cross_attention(code: Code) -> Steps:
    """Queries from one sequence, keys and values from another."""
    # With equal lengths and widths first: what another shape turns into an error gives a result there.
    for width, d_context, n_head, t, s in ((6, 6, 2, 5, 5), (12, 7, 3, 4, 6), (8, 10, 2, 6, 3)):
        ours = code.module("CrossAttention", width, d_context, n_head)
        theirs = MultiHeadAttention(width, width, n_head, d_context=d_context)
        copy_all(theirs, ours)
        x, context = hidden(2, t, width, scale=2), hidden(2, s, d_context, seed=1, scale=2)
        compare_module(ours, theirs(x, context), x, context)
        if t == s:
            yield passed("queries-from-x")
    yield passed("different-lengths")


def _mask(lengths: Tensor, s: int) -> Tensor:
    return (torch.arange(s) < lengths[:, None])[:, None, None]  # (B, 1, 1, S)


def _masked_attention(code: Code) -> Steps:
    """Check attention, also with rows that have no key."""
    function = code.function("masked_attention")
    for n_head, t, s, d in ((2, 4, 5, 3), (3, 6, 7, 5)):
        q, k, v = qkv(3, n_head, t=t, s=s, d=d)
        mask = _mask(torch.tensor([2, s, 1]), s)
        compare(result_of(function, q, k, v + 1, mask), attended(q, k, v + 1, mask))
    yield passed("padding-masked")
    _check_empty_rows(code)
    yield passed("empty-rows")


padding_mask: Checks = {
    "padding_mask": results(
        "padding_mask", _mask, {"mask": [(torch.tensor([3, 5, 1]), 5), (torch.tensor([2, 0, 4, 6]), 7)]}
    ),
    "masked_attention": _masked_attention,
}


def _check_empty_rows(code: Code) -> None:
    """Rows without any key: zero, without hiding a NaN of the input, and with a gradient."""
    function = code.function("masked_attention")
    q, k, v = qkv(2, 3, t=5, s=6, d=4)
    mask = _mask(torch.tensor([0, 4]), 6)
    given = require_tensor(function(q, k, v, mask))
    require(not bool(given.isnan().any()), "empty-row-nan/attention")
    compare(given, attended(q, k, v, mask))
    broken = q.clone()
    broken[1, 0, 2] = float("nan")
    require(bool(require_tensor(function(broken, k, v, mask))[1, 0, 2].isnan().all()), "nan-hidden")
    leaf = q.clone().requires_grad_()
    result = function(leaf, k, v, mask)
    if result.requires_grad and not torch.autograd.grad(result.sum(), leaf)[0].isfinite().all():
        raise Wrong("nan-gradient")


def masked_mean(code: Code) -> Steps:
    """The mean of the tokens that are not padding."""
    function = code.function("masked_mean")
    for lengths, s, width in (([2, 5, 3], 5, 4), ([1, 4], 7, 3)):
        x, mask = hidden(len(lengths), s, width) + 3, _mask(torch.tensor(lengths), s)[:, 0, 0]  # mask: (B, S)
        compare(result_of(function, x, mask), Pooling("mean")(x, mask).detach())
    yield passed("real-tokens-averaged")
    x, mask = hidden(2, 4, 3), _mask(torch.tensor([0, 3]), 4)[:, 0, 0]
    given = require_tensor(function(x, mask))
    require(not bool(given.isnan().any()), "empty-row-nan/mean")
    compare(given, torch.stack([torch.zeros(3), x[1, :3].mean(0)]))
    yield passed("no-tokens-no-mean")
