"""The tensors of a model by name, and the file model.safetensors."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from jumok.errors import RunError
from jumok.files import atomic_path
from jumok.models.tensors import misfits

# --- in memory --------------------------------------------------------------------------------------------------------


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name, a shared one once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach().contiguous()
    return tensors


def restore_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load tensors by name into a model.

    Args:
        where: the file, for the message.

    Raises:
        RunError: some are missing, unknown, or of another shape; all are listed.
    """
    faults = misfits(tensors, {name: tensor.shape for name, tensor in weights(model).items()})
    if faults:
        raise RunError(
            "{where} does not fit the model of config.json: {faults}.", where=where, faults="; ".join(faults)
        )
    model.load_state_dict(dict(tensors), strict=False)  # not strict: the second name of a shared tensor is absent


def adopt_weights(model: nn.Module, other: nn.Module) -> None:
    """Copy what both models have by the same name and shape; the rest of `model` keeps its first weights.

    A classifier of other labels is not copied, even if their number is the same: its rows belong to those labels.
    """
    wanted = model.state_dict()
    labels = [getattr(one.config, "labels", ()) for one in (model, other)]
    shared = {
        name: tensor
        for name, tensor in other.state_dict().items()
        if name in wanted
        and wanted[name].shape == tensor.shape
        and not (name.startswith("classifier.") and labels[0] != labels[1])
    }
    model.load_state_dict(shared, strict=False)


def size_of(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that tensors take."""
    return sum(tensor.nbytes for tensor in tensors.values())


# --- in files ---------------------------------------------------------------------------------------------------------


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file atomically."""
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def numbers_in(path: Path) -> int:
    """How many numbers a safetensors file holds, by its header.

    Raises:
        SafetensorError, OSError: it is missing or damaged.
    """
    with safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  # no mapping


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def holds(path: Path, sha256: str) -> bool:
    """Whether the content of a file has this sha256; False for a file that cannot be read."""
    try:
        return sha256_of(path) == sha256
    except OSError:
        return False


def replace_by_copy(path: Path, source: Path) -> None:
    """Put a copy of `source` in the place of `path`, atomically."""
    with atomic_path(path) as temporary:
        shutil.copyfile(source, temporary)


def second_name(path: Path) -> Path:
    """A name under which a file of weights can be kept: model-kept-1.safetensors, or the next that is free.

    If a file of such a name has the same content already, that name.
    """
    names = (path.with_name(f"{path.stem}-kept-{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not name.exists() or sha256_of(name) == sha256_of(path))
