"""How a wrong result differs from the right one: where, and in which relation the values stand.

Each finding is the key of a text in checking.toml, [difference.KEY], and the values of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

Finding = tuple[str, dict[str, Any]]
FEW = 3  # indices that are listed one by one
MOSTLY = 0.8  # from this share on, the right entries are taken to be so by chance
SMALL = 1e-6  # a factor below this is none
ROUNDED = 5e-4  # a sum nearer to one than this is written as 1


def places(wrong: Tensor) -> list[Finding]:
    """Return where the wrong entries are. wrong: bool, True where an entry is wrong; it has a dimension."""
    if (triangle := _triangle(wrong)) is not None:
        return [(triangle, {})]
    found: list[Finding] = []
    for dim in range(wrong.dim()):
        indices = wrong.movedim(dim, 0).flatten(1).any(1) if wrong.dim() > 1 else wrong
        listed, others = (each.nonzero().flatten().tolist() for each in (indices, ~indices))
        if len(others) > 0 and len(listed) <= FEW:
            found.append(("one-index", {"listed": ", ".join(map(str, listed)), "dim": dim}))
        elif 0 < len(others) <= FEW:
            found.append(("right-index", {"listed": ", ".join(map(str, others)), "dim": dim}))
        elif len(others) and listed == list(range(listed[0], listed[-1] + 1)):
            found.append(("range", {"first": listed[0], "last": listed[-1], "dim": dim}))
        elif len(others) and listed == list(range(listed[0], listed[-1] + 1, 2)):
            found.append(("every-second", {"first": listed[0], "second": listed[1], "dim": dim}))
    share = wrong.double().mean().item()
    return found or [("everywhere" if share == 1 else "scattered" if share < MOSTLY else "nearly-everywhere", {})]


def _triangle(wrong: Tensor) -> str | None:
    """Say whether the wrong entries of square matrices are all above, below or on the diagonal."""
    if wrong.dim() < 2 or wrong.shape[-2] != wrong.shape[-1] or wrong.shape[-1] < 2:
        return None
    row, column = wrong.flatten(0, -3).any(0).nonzero().T if wrong.dim() > 2 else wrong.nonzero().T
    sides = {"on-diagonal": row == column, "above-diagonal": row < column, "below-diagonal": row > column}
    return next((key for key, inside in sides.items() if bool(inside.all())), None)


def relation(given: Tensor, right: Tensor, tolerance: float) -> Finding | None:
    """Return how the values differ, where one rule says it of all: the first that holds."""
    return next(_relations(given, right, tolerance), None)


def _relations(given: Tensor, right: Tensor, tolerance: float) -> Iterator[Finding]:
    """Yield the relations that hold. Both are float64, of the same shape."""

    def same(a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and torch.allclose(a, b, rtol=10 * tolerance, atol=tolerance)

    finite = given.isfinite() & right.isfinite()
    if bool((given.isfinite() != right.isfinite()).any()):
        yield ("infinite" if bool(right.isfinite().all()) else "infinite-elsewhere", {})
    if not bool(finite.all()):
        return
    if not bool(given.any()):
        yield "all-zero", {}
    if same(given, -right):
        yield "opposite-sign", {}
    single = right.numel() == 1
    factor = (given * right).sum() / (right * right).sum().clamp(min=1e-30)
    if same(given, factor * right) and factor.abs() > SMALL and (not single or _is_plain(factor.item())):
        yield "factor", {"factor": factor.item()}
    if not single and same(given - right, (given - right).flatten()[0].expand_as(right)):
        yield "offset", {"offset": (given - right).flatten()[0].item()}
    if given.dim() and given.numel() > 1:
        yield from _arrangements(given, right, same)
        yield from _along_rows(given, right, same)


def _is_plain(factor: float) -> bool:
    """Return whether a factor is a whole number or one over a whole number, so that it tells something of one value."""
    larger = max(abs(factor), 1 / abs(factor))
    return larger < 1000 and abs(larger - round(larger)) < 1e-4


def _arrangements(given: Tensor, right: Tensor, same: Any) -> Iterator[Finding]:
    """Yield what is said of right values at wrong places."""
    if given.dim() > 1 and same(given, right.transpose(-2, -1)):
        yield "transposed", {}
    for dim in range(given.dim()):
        size = given.shape[dim]
        if same(given, right.flip(dim)):
            yield "flipped", {"dim": dim}
        if size > 2 and same(given.narrow(dim, 1, size - 1), right.narrow(dim, 0, size - 1)):
            yield "late", {"dim": dim}
        if size > 2 and same(given.narrow(dim, 0, size - 1), right.narrow(dim, 1, size - 1)):
            yield "early", {"dim": dim}
    if same(given.flatten().sort().values, right.flatten().sort().values):
        yield "other-order", {}


def _along_rows(given: Tensor, right: Tensor, same: Any) -> Iterator[Finding]:
    """Yield what is said of rows, the vectors of the last dimension, and of the others."""
    ones = torch.ones(right.shape[:-1], dtype=right.dtype)
    if bool((right >= 0).all()) and same(right.sum(-1), ones) and not same(given.sum(-1), ones):
        sums = given.sum(-1).flatten()
        if (sums - 1).abs().max() > ROUNDED:
            yield "row-sums", {"sum": sums[(sums - 1).abs().argmax()].item()}
    for dim in range(given.dim()):
        size = given.shape[dim]
        if size < 2:
            continue
        first = given.narrow(dim, 0, 1).expand_as(given)
        if same(given, first) and not same(right, right.narrow(dim, 0, 1).expand_as(right)):
            yield "the-same", {"dim": dim}
    for dim in range(given.dim()):
        if given.dim() < 2 or given.shape[dim] < 2:
            continue
        factors = (given * right).sum(dim, keepdim=True) / (right * right).sum(dim, keepdim=True).clamp(min=1e-30)
        if same(given, factors * right) and bool((factors.abs() > SMALL).all()):
            yield "factors", {"dim": dim}
        gap = given - right
        if same(gap, gap.narrow(dim, 0, 1).expand_as(gap)):
            yield "offsets", {"dim": dim}
