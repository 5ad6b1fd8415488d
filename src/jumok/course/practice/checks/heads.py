"""Checks of the exercises on several heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

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
    require_one_device,
    result_of,
)
from jumok.course.practice.checks.attention import run_module
from jumok.course.practice.checks.attention_mistakes import attention_mistakes
from jumok.course.practice.checks.attention_modules import (
    check_dropout,
    require_no_bias,
    require_parameters,
    run_with_heads,
)
from jumok.course.practice.parameters import copy_parameters, require_gradients
from jumok.nn import MultiHeadAttention, attention_weights, causal_mask


def module_list_heads(code: Code) -> Steps:
    """Heads in an nn.ModuleList, concatenated."""
    for width, n_head, d, length, t in ((6, 3, 4, 9, 5), (10, 2, 3, 7, 7)):
        ours = code.module("ParallelHeads", width, n_head, d, length)
        names = [f"{h}.{name}_proj.weight" for h in range(n_head) for name in "qkv"]
        _require_heads(ours, n_head)
        require_parameters(ours, [f"heads.{name}" for name in names])
        singles = nn.ModuleList([MultiHeadAttention(width, d, 1, project=False) for _ in range(n_head)])
        copy_parameters(singles, ours, {name: f"heads.{name}" for name in names})
        x = hidden(2, t, width, scale=2)
        parts = [single(x, causal=True) for single in singles]
        given = run_module(ours, x, whole=t == length)
        compare(given, torch.cat(parts, dim=-1), *_joining_mistakes(parts))
        require_gradients(given, ours)
    yield passed("own-heads")
    check_dropout(
        lambda rate: code.module("ParallelHeads", 6, 3, 4, 9, rate),
        lambda module, x: [head.v_proj(x) for head in module.heads],
        6,
    )
    yield passed("heads-drop")


def _require_heads(ours: nn.Module, n_head: int) -> None:
    """Check that self.heads is an nn.ModuleList of different heads."""
    heads = getattr(ours, "heads", None)
    if isinstance(heads, list | tuple):
        raise Wrong("python-list", kind=type(heads).__name__)
    if isinstance(heads, nn.Sequential):
        raise Wrong("sequential")
    if not isinstance(heads, nn.ModuleList) or len(heads) != n_head:
        raise Wrong("no-module-list", count=n_head)
    if len({id(head) for head in heads}) < n_head:
        raise Wrong("same-head", count=n_head)


def _joining_mistakes(parts: list[Tensor]) -> list[Mistake]:
    together = torch.stack(parts)
    return [
        Mistake("heads-added/joining_mistakes", together.sum(0)),
        Mistake("heads-added/joining_mistakes", together.mean(0)),
        *(Mistake("heads-stacked", together.movedim(0, dim)) for dim in range(4)),
        *(
            Mistake("joined-along-wrong-dim", torch.cat(parts, dim=dim), {"dim": dim, "letter": letter})
            for dim, letter in enumerate("BT")
        ),
        Mistake("numbers-alternate", torch.stack(parts, dim=-1).flatten(-2)),
    ]


def _split_heads(code: Code) -> Steps:
    """Check view and transpose."""
    function = code.function("split_heads")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 2, 4, 5)):
        x = hidden(batch, t, n_head * d)
        right = x.unflatten(-1, (n_head, d)).transpose(1, 2)
        compare(result_of(function, x, n_head), right, *_split_mistakes(x, n_head))
    yield passed("heads-split")


def _merge_heads(code: Code) -> Steps:
    """Check the way back."""
    function = code.function("merge_heads")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 2, 4, 5)):
        heads = hidden(batch, n_head, t, d)
        compare(result_of(function, heads), _merged(heads), *_merge_mistakes(heads))
    yield passed("heads-merged")


def _attend(code: Code) -> Steps:
    """Check the product with a dimension of heads."""
    function = code.function("attend")
    for batch, t, n_head, d in ((2, 5, 3, 4), (3, 4, 2, 7)):
        q, k, v = (hidden(batch, t, n_head * d, seed=seed, scale=2) for seed in (1, 2, 3))
        split = [x.unflatten(-1, (n_head, d)).transpose(1, 2) for x in (q, k, v)]  # (B, H, T, D)
        heads = attention_weights(split[0], split[1], causal=True) @ split[2]  # (B, H, T, D)
        compare(
            run_with_heads(lambda: result_of(function, q, k, v, n_head)),  # noqa: B023
            _merged(heads),
            *attention_mistakes(
                split[0], split[1], split[2], causal_mask(t, t), widths={"C": n_head * d, "H": n_head, "T": t},
                finish=_merged,
            ),
            *_merge_mistakes(heads),
            *view_mistakes([q, k, v], n_head, nn.Identity(), causal=True),
            Mistake(
                "not-split",
                attention_weights(q[:, None], k[:, None], causal=True)[:, 0] @ v,
            ),
        )  # fmt: skip
    yield passed("one-product")


split_heads: Checks = {"split_heads": _split_heads, "merge_heads": _merge_heads, "attend": _attend}


def view_mistakes(flat: list[Tensor], n_head: int, project: nn.Module | None, *, causal: bool) -> Iterator[Mistake]:
    """Heads made with view alone, for some of queries, keys and values.

    Args:
        flat: queries, keys and values, (B, T, H*D) each.
        project: from the merged heads to the output.
    """
    assert project is not None
    right = [x.unflatten(-1, (n_head, -1)).transpose(1, 2) for x in flat]  # (B, H, T, D) each
    viewed = [x.reshape(y.shape) for x, y in zip(flat, right, strict=True)]
    for chosen in product((0, 1), repeat=3):
        if any(chosen):
            q, k, v = (pair[choice] for pair, choice in zip(zip(right, viewed, strict=True), chosen, strict=True))
            heads = attention_weights(q, k, causal=causal) @ v
            yield Mistake("view-without-transpose", project(_merged(heads)))
            yield Mistake("view-without-transpose", project(heads.reshape(flat[0].shape)))


def _split_mistakes(x: Tensor, n_head: int) -> list[Mistake]:
    batch, t, width = x.shape
    d = width // n_head
    return [
        Mistake("view-without-transpose", x.view(batch, n_head, t, d)),
        Mistake("not-transposed", x.view(batch, t, n_head, d)),
        Mistake("width-and-heads/split_mistakes", x.view(batch, t, d, n_head).permute(0, 3, 1, 2)),
    ]


def _merge_mistakes(heads: Tensor) -> list[Mistake]:
    """heads: (B, H, T, D)."""
    batch, n_head, t, d = heads.shape
    return [
        Mistake("merged-without-transpose/merge_mistakes", heads.reshape(batch, t, n_head * d)),
        Mistake("width-and-heads/merge_mistakes", heads.permute(0, 2, 3, 1).reshape(batch, t, n_head * d)),
        Mistake("not-merged/heads", heads),
        Mistake("sizes-exchanged/heads", heads.transpose(1, 2).reshape(batch, n_head, t * d)),
        Mistake("heads-added/merge_mistakes", heads.sum(1)),
    ]


def output_projection(code: Code) -> Steps:
    """Multi-head attention with the names of the production module."""
    names = [*(f"{name}_proj.weight" for name in "qkvo"), "o_proj.bias"]
    for d_in, width, n_head, t in ((12, 12, 3, 9), (8, 12, 3, 5), (6, 10, 2, 7)):
        ours = code.module("MultiHeadAttention", d_in, width, n_head)
        require_no_bias(ours)
        require_parameters(ours, names)
        theirs = MultiHeadAttention(d_in, width, n_head)
        copy_parameters(theirs, ours, {name: name for name in names})
        x = hidden(2, t, d_in, scale=3)
        flat = [p(x) for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj)]
        q, k, v = (
            p(x).unflatten(-1, (n_head, -1)).transpose(1, 2) for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        )
        heads = attention_weights(q, k, causal=True) @ v  # (B, H, T, D)
        given = run_with_heads(lambda: run_module(ours, x, whole=True))  # noqa: B023
        compare(
            given,
            theirs(x, causal=True),
            *projection_mistakes(heads, theirs),
            *view_mistakes(flat, n_head, theirs.o_proj, causal=True),
            *attention_mistakes(
                q, k, v, causal_mask(t, t), widths={"d_out": width, "n_head": n_head, "T": t},
                finish=projected(theirs),
            ),
        )  # fmt: skip
        require_gradients(given, ours)
    compare(ours(x, causal=False), theirs(x), Mistake("always-masked", theirs(x, causal=True)))
    biased = code.module("MultiHeadAttention", 6, 10, 2, True)
    theirs = MultiHeadAttention(6, 10, 2, qkv_bias=True)
    copy_parameters(theirs, biased, {name: name for name, _ in theirs.named_parameters()})
    compare(biased(x), theirs(x, causal=True))
    yield passed("equals-production-attention")
    check_dropout(
        lambda rate: code.module("MultiHeadAttention", 12, 12, 3, False, rate),
        lambda module, x: list(module.v_proj(x).chunk(3, dim=-1)),
        12,
        after="o_proj",
    )
    yield passed("dropout-on-weights")
    require_one_device(ours, x)
    yield passed("mask-on-device")


def projected(theirs: MultiHeadAttention) -> Callable[[Tensor], Tensor]:
    """Return the function from the heads, (B, H, T, D), to the output of a module, (B, T, d_out)."""
    project = theirs.o_proj
    assert project is not None
    return lambda heads: project(_merged(heads))


def _merged(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(-2)  # (B, T, H*D)


def projection_mistakes(heads: Tensor, theirs: MultiHeadAttention) -> list[Mistake]:
    """Mistakes between the heads, (B, H, T, D), and the output."""
    project = theirs.o_proj
    assert project is not None
    merged = _merged(heads)
    return [
        Mistake("not-projected", merged),
        Mistake("merged-without-transpose/projection_mistakes", project(heads.reshape(merged.shape))),
        Mistake("projected-twice", project(project(merged))),
    ]
