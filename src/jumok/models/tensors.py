"""Tensors by name: read from a safetensors file, compared with what a model needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load, load_file
from torch import Tensor

from jumok.messages import tr


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, mapped into memory.

    A file whose path is not UTF-8, which torch refuses, is read instead.

    Raises:
        SafetensorError, OSError: it is damaged, or cannot be read.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return load(path.read_bytes())
    return load_file(path)


def misfits(tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> list[str]:
    """A sentence for each tensor that is missing, unknown, or not of the shape that `shapes` has for its name."""
    faults = [tr("{name} is missing", name=name) for name in shapes if name not in tensors]
    faults += [tr("{name} is unknown", name=name) for name in tensors if name not in shapes]
    faults += [
        tr("{name} is {found}, not {expected}", name=name, found=tuple(tensors[name].shape), expected=tuple(shape))
        for name, shape in shapes.items()
        if name in tensors and tensors[name].shape != shape
    ]
    return faults
