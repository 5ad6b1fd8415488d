"""Checks of the exercises on positions and embeddings."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from jumok.course.practice.checking import (
    Checks,
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    passed,
    raises,
    require,
    require_tensor,
    same,
)
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import positions

BERT = (30_522, 768)  # vocab_size and hidden_size of the config of bert-base-uncased


def learned_positions(code: Code) -> Steps:
    """A table of positions, of which the first T rows are added to each sequence."""
    own = code.module("LearnedPositions", 9, 6)
    table = nn.Embedding(9, 6)
    fill(table)
    holder = nn.ModuleDict({"table": table})
    copy_parameters(holder, own, {"table.weight": "table.weight"})
    yield passed("table-size")
    x, rows = hidden(3, 5, 6), table.weight.detach()
    kept = x.clone()
    with torch.no_grad():
        result = raises("wrong-length/learned_positions", lambda: own(kept), text="must match the size")
        compare(
            result,
            x + rows[:5],
            Mistake("over-batch", x + rows[:3, None]),
            Mistake("same-vector", any_of(*(x + row for row in rows))),
            Mistake("not-added", any_of(rows[:5], rows[:5].expand_as(x))),
            Mistake("from-one/learned_positions", x + rows[1:6]),
            Mistake("last-rows", any_of(x + rows[-5:], x + rows[:5].flip(0))),
        )
        require(torch.equal(kept, x), "in-place/positions")
        yield passed("positions-added")
        require_device(own, own.table, x)
    yield passed("on-device")


def require_device(own: nn.Module, table: Any, x: Tensor) -> None:
    """Move a copy to a device that holds no values, and see on which device it makes the numbers for its table."""
    away = x.to("meta")
    devices: list[torch.device] = []
    hook = table.register_forward_pre_hook(lambda _, inputs: devices.append(inputs[0].device))
    try:
        copy.deepcopy(own).to("meta")(away)
    except RuntimeError:  # tensors of two devices
        pass
    finally:
        hook.remove()
    require(all(device == away.device for device in devices), "device/positions")


def sinusoidal_positions(code: Code) -> Steps:
    """The table of the 2017 paper: sine and cosine in turn."""
    function = code.function("sinusoidal")
    length, width = 9, 12
    right = positions.sinusoidal(length, width)
    t = torch.arange(length).double()[:, None]
    pair = torch.arange(width // 2).double()

    def table(angle: Tensor) -> Tensor:
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()

    angle = t * 10_000.0 ** (-2 * pair / width)
    column = t * 10_000.0 ** (-torch.arange(width).double() / width)
    doubled = t * 10_000.0 ** (-2 * torch.arange(width).double() / width)
    even = torch.arange(width) % 2 == 0
    each = any_of(*(torch.where(even, own.sin(), own.cos()).float() for own in (column, doubled)))
    compare(
        function(length, width),
        right,
        Mistake(
            "halves",
            any_of(*(torch.cat(both, -1).float() for both in ((angle.sin(), angle.cos()), (angle.cos(), angle.sin())))),
        ),
        Mistake("exchanged", torch.stack((angle.cos(), angle.sin()), dim=-1).flatten(1).float()),
        Mistake("per-column", each),
        Mistake("exponent", any_of(table(t * 10_000.0 ** (-pair / width)), table(t * 10_000.0 ** (-4 * pair / width)))),
        Mistake("from-one/sinusoidal_positions", table((t + 1) * 10_000.0 ** (-2 * pair / width))),
        Mistake("multiplied/positions", lambda result: same(result, table(t * 10_000.0 ** (2 * pair / width)), 1e-2)),
    )
    yield passed("table-of-the-paper")
    compare(function(4, 10), positions.sinusoidal(4, 10))
    products = right @ right.T
    yield passed("products-depend-on-distance", near=products[2, 5].item(), far=products[5, 8].item())


LENGTH, WIDTH = 5, 8  # of what is rotated


def _rotary(code: Code) -> Steps:
    """Check the table of angles."""
    length, width = LENGTH, WIDTH
    right = cos, sin = positions.rotary(length, width)
    half_cos, half_sin = cos[:, : width // 2], sin[:, : width // 2]
    given = code.function("rotary")(length, width)
    require(isinstance(given, tuple) and len(given) == 2, "two-results")
    for result, wanted, half, other in zip(given, right, (half_cos, half_sin), (sin, cos), strict=True):
        compare(result, wanted, *_table_mistakes(wanted, half, other))
    yield passed("angles")


def _rotate(code: Code) -> Steps:
    """Check the rotation of pairs (i, i + D/2)."""
    cos, sin = positions.rotary(LENGTH, WIDTH)
    x = hidden(2, 3, LENGTH, WIDTH)
    rotate = code.function("rotate")
    rotated = raises("half-width", lambda: rotate(x.clone(), cos, sin), text="must match the size")
    compare(rotated, positions.rotate(x, cos, sin), *_rotation_mistakes(x, cos, sin))
    _require_distance(rotate)
    yield passed("distance-only")


def _attend(code: Code) -> Steps:
    """Check attention with rotated queries and keys, and values that are not rotated."""
    q, k, v = (hidden(2, 3, LENGTH, WIDTH, seed=seed) for seed in (1, 2, 3))
    attended = raises(
        "wrong-length/attend",
        lambda: code.function("attend")(q.clone(), k.clone(), v.clone()),
        text="must match the size",
    )
    compare(attended, _attended(_turned(q), _turned(k), v), *_attention_mistakes(q, k, v))
    yield passed("queries-and-keys-rotated")


rotary_positions: Checks = {"rotary": _rotary, "rotate": _rotate, "attend": _attend}


def _table_mistakes(wanted: Tensor, half: Tensor, other: Tensor) -> list[Mistake]:
    return [
        Mistake("interleaved-table", half.repeat_interleave(2, dim=-1)),
        Mistake("half-table", half),
        Mistake("exchanged-table", other),
    ]


def _rotation_mistakes(x: Tensor, cos: Tensor, sin: Tensor) -> list[Mistake]:
    a, b = x.chunk(2, dim=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    adjacent = torch.stack((-odd, even), dim=-1).flatten(-2)
    doubled_cos, doubled_sin = (y[:, :half].repeat_interleave(2, dim=-1) for y in (cos, sin))
    first = even * cos[:, :half] - odd * sin[:, :half], odd * cos[:, :half] + even * sin[:, :half]
    return [
        Mistake(
            "interleaved",
            any_of(x * cos + adjacent * sin, x * doubled_cos + adjacent * doubled_sin, torch.cat(first, dim=-1)),
        ),
        Mistake("backwards", x * cos + torch.cat((b, -a), dim=-1) * sin),
        Mistake(
            "no-minus/positions",
            any_of(x * cos + torch.cat((b, a), dim=-1) * sin, x * cos + torch.cat((-b, -a), dim=-1) * sin),
        ),
        Mistake(
            "halves-not-exchanged",
            any_of(x * cos + x * sin, x * cos - x * sin, x * cos + torch.cat((-a, b), dim=-1) * sin),
        ),
    ]


def _require_distance(rotate: Any) -> None:
    """Products of rotated vectors, at positions with the same distance, are equal."""
    cos, sin = positions.rotary(12, 8)
    q, k = (hidden(1, 1, 1, 8, seed=seed).expand(1, 1, 12, 8) for seed in (4, 5))
    scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-2, -1)  # (1, 1, 12, 12), equal along each diagonal
    compare(scores[..., 1:, 1:], scores[..., :-1, :-1], tolerance=1e-4)


def _turned(x: Tensor) -> Tensor:
    return positions.rotate(x, *positions.rotary(x.shape[-2], x.shape[-1]))


def _attended(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _attention_mistakes(q: Tensor, k: Tensor, v: Tensor) -> list[Mistake]:
    width = q.shape[-1]
    return [
        Mistake("values-rotated", _attended(_turned(q), _turned(k), _turned(v))),
        Mistake("one-side", any_of(_attended(_turned(q), k, v), _attended(q, _turned(k), v))),
        Mistake("not-rotated", _attended(q, k, v)),
        Mistake(
            "not-scaled/positions",
            any_of(*(_attended(_turned(q) * width**0.5, _turned(k), v, causal=causal) for causal in (True, False))),
        ),
        Mistake("not-causal/positions", _attended(_turned(q), _turned(k), v, causal=False)),
    ]


VOCABULARY = 7
IDS = torch.tensor([[3, 0, 5, 3], [1, 1, 4, 2], [5, 2, 0, 1]])  # (B, T); the last id, 6, does not occur


def _look_up(code: Code) -> Steps:
    """Check the rows of a table."""
    ids, table = IDS, hidden(VOCABULARY, 11)
    compare(
        code.function("look_up")(ids, table.clone()),
        table[ids],
        Mistake("columns/positions", any_of(table[:, ids], table[:, ids].movedim(0, -1))),
    )
    yield passed("rows-looked-up")


def _one_hot(code: Code) -> Steps:
    """Check one-hot vectors."""
    ids, vocabulary = IDS, VOCABULARY
    hot = F.one_hot(ids, vocabulary)
    given = require_tensor(code.function("one_hot")(ids, vocabulary))
    require(given.is_floating_point() or not same(given, hot), "not-float")
    compare(given, hot.float(), *_one_hot_mistakes(ids, hot))
    yield passed("one-hot-right")


def _multiply(code: Code) -> Steps:
    """Check the product of one-hot vectors and the table."""
    ids, vocabulary, table = IDS, VOCABULARY, hidden(VOCABULARY, 11)
    with _Products() as products:
        given = code.function("multiply")(ids, table.clone())
    compare(given, table[ids])
    require(products.count > 0, "looked-up")
    learned = table.clone().requires_grad_()
    product = code.function("multiply")(ids, learned)
    require(product.requires_grad, "no-gradient/positions")
    touched = torch.autograd.grad(product.sum(), learned)[0].abs().sum(dim=1) > 0
    yield passed("both-ways", rows=vocabulary, touched=int(touched.sum()))


def _parameter_count(code: Code) -> Steps:
    """Check the number of parameters."""
    wanted, count = BERT[0] * BERT[1], code.function("parameter_count")(*BERT)
    require(count == wanted, "count", count=count)
    yield passed("parameters-of-bert", count=wanted)


embedding: Checks = {
    "look_up": _look_up, "one_hot": _one_hot, "multiply": _multiply, "parameter_count": _parameter_count
}  # fmt: skip


class _Products(TorchDispatchMode):
    """Counts the products that are computed within the block."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in ("aten.mm", "aten.bmm", "aten.mul", "aten.addmm"))
        return func(*args, **(kwargs or {}))


def _one_hot_mistakes(ids: Tensor, hot: Tensor) -> list[Mistake]:
    narrow = F.one_hot(ids)
    return [
        Mistake("too-narrow", any_of(narrow, narrow.float())),
        Mistake("flattened", lambda result: result.shape == hot.flatten(0, 1).shape),
    ]
