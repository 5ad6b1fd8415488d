"""`load_to_write`: the model of a run folder for the C++ step, which writes with it; PyTorch is not imported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from jumok.config import GPTConfig
from jumok.config.features import NATIVE, implements
from jumok.corpora.hub import folder_of, is_hf
from jumok.inference.native.build import library
from jumok.inference.native.parameters import Kind, NativeModel
from jumok.models import require_memory_for_model
from jumok.processors import may_have_gpu
from jumok.runs.folder import RunFolder

if TYPE_CHECKING:
    from jumok.models import Model

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # of safetensors, as NumPy names them


def load_to_write(
    path: str | os.PathLike[str],
    device: str = "auto",
    *,
    quantize: Kind | None = None,
    build: Callable[[], object] | None = None,
    verify: bool = True,
) -> NativeModel | Model:
    """Load a model that is to write: as `NativeModel` where the C++ step computes it, or else as `load` does.

    The C++ step computes the GPT of a run folder on a CPU, where its library is there. Folders of `transformers` are
    read by PyTorch.

    Args:
        path, verify: as of `load`. device: as of `jumok.device.choose_device`.
        quantize: the kind of numbers of a `NativeModel`; None: float32.
        build: is called where only the library is missing, and may build it.

    Raises:
        ConfigError: there is no such device, or too little memory. RunError, JumokError: as `load`.
    """
    device = device_name(device)
    if device == "cpu":
        run = None if is_hf(path) else RunFolder.open(folder_of(path))
        config = None if run is None else run.model_config()
        if run is not None and isinstance(config, GPTConfig) and _computes(config, build):
            model = _read(run, config, quantize or "float32", verify)
            if model is not None:
                return model
    from jumok.runs.load import load

    loaded: Model = load(path, device, verify=verify)
    return loaded


def device_name(name: str = "auto") -> str:
    """Return the name of the device that `jumok.device.choose_device` chooses; PyTorch is imported if it may be a GPU.

    Raises:
        ConfigError: as `choose_device`.
    """
    if name == "cpu" or (name == "auto" and not may_have_gpu()):
        return "cpu"
    from jumok.device import choose_device

    return str(choose_device(name))


def _computes(config: GPTConfig, build: Callable[[], object] | None) -> bool:
    """Return whether the C++ step computes such a model, and its library is there."""
    if not implements(config, NATIVE):
        return False
    if build is not None and library(build=False) is None:
        build()
    return library(build=False) is not None


def _read(run: RunFolder, config: GPTConfig, kind: Kind, verify: bool) -> NativeModel | None:
    """Return the model of a run folder; None if its tensors do not fit, of which `load` says more."""
    require_memory_for_model(config)
    tokenizer = run.read_tokenizer()
    try:
        return NativeModel(config, run.read_tensors(TensorFile, verify=verify), tokenizer, kind)
    except ValueError:
        return None


class TensorFile(Mapping[str, NDArray[Any]]):
    """The tensors of a safetensors file by name, mapped into memory; those in bfloat16 are widened when asked for.

    Raises:
        SafetensorError, OSError: the file is damaged or cannot be read. ValueError: it has numbers of another type.
    """

    def __init__(self, path: Path) -> None:
        with safe_open(path, framework="np"):  # checks that offsets, types and shapes fit each other and the file
            content = np.asarray(np.memmap(path, np.uint8, "r"))
        start = 8 + int(content[:8].view("<u8")[0])
        self._tensors: dict[str, NDArray[Any]] = {}
        for name, tensor in json.loads(content[8:start].tobytes()).items():
            if name != "__metadata__":
                if tensor["dtype"] not in TYPES:
                    raise ValueError(tensor["dtype"])
                first, end = (start + offset for offset in tensor["data_offsets"])
                self._tensors[name] = content[first:end].view(TYPES[tensor["dtype"]]).reshape(tensor["shape"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        found = self._tensors[name]
        return (found.astype(np.uint32) << 16).view(np.float32) if found.dtype == np.uint16 else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
