"""Checks of the exercises on several heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Checks,
    Code,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    require_one_device,
    results,
)
from jumok.course.practice.checks.attention import attended
from jumok.course.practice.checks.attention_modules import check_dropout, compare_module, copy_all
from jumok.nn import MultiHeadAttention


def module_list_heads(code: Code) -> Steps:
    """Heads in an nn.ModuleList, concatenated."""
    for width, n_head, d, length, t in ((6, 3, 4, 9, 5), (10, 2, 3, 7, 7)):
        ours = code.module("ParallelHeads", width, n_head, d, length)
        _require_heads(ours, n_head)
        singles = nn.ModuleList([MultiHeadAttention(width, d, 1, project=False) for _ in range(n_head)])
        copy_all(nn.ModuleDict({"heads": singles}), ours)
        x = hidden(2, t, width, scale=2)
        compare_module(ours, torch.cat([single(x, causal=True) for single in singles], dim=-1), x)
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


def _split(x: Tensor, n_head: int) -> Tensor:
    return x.unflatten(-1, (n_head, -1)).transpose(1, 2)  # (B, H, T, D)


def _merged(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(-2)  # (B, T, H*D)


def _attend(q: Tensor, k: Tensor, v: Tensor, n_head: int) -> Tensor:
    return _merged(attended(_split(q, n_head), _split(k, n_head), _split(v, n_head), causal=True))


def _qkv(batch: int, t: int, n_head: int, d: int) -> tuple[Tensor, Tensor, Tensor, int]:
    q, k, v = (hidden(batch, t, n_head * d, seed=seed, scale=2) for seed in (1, 2, 3))
    return q, k, v, n_head


split_heads: Checks = {
    "split_heads": results("split_heads", _split, {"heads-split": [(hidden(2, 5, 12), 3), (hidden(3, 2, 20), 4)]}),
    "merge_heads": results("merge_heads", _merged, {"heads-merged": [(hidden(2, 3, 5, 4),), (hidden(3, 4, 2, 5),)]}),
    "attend": results("attend", _attend, {"one-product": [_qkv(2, 5, 3, 4), _qkv(3, 4, 2, 7)]}),
}


def output_projection(code: Code) -> Steps:
    """Multi-head attention with the names of the production module."""
    for d_in, width, n_head, t in ((12, 12, 3, 9), (8, 12, 3, 5), (6, 10, 2, 7)):
        ours = code.module("MultiHeadAttention", d_in, width, n_head)
        theirs = MultiHeadAttention(d_in, width, n_head)
        copy_all(theirs, ours)
        x = hidden(2, t, d_in, scale=3)
        compare_module(ours, theirs(x, causal=True), x)
    compare(ours(x, causal=False), theirs(x))
    biased = code.module("MultiHeadAttention", 6, 10, 2, True)
    theirs = MultiHeadAttention(6, 10, 2, qkv_bias=True)
    copy_all(theirs, biased)
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
