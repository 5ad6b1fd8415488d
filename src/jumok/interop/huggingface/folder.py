"""Files of a Hugging Face folder: reading tensors, and writing folders."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from jumok.config.huggingface import read_json
from jumok.errors import RunError
from jumok.files import atomic_folder, make_folder, writing
from jumok.memory import is_out_of_memory
from jumok.models.tensors import SUFFIXES, can_map, load_tensors

FILES = re.compile(
    r"(generation_|tokenizer_)?config\.json|tokenizer\.json|chat_template\.jinja|README\.md|loss\.png"
    r"|model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"
)
MARK = "jumok_version"  # in config.json: the folder is an export of jumok and may be replaced
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists, as one file or with an index


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder, from one file or from the files of an index, in the order of the files.

    They are mapped into memory: bytes are read on first use, and freed with the last tensor of their file. Pickles of
    torch before 1.6 cannot be mapped and are read.

    Raises:
        RunError: a file is missing or damaged, or a pickle contains other objects than tensors.
    """
    tensors = {}
    for path in _weight_files(folder):
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            raise RunError("{folder} has no {name}; restore it from a copy.", folder=folder, name=path.name[:300])
        tensors.update(_read_pickle(path) if path.suffix == ".bin" else _read_safetensors(path))
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    for name in WEIGHTS:
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / shard for shard in _shards(index)]
        if (folder / name).is_file():
            return [folder / name]
    raise RunError(
        "{folder} has no {name}, and no {older} either; other files of tensors, such as tf_model.h5, are not read.",
        folder=folder,
        name=WEIGHTS[0],
        older=WEIGHTS[1],
    )


def _shards(index: Path) -> list[str]:
    """Return the names of the files in an index, which must be in the folder of the index."""
    places = read_json(index).get("weight_map")
    names = set(places.values()) if isinstance(places, dict) and all(map(_is_shard, places.values())) else ()
    if not names:
        raise RunError(
            "{index} does not say which file of this folder holds which tensor; restore it from a copy.", index=index
        )
    return sorted(names)


def _is_shard(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and "\\" not in name and Path(name).suffix in SUFFIXES


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path)
    except (SafetensorError, OSError) as error:
        if is_out_of_memory(error):  # it cannot be mapped
            raise MemoryError(str(error)) from error
        raise RunError("{path} is damaged ({error}); restore it from a copy.", path=path, error=error) from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of an older file, a pickle; it is loaded with weights_only=True, so it cannot run code."""
    mapped = zipfile.is_zipfile(path) and can_map(path)
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # damaged files raise various exceptions
        if is_out_of_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0][:200]
        raise RunError(
            "{path} is damaged, or contains objects other than tensors, which could run code and are not loaded "
            "({reason}); get the model as model.safetensors.",
            path=path,
            reason=reason,
        ) from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise RunError("{path} does not contain tensors by name; get the model as model.safetensors.", path=path)
    return dict(tensors)


# --- writing ----------------------------------------------------------------------------------------------------------


def require_replaceable(target: Path) -> None:
    """Raise RunError unless `target` does not exist, is empty, or is an export of jumok."""
    if target.exists() and not target.is_dir():
        raise RunError("{target} is a file; give a folder for the export.", target=target)
    if not target.is_dir() or not any(target.iterdir()):
        return
    names = {path.name for path in target.iterdir()}
    ours = all(map(FILES.fullmatch, names)) and "config.json" in names and MARK in read_json(target / "config.json")
    if not ours:
        raise RunError(
            "{target} holds other files, which an export would replace; give a new folder, or an empty one.",
            target=target,
        )


def write_folder(
    target: Path,
    documents: Mapping[str, Mapping[str, Any]],
    contents: Mapping[str, str],
    tensors: dict[str, Tensor],
) -> None:
    """Write the JSON documents, other files, and the tensors; the folder is written atomically.

    Args:
        target: the folder.
        documents: values of JSON files, by name.
        contents: of other files, by name.
        tensors: by name, for one file.

    Raises:
        RunError: it cannot be written; an existing folder is then unchanged.
    """
    with writing(target, sum(tensor.nbytes for tensor in tensors.values()), (OSError, SafetensorError)):
        make_folder(target.parent)
        with atomic_folder(target) as new:
            for name, values in documents.items():
                text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
                (new / name).write_text(text, encoding="utf-8")
            for name, content in contents.items():
                (new / name).write_bytes(content.encode())
            save_file(tensors, new / WEIGHTS[0], metadata={"format": "pt"})
