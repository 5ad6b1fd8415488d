"""Conversion tables between tensors of stock classes and parameters of jumok.

A table has one row for each stock tensor. The row names the parameters of jumok whose concatenation is the tensor, and
a change such as a transposition. The same rows are used in both directions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from jumok.config import ModelConfig
from jumok.errors import RunError
from jumok.models import build
from jumok.models.tensors import misfits

C = TypeVar("C", bound=ModelConfig)
Tensors = dict[str, Tensor]


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

    def normalised(self, config: C, tensors: Tensors) -> Tensors:
        """Return the tensors of a file with the names of `rows`, without redundant ones."""
        return tensors

    def adjusted(self, config: C, tensors: Tensors) -> C:
        """Return the configuration, adjusted to the tensors of a file."""
        return config

    def for_export(self, config: C, parameters: Tensors) -> tuple[C, Tensors]:
        """Return an equivalent configuration and parameters that the stock class can express."""
        return config, parameters

    def after_import(self, config: C, parameters: Tensors) -> Tensors:
        """Return all parameters of jumok from those in `rows`."""
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


def to_theirs(rows: Mapping[str, Row], parameters: Tensors) -> Tensors:
    """Convert parameters of jumok to tensors of the stock class, both by name."""
    return {
        their: row.change.out(torch.cat([parameters[our] for our in row.ours])).contiguous()
        for their, row in rows.items()
    }


def to_ours(config: ModelConfig, rows: Mapping[str, Row], tensors: Tensors, where: str) -> Tensors:
    """Convert tensors of the stock class to parameters of jumok, both by name.

    Raises:
        RunError: tensors are missing, are unknown, or have another shape; the message lists all of them.
    """
    with torch.device("meta"):  # only the shapes are needed
        shapes = {name: tensor.shape for name, tensor in build(config).state_dict().items()}
    blank = {our: torch.empty(shapes[our], device="meta") for row in rows.values() for our in row.ours}
    wanted = {their: tensor.shape for their, tensor in to_theirs(rows, blank).items()}
    faults = misfits(tensors, wanted)
    if faults:
        raise RunError(
            "the tensors of {where} do not fit its config.json: {faults}.", where=where, faults="; ".join(faults)
        )
    parameters: Tensors = {}
    for their, row in rows.items():
        parts = row.change.back(tensors[their]).split([shapes[our][0] for our in row.ours])
        parameters.update(zip(row.ours, parts, strict=True))
    return parameters
