"""Conversion tables between tensors of stock classes and parameters of jumok.

A table has one row for each stock tensor. The row names the parameters of jumok whose concatenation is the tensor, and
a change such as a transposition. The same rows are used in both directions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from jumok.config import ModelConfig
from jumok.errors import RunError
from jumok.messages import tr
from jumok.models import Model
from jumok.models.tensors import misfits

C = TypeVar("C", bound=ModelConfig)
Tensors = dict[str, Tensor]
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_FAULTS = 40  # in a message


@dataclass(frozen=True)
class Change:
    """The change of a tensor: `out` converts from jumok to the stock class, `back` is the inverse."""

    out: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


SAME = Change(lambda tensor: tensor, lambda tensor: tensor)
TRANSPOSED = Change(lambda tensor: tensor.T, lambda tensor: tensor.T)


@dataclass(frozen=True)
class Row:
    """The parameters of jumok whose concatenation over rows is one stock tensor, and the change of the result."""

    ours: tuple[str, ...]
    change: Change = SAME


class Format(ABC, Generic[C]):
    """The conversion of one stock class: its table, and corrections that a table cannot express."""

    @abstractmethod
    def rows(self, config: C) -> dict[str, Row]:
        """Return the row of each tensor that `save_pretrained` of the stock class writes, by its name."""

    def normalised(self, config: C, tensors: Tensors, where: str) -> Tensors:
        """Return the tensors of a file with the names of `rows`, without redundant ones.

        Args:
            where: the folder, for messages.

        Raises:
            RunError: a tensor that must be the same as another one differs from it.
        """
        return tensors

    def adjusted(self, config: C, tensors: Tensors) -> C:
        """Return the configuration, adjusted to the tensors of a file."""
        return config

    def for_export(self, config: C, parameters: Tensors) -> tuple[C, Tensors]:
        """Return an equivalent configuration and parameters that the stock class can express."""
        return config, parameters

    def after_import(self, config: C, parameters: Tensors) -> Tensors:
        """Return the parameters of jumok from those of some rows or of all."""
        return parameters


def pairs(names: Mapping[str, str]) -> dict[str, Row]:
    """Return rows for weight and bias of each layer; `names` maps stock layers to layers of jumok."""
    return {f"{their}.{kind}": Row((f"{our}.{kind}",)) for their, our in names.items() for kind in ("weight", "bias")}


def numbered(rows: Mapping[str, Row], count: int) -> dict[str, Row]:
    """Repeat each row with {i} in its name for i from 0 to `count` - 1; other rows are kept."""
    return {
        their.format(i=i): Row(tuple(our.format(i=i) for our in row.ours), row.change)
        for their, row in rows.items()
        for i in range(count if "{i}" in their else 1)
    }


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of any types have the same shape and values."""
    return a.shape == b.shape and torch.equal(a, b.to(a.dtype)) and torch.equal(a.to(b.dtype), b)


def merged(tensors: Tensors, kept: str, copies: Sequence[str], where: str) -> Tensors:
    """Return the tensors without the copies of a shared one, which is read from a copy if the file lacks it.

    A stock class that finds different values under two names of a tied tensor uses both. Models that cannot do that
    would compute something else.

    Args:
        kept: the name of the shared tensor.
        copies: its other names.
        where: the folder, for messages.

    Raises:
        RunError: a copy differs from the shared tensor.
    """
    tensors = dict(tensors)
    for name in copies:
        if name not in tensors:
            continue
        copy = tensors.pop(name)
        if not same(tensors.setdefault(kept, copy), copy):
            raise RunError(
                "{where}: {name} differs from {kept}. Both are one tensor in this architecture, and jumok has no model "
                "with two. If only one of them was trained, remove the other from the file.",
                where=where,
                name=name,
                kept=kept,
            )
    return tensors


def to_theirs(rows: Mapping[str, Row], parameters: Tensors) -> Tensors:
    """Convert parameters of jumok to tensors of the stock class, both by name."""
    return {
        their: row.change.out(torch.cat([parameters[our] for our in row.ours])).contiguous()
        for their, row in rows.items()
    }


@torch.no_grad()
def fill(model: Model, stock: Format[Any], tensors: Tensors, where: str) -> None:
    """Copy tensors of the stock class into the parameters of a model. Each is freed when it is copied.

    Args:
        tensors: by name, of any floating-point type; emptied.
        where: the folder, for messages.

    Raises:
        RunError: tensors are missing, are unknown, or have another shape or type; the message lists them, and the model
            is unchanged.
    """
    named = stock.normalised(model.config, tensors, where)
    if named is not tensors:
        tensors.clear()
    own, rows = model.state_dict(), stock.rows(model.config)
    _require_fit(named, rows, own, where)
    for their in list(named):  # in the order of the files
        row = rows[their]
        pieces = row.change.back(named.pop(their)).split([own[our].shape[0] for our in row.ours])
        part = stock.after_import(model.config, dict(zip(row.ours, pieces, strict=True)))
        for name, tensor in part.items():
            own[name].copy_(tensor)


def _require_fit(tensors: Tensors, rows: Mapping[str, Row], own: Mapping[str, Tensor], where: str) -> None:
    blank = {our: torch.empty_like(own[our], device="meta") for row in rows.values() for our in row.ours}
    wanted = {their: tensor.shape for their, tensor in to_theirs(rows, blank).items()}
    faults = misfits({name: tensor.shape for name, tensor in tensors.items()}, wanted)
    faults += [
        tr("{name} is of type {type}, as in a quantised model", name=name, type=str(one.dtype).removeprefix("torch."))
        for name, one in tensors.items()
        if one.dtype not in DTYPES
    ]
    if faults:
        more = [tr("and {count} more", count=len(faults) - MOST_FAULTS)] if len(faults) > MOST_FAULTS else []
        raise RunError(
            "the tensors of {where} do not fit its config.json: {faults}.",
            where=where,
            faults="; ".join(faults[:MOST_FAULTS] + more),
        )
