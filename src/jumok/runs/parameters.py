"""The tensors of a model by name, and safetensors files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from jumok.errors import RunError
from jumok.files import atomic_path, sha256_of
from jumok.models.tensors import misfits

if TYPE_CHECKING:
    from torch import Size, Tensor, nn

# --- in memory --------------------------------------------------------------------------------------------------------


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by name; a shared tensor occurs once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach().contiguous()
    return tensors


def restore_parameters(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load tensors by name into a model.

    Args:
        where: the file, for the message.

    Raises:
        RunError: tensors are missing, are unknown, or have another shape; the message lists all of them.
    """
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    require_fit(shapes, {name: tensor.shape for name, tensor in parameters_of(model).items()}, where)
    model.load_state_dict(dict(tensors), strict=False)  # not strict: a shared tensor occurs under one name


def require_fit(found: Mapping[str, Size], expected: Mapping[str, Size], where: str) -> None:
    """Raise RunError if shapes by name are not those of a model; the message lists all differences.

    Args:
        where: the file, for the message.
    """
    if faults := misfits(found, expected):
        raise RunError(
            "{where} does not fit the model of config.json: {faults}.", where=where, faults="; ".join(faults)
        )


def adopt_parameters(model: nn.Module, other: nn.Module) -> list[str]:
    """Copy the tensors of `other` that have the same name and shape in `model`; return the names of the others.

    The classifier is copied only if both models have the same labels, because each of its rows belongs to a label. If
    the tokenizer of `model` has more ids than that of `other`, their rows of the embedding and of the output layer are
    the mean of the rows of the other ids.
    """
    wanted, found = model.state_dict(), other.state_dict()
    labels = [getattr(one.config, "labels", ()) for one in (model, other)]
    old, new = (getattr(getattr(one, "tokenizer", None), "vocab_size", 0) for one in (other, model))
    grown = {name: _grown(found[name], wanted[name], old, new) for name in _BY_ID if name in found and 0 < old < new}
    shared = {
        name: tensor
        for name, tensor in found.items()
        if name in wanted
        and wanted[name].shape == tensor.shape
        and not (name.startswith("classifier.") and labels[0] != labels[1])
    }
    model.load_state_dict(shared | grown, strict=False)
    return [name for name in parameters_of(model) if name not in shared or name in grown]


_BY_ID = ("token_embedding.weight", "head.weight")  # matrices with a row for each id


def _grown(rows: Tensor, wanted: Tensor, old: int, new: int) -> Tensor:
    """Return the rows of ids: those up to `old`, their mean up to `new`, then what is left of both."""
    import torch

    mean = rows[:old].float().mean(0).expand(new - old, -1)
    return torch.cat((rows[:old].to(wanted), mean.to(wanted), rows[new:].to(wanted)))


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """Return the size of tensors in bytes."""
    return sum(tensor.nbytes for tensor in tensors.values())


# --- in files ---------------------------------------------------------------------------------------------------------


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically."""
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def numbers_in(path: Path) -> int:
    """Return the number of elements in a safetensors file; only its header is read.

    Raises:
        SafetensorError, OSError: the file is missing or damaged.
    """
    with safe_open(path, framework="np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  # no mapping


def matches_sha256(path: Path, sha256: str) -> bool:
    """Return whether a file has this SHA-256; False if it cannot be read."""
    try:
        return sha256_of(path) == sha256
    except OSError:
        return False
