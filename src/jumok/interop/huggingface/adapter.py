"""LoRA adapters (https://arxiv.org/abs/2106.09685) for a stock class, in the files of the `peft` library.

An adapter of a matrix (out, in) is two factors: A, (rank, in), and B, (out, rank). The matrix becomes W + scale B A.
`peft` adapts the modules of the stock class, so factors are renamed as parameters are. Where one stock tensor is the
concatenation of several parameters, as in GPT-2, its factors are the A below each other and the B as a block-diagonal
matrix. That is the same sum, of the rank of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.config import ModelConfig
from jumok.config.huggingface import stock_class
from jumok.errors import JumokError
from jumok.interop.huggingface.convert import FORMATS
from jumok.interop.huggingface.tensors import TRANSPOSED, Row, Tensors
from jumok.models import build

PREFIX = "base_model.model."  # of all names in peft's files


class Factors(NamedTuple):
    """A, (rank, in), and B, (out, rank)."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True, kw_only=True)
class StockAdapter:
    """The content of the files of peft for an adapter.

    tensors: by their names in adapter_model.safetensors. modules: that are adapted, by the ends of their names.
    ranks: of those whose rank is another one. trained: modules that are stored as a whole. transposed: the stock class
    has the matrices transposed.
    """

    tensors: Tensors
    modules: list[str]
    ranks: dict[str, int]
    trained: list[str]
    transposed: bool
    stock: bool


def to_stock_adapter(config: ModelConfig, factors: Mapping[str, Factors], whole: Tensors) -> StockAdapter:
    """Convert the adapters of a model to those of its stock class, or leave them as they are if it has none.

    Args:
        factors: by the name of the matrix in jumok, all of one rank. whole: parameters that were trained themselves,
            by name.
    """
    stock = _rows(config)
    rows = stock
    if rows is None:
        rows = {name: Row((name,)) for name in (*(f"{matrix}.weight" for matrix in factors), *whole)}
    rank = next(iter(factors.values())).a.shape[0]
    tensors: Tensors = {}
    modules: dict[str, int] = {}  # ranks
    trained: set[str] = set()
    transposed = False
    for their, row in rows.items():
        module = their.rpartition(".")[0]
        parts = [factors.get(our.removesuffix(".weight")) for our in row.ours if our.endswith(".weight")]
        adapted = [part for part in parts if part is not None]
        if adapted and len(adapted) == len(parts):
            a, b = torch.cat([part.a for part in adapted]), torch.block_diag(*(part.b for part in adapted))
            transposed = transposed or row.change is TRANSPOSED
            b = b if row.change is TRANSPOSED else row.change.out(b)  # which moves rows, if anything
            tensors[f"{PREFIX}{module}.lora_A.weight"] = a.contiguous()
            tensors[f"{PREFIX}{module}.lora_B.weight"] = b.contiguous()
            modules[_end(module)] = len(parts) * rank
        elif all(our in whole for our in row.ours):
            tensors[PREFIX + their] = row.change.out(torch.cat([whole[our] for our in row.ours])).contiguous()
            trained.add(module)
    return StockAdapter(
        tensors=tensors,
        modules=sorted(modules),
        ranks={name: found for name, found in modules.items() if found != rank},
        trained=sorted(trained),
        transposed=transposed,
        stock=stock is not None,
    )


def _rows(config: ModelConfig) -> dict[str, Row] | None:
    """Return the table of the stock class; None without such a class, or if an export changes more than the table says.

    An export may pad heads or reorder coordinates, which would change the factors of a matrix in another way.
    """
    try:
        stock = FORMATS[stock_class(config)]
        with torch.device("meta"):
            parameters = build(config).state_dict()
        _, exported = stock.for_export(config, parameters)
    except JumokError:
        return None
    return dict(stock.rows(config)) if exported is parameters else None


def _end(module: str) -> str:
    """Return the name of a module after the number of its layer: attn.c_attn of transformer.h.0.attn.c_attn."""
    parts = module.split(".")
    numbered = [i for i, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbered[-1] + 1 :]) if numbered else module
