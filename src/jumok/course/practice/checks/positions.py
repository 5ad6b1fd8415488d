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
    Steps,
    compare,
    hidden,
    passed,
    require,
    require_tensor,
    result_of,
    results,
    same,
)
from jumok.course.practice.checks.attention import qkv
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import positions

BERT = (30_522, 768)  # vocab_size and hidden_size of the config of bert-base-uncased


def learned_positions(code: Code) -> Steps:
    """A table of positions, of which the first T rows are added to each sequence."""
    own = code.module("LearnedPositions", 9, 6)
    table = nn.Embedding(9, 6)
    fill(table)
    copy_parameters(nn.ModuleDict({"table": table}), own)
    yield passed("table-size")
    x = hidden(3, 5, 6)
    with torch.no_grad():
        compare(result_of(own, x), x + table.weight[:5])
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
    require(all(device == away.device for device in devices), "device")


def sinusoidal_positions(code: Code) -> Steps:
    """The table of the 2017 paper: sine and cosine in turn."""
    function = code.function("sinusoidal")
    right = positions.sinusoidal(9, 12)
    compare(function(9, 12), right)
    yield passed("table-of-the-paper")
    compare(function(4, 10), positions.sinusoidal(4, 10))
    products = right @ right.T
    yield passed("products-depend-on-distance", near=products[2, 5].item(), far=products[5, 8].item())


LENGTH, WIDTH = 5, 8  # of what is rotated


def _rotary(code: Code) -> Steps:
    """Check the table of angles."""
    given = code.function("rotary")(LENGTH, WIDTH)
    require(isinstance(given, tuple) and len(given) == 2, "two-results")
    for result, wanted in zip(given, positions.rotary(LENGTH, WIDTH), strict=True):
        compare(result, wanted)
    yield passed("angles")


def _rotate(code: Code) -> Steps:
    """Check the rotation of pairs (i, i + D/2)."""
    cos, sin = positions.rotary(LENGTH, WIDTH)
    x = hidden(2, 3, LENGTH, WIDTH)
    compare(result_of(code.function("rotate"), x, cos, sin), positions.rotate(x, cos, sin))
    _require_distance(code.function("rotate"))
    yield passed("distance-only")


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention with rotated queries and keys, and values that are not rotated."""
    cos, sin = positions.rotary(q.shape[-2], q.shape[-1])
    rotated = positions.rotate(q, cos, sin), positions.rotate(k, cos, sin)
    return F.scaled_dot_product_attention(*rotated, v, is_causal=True)


rotary_positions: Checks = {
    "rotary": _rotary,
    "rotate": _rotate,
    "attend": results("attend", _attended, {"queries-and-keys-rotated": [qkv(2, 3, t=LENGTH, s=LENGTH, d=WIDTH)]}),
}


def _require_distance(rotate: Any) -> None:
    """Products of rotated vectors, at positions with the same distance, are equal."""
    cos, sin = positions.rotary(12, 8)
    q, k = (hidden(1, 1, 1, 8, seed=seed).expand(1, 1, 12, 8) for seed in (4, 5))
    scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-2, -1)  # (1, 1, 12, 12), equal along each diagonal
    compare(scores[..., 1:, 1:], scores[..., :-1, :-1], tolerance=1e-4)


VOCABULARY = 7
IDS = torch.tensor([[3, 0, 5, 3], [1, 1, 4, 2], [5, 2, 0, 1]])  # (B, T); the last id, 6, does not occur


def _one_hot(code: Code) -> Steps:
    """Check one-hot vectors."""
    hot = F.one_hot(IDS, VOCABULARY)
    given = require_tensor(result_of(code.function("one_hot"), IDS, VOCABULARY))
    require(given.is_floating_point() or not same(given, hot), "not-float")
    compare(given, hot.float())
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
    require(product.requires_grad, "no-gradient/graph")
    touched = torch.autograd.grad(product.sum(), learned)[0].abs().sum(dim=1) > 0
    yield passed("both-ways", rows=vocabulary, touched=int(touched.sum()))


def _parameter_count(code: Code) -> Steps:
    """Check the number of parameters."""
    wanted, count = BERT[0] * BERT[1], code.function("parameter_count")(*BERT)
    require(count == wanted, "count", count=count)
    yield passed("parameters-of-bert", count=wanted)


embedding: Checks = {
    "look_up": results("look_up", lambda ids, table: table[ids], {"rows-looked-up": [(IDS, hidden(VOCABULARY, 11))]}),
    "one_hot": _one_hot,
    "multiply": _multiply,
    "parameter_count": _parameter_count,
}


class _Products(TorchDispatchMode):
    """Counts the products that are computed within the block."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in ("aten.mm", "aten.bmm", "aten.mul", "aten.addmm"))
        return func(*args, **(kwargs or {}))
