"""Files of a Hugging Face folder: reading tensors, and writing folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from jumok.config.huggingface import read_json
from jumok.errors import RunError
from jumok.files import atomic_folder, space
from jumok.models.tensors import load_tensors

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
MARK = "jumok_version"  # in config.json: the folder is an export of jumok and may be replaced
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists, as one file or with an index


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder, from one file or from the files of an index.

    Raises:
        RunError: a file is missing or damaged, or a pickle contains other objects than tensors.
    """
    tensors = {}
    for name in _weight_files(folder):
        path = folder / Path(name).name  # never outside of the folder
        if not path.is_file():
            raise RunError("{folder} has no {name}; restore it from a copy.", folder=folder, name=name)
        tensors.update(_read_pickle(path) if path.suffix == ".bin" else _read_safetensors(path))
    return tensors


def _weight_files(folder: Path) -> list[str]:
    for name in WEIGHTS:
        index = folder / f"{name}.index.json"
        if index.is_file():
            places = read_json(index).get("weight_map")
            if not isinstance(places, dict):
                raise RunError(
                    "{index} does not say which file holds which tensor; restore it from a copy.", index=index
                )
            return sorted({str(name) for name in places.values()})
        if (folder / name).is_file():
            return [name]
    raise RunError(
        "{folder} has no {name}, and no {older} either; restore it from a copy.",
        folder=folder,
        name=WEIGHTS[0],
        older=WEIGHTS[1],
    )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path)
    except (SafetensorError, OSError) as error:
        raise RunError("{path} is damaged ({error}); restore it from a copy.", path=path, error=error) from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the tensors of an older file, a pickle; it is loaded with weights_only=True, so it cannot run code."""
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise various exceptions
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
    ours = names <= set(FILES) and "config.json" in names and MARK in read_json(target / "config.json")
    if not ours:
        raise RunError(
            "{target} holds other files, which an export would replace; give a new folder, or an empty one.",
            target=target,
        )


def write_folder(
    target: Path, documents: Mapping[str, Mapping[str, Any]], tokenizer: str | None, tensors: dict[str, Tensor]
) -> None:
    """Write the JSON documents, tokenizer.json if given, and the tensors; the folder is written atomically.

    Raises:
        RunError: it cannot be written; an existing folder is then unchanged.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(target) as new:
            for name, values in documents.items():
                text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
                (new / name).write_text(text, encoding="utf-8")
            if tokenizer is not None:
                (new / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
            save_file(tensors, new / "model.safetensors", metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        room = space(target, needed=sum(tensor.nbytes for tensor in tensors.values()))
        raise RunError("cannot write {path}: {reason} ({room}).", path=target, reason=reason, room=room) from error
