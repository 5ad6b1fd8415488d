"""Tensors by their names and by ours: what the tables of all stock classes have in common.

A table has a row for each stock tensor: which of our parameters make it up, one below the other, and what else
differs. Reading and writing are the same rows from either side.
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
    """How a stock tensor differs from ours: `out` makes theirs from ours, `back` ours from theirs."""

    out: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


SAME = Change(lambda tensor: tensor, lambda tensor: tensor)
TRANSPOSED = Change(lambda tensor: tensor.T, lambda tensor: tensor.T)


@dataclass(frozen=True)
class Row:
    """The parameters of ours that make up one stock tensor, one below the other, and what else differs."""

    ours: tuple[str, ...]
    change: Change = SAME


class Format(ABC, Generic[C]):
    """One stock class: its tensors in terms of ours, and what has to be put right on the way."""

    @abstractmethod
    def rows(self, config: C) -> dict[str, Row]:
        """The row of each tensor that `save_pretrained` of the stock class writes, by its name."""

    def tidied(self, config: C, tensors: Tensors) -> Tensors:
        """The tensors of a file under the names of `rows`, without those that hold nothing new."""
        return tensors

    def fitted(self, config: C, tensors: Tensors) -> C:
        """The configuration, corrected by what a file has."""
        return config

    def leaving(self, config: C, parameters: Tensors) -> tuple[C, Tensors]:
        """Our configuration and parameters as the stock class can express them."""
        return config, parameters

    def arriving(self, config: C, parameters: Tensors) -> Tensors:
        """Our parameters, all of them, from those that `rows` speak of."""
        return parameters


def pairs(names: Mapping[str, str]) -> dict[str, Row]:
    """Rows for the weight and the bias of each layer: {their layer: our layer}."""
    return {f"{their}.{kind}": Row((f"{our}.{kind}",)) for their, our in names.items() for kind in ("weight", "bias")}


def numbered(rows: Mapping[str, Row], count: int) -> dict[str, Row]:
    """Each row that has an {i} in its names `count` times, from 0 on; the others once."""
    return {
        their.format(i=i): Row(tuple(our.format(i=i) for our in row.ours), row.change)
        for their, row in rows.items()
        for i in range(count if "{i}" in their else 1)
    }


def to_theirs(rows: Mapping[str, Row], parameters: Tensors) -> Tensors:
    """Stock tensors by name, from our parameters by name."""
    return {
        their: row.change.out(torch.cat([parameters[our] for our in row.ours])).contiguous()
        for their, row in rows.items()
    }


def to_ours(config: ModelConfig, rows: Mapping[str, Row], tensors: Tensors, where: str) -> Tensors:
    """Our parameters by name, from stock tensors by name.

    Raises:
        RunError: tensors are missing, unknown or of another shape; all are listed.
    """
    with torch.device("meta"):  # shapes without numbers
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
