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
    passed,
    require,
    require_tensor,
    result_of,
    same,
)
from jumok.course.practice.checks.attention_mistakes import attention_mistakes
from jumok.course.practice.checks.attention_modules import require_no_bias, require_parameters
from jumok.course.practice.checks.heads import projected, projection_mistakes
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
            yield passed("queries-from-x")
    yield passed("different-lengths")


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
        Mistake("context-ignored", attend(x, x, x)),
        Mistake("sources-exchanged", attend(context, x, x)),
        Mistake("values-from-x", attend(x, context, x)),
        Mistake("keys-from-x", attend(x, x, context)),
        Mistake("causal", attend(x, context, context, causal=True)),
    ]


def _padding_mask(code: Code) -> Steps:
    """Check the mask from lengths."""
    function = code.function("padding_mask")
    for lengths, s in ((torch.tensor([3, 5, 1]), 5), (torch.tensor([2, 0, 4, 6]), 7)):
        _check_padding_mask(result_of(function, lengths, s), lengths, s)
    yield passed("mask")


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
    yield passed("padding-masked")
    _check_empty_rows(code)
    yield passed("empty-rows")


padding_mask: Checks = {"padding_mask": _padding_mask, "masked_attention": _masked_attention}


def _mask(lengths: Tensor, s: int) -> Tensor:
    return (torch.arange(s) < lengths[:, None])[:, None, None]  # (B, 1, 1, S)


def _check_padding_mask(given: object, lengths: Tensor, s: int) -> None:
    right = _mask(lengths, s)
    compare(
        given,
        right,
        Mistake("mask-inverted/check_padding_mask", ~right),
        Mistake("one-too-many/check_padding_mask", torch.arange(s) <= lengths[:, None, None, None]),
        Mistake("mask-shape", right[:, 0, 0], {"given": "(B, S)"}),
        Mistake("mask-shape", right[:, 0], {"given": "(B, 1, S)"}),
    )


def _check_empty_rows(code: Code) -> None:
    """Rows without any key: zero, without hiding a NaN of the input, and with a gradient."""
    function = code.function("masked_attention")
    q, k, v = (hidden(2, 3, n, 4, seed=seed, scale=2) for n, seed in ((5, 1), (6, 2), (6, 3)))
    mask = _mask(torch.tensor([0, 4]), 6)
    given = require_tensor(function(q, k, v, mask))
    require(not bool(given.isnan().any()), "empty-row-nan/check_empty_rows")
    compare(
        given,
        attention_weights(q, k, mask) @ v,
        Mistake("padding-averaged", lambda result: same(result[0], v[0].mean(-2, keepdim=True).expand(q[0].shape))),
    )
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
        x = hidden(len(lengths), s, width) + 3
        mask = _mask(torch.tensor(lengths), s)[:, 0, 0]  # (B, S)
        right = Pooling("mean")(x, mask).detach()
        compare(result_of(function, x, mask), right, *_mean_mistakes(x, mask))
    yield passed("real-tokens-averaged")
    x, mask = hidden(2, 4, 3), _mask(torch.tensor([0, 3]), 4)[:, 0, 0]
    given = require_tensor(function(x, mask))
    require(not bool(given.isnan().any()), "empty-row-nan/masked_mean")
    compare(given, torch.stack([torch.zeros(3), x[1, :3].mean(0)]))
    yield passed("no-tokens-no-mean")


def _mean_mistakes(x: Tensor, mask: Tensor) -> list[Mistake]:
    total = (x * mask[:, :, None]).sum(1)
    return [
        Mistake("mean-over-padding", x.mean(1)),
        Mistake("divided-by-s", total / x.shape[1]),
        Mistake("one-count", total / mask.sum()),
        Mistake("not-divided/cross_attention", total),
        Mistake("one-too-many/mean_mistakes", total / (mask.sum(1, keepdim=True) + 1)),
        *_wrong_tokens(x, mask),
    ]


def _wrong_tokens(x: Tensor, mask: Tensor) -> list[Mistake]:
    """Means of other tokens, or of another shape."""
    real, padding = mask[:, :, None].float(), (~mask)[:, :, None].float()  # (B, S, 1)
    total, inverted = (x * real).sum(1), (x * padding).sum(1)
    return [
        Mistake(
            "mask-inverted/wrong_tokens",
            lambda given: any(
                same(given, inverted / count)
                for count in (padding.sum(1), padding.sum(1).clamp(min=1), real.sum(1), x.shape[1])
            ),
        ),
        Mistake(
            "batch-averaged",
            lambda given: any(same(given, x[mask].mean(dim, keepdim=keep)) for dim in (0, 1) for keep in (True, False)),
        ),
        Mistake("kept-dim/cross_attention", (total / mask.sum(1, keepdim=True)).unsqueeze(1)),
    ]
