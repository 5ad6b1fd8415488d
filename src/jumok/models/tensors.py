"""Tensors by name: loading from a safetensors file, and comparison with the shapes of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jumok.messages import tr

if TYPE_CHECKING:  # comparing shapes needs no torch
    from torch import Tensor

SUFFIXES = (".safetensors", ".bin")  # of files of tensors


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, mapped into memory.

    A file whose path is not valid UTF-8 is read instead, because torch cannot map it.

    Raises:
        SafetensorError, OSError: the file is damaged or cannot be read.
    """
    from safetensors.torch import load, load_file

    return load_file(path) if can_map(path) else load(path.read_bytes())


def can_map(path: Path) -> bool:
    """Return whether torch can map a file into memory, for which its path must be valid UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def misfits(found: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Return a message for each tensor that is missing, is unknown, or has another shape than in `shapes`.

    Args:
        found, shapes: shapes by the names of the tensors.
    """
    faults = [tr("{name} is missing", name=name) for name in shapes if name not in found]
    faults += [tr("{name} is unknown", name=name) for name in found if name not in shapes]
    faults += [
        tr("{name} is {found}, not {expected}", name=name, found=tuple(found[name]), expected=tuple(shape))
        for name, shape in shapes.items()
        if name in found and tuple(found[name]) != tuple(shape)
    ]
    return faults
