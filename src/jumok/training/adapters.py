"""LoRA adapters (https://arxiv.org/abs/2106.09685): a few new parameters are trained, those of --init are not.

The adapters are those of the `peft` library, on every matrix of the blocks. Parameters that the model of --init does
not have, such as a new classifier, are trained too. There are gradients and moments for what is trained only, and a
training state holds nothing else.

One folder is one model, so model.safetensors has the best parameters with their adapters merged: all programs that
read a run folder read this one, without peft and without the folder of --init. `state/base.safetensors` is a copy of
the parameters that are not trained, so that a run can be resumed after the folder of --init has changed or is gone.
They cannot be had from model.safetensors: subtracting an adapter does not give back the same bits.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from jumok.errors import ConfigError, JumokError, RunError
from jumok.files import sha256_of
from jumok.models import Model
from jumok.nn.blocks import Block
from jumok.runs.folder import RunFolder
from jumok.runs.parameters import parameters_of, require_fit, size_of, write_tensors

SCALE = 2  # alpha is so many times the rank: an adapter adds SCALE B A
NAME = "default"  # of the adapter in peft's modules


def require_peft() -> None:
    """Raise JumokError if peft is not installed."""
    if importlib.util.find_spec("peft") is None:
        raise JumokError("{--lora} uses the package peft, which is not installed: pip install 'jumok[lora]'.")


class Adapters:
    """The adapters of a model, which is changed in place: its matrices become modules of peft.

    Args:
        model: with the parameters to begin with. rank: of the adapters. seed: of their initial values; A is random and
            B zero, so nothing is changed at first. fully_trained: names of parameters that are trained themselves.
        base: the file with all others; None: the model is never merged.
    """

    def __init__(
        self, model: Model, rank: int, *, seed: int, fully_trained: Collection[str] = (), base: Path | None = None
    ):
        require_peft()
        from peft import LoraConfig, inject_adapter_in_model  # slow to import

        self.rank, self.fully_trained = rank, sorted(fully_trained)
        self._model, self._base, self._merged = model, base, False
        self.modules = sorted({name.rpartition(".")[2] for name, _ in _matrices(model)})
        settings = LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=self.modules)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            inject_adapter_in_model(settings, model)
        del model.peft_config  # the model is jumok's own again after `remove`
        self._layers: dict[str, Any] = {
            name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")
        }
        for name, parameter in model.named_parameters():
            if name in self.fully_trained:
                parameter.requires_grad_(True)

    # --- tensors ------------------------------------------------------------------------------------------------------

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return what is trained, by name: blocks.0.attention.q_proj.A, ...B, and parameters that are new."""
        found = {}
        for name, layer in self._layers.items():
            found[f"{name}.A"] = layer.lora_A[NAME].weight.detach()  # (rank, in)
            found[f"{name}.B"] = layer.lora_B[NAME].weight.detach()  # (out, rank)
        own = dict(self._model.named_parameters())
        return found | {name: own[name].detach() for name in self.fully_trained}

    def restore(self, stored: Mapping[str, Tensor], where: str) -> None:
        """Take over tensors of a state, the reverse of `tensors`.

        Args:
            where: the state, for the message.

        Raises:
            RunError: they do not fit the model.
        """
        own = self.tensors
        shapes = {name: tensor.shape for name, tensor in own.items()}
        require_fit({name: tensor.shape for name, tensor in stored.items()}, shapes, where)
        for name, tensor in own.items():
            tensor.copy_(stored[name])

    # --- merging ------------------------------------------------------------------------------------------------------

    @contextmanager
    def merged(self) -> Iterator[None]:
        """Make the model a plain one inside the block, with the adapters in its matrices.

        The sum is written to the memory of the matrices, and what they were is read from the file `base` afterwards:
        there is never a second copy of them, and they have the same bits as before.
        """
        if self._merged:
            yield
            return
        self._merge()
        try:
            yield
        finally:
            self._separate()

    @torch.no_grad()
    def _merge(self) -> None:
        self._merged = True
        for name, layer in self._layers.items():
            plain = layer.get_base_layer()
            plain.weight += layer.get_delta_weight(NAME)
            _replace(self._model, name, plain)

    @torch.no_grad()
    def _separate(self) -> None:
        own = dict(self._model.named_parameters())
        for name in names_in(self._base_file):
            own[name].copy_(_tensor_in(self._base_file, name))
        for name, layer in self._layers.items():
            _replace(self._model, name, layer)
        self._merged = False

    def remove(self) -> None:
        """Make the model a plain one for good, without adapters, whose parameters are then those of the base."""
        for name, layer in self._layers.items():
            _replace(self._model, name, layer.get_base_layer())
        self._model.requires_grad_(True)

    @property
    def _base_file(self) -> Path:
        assert self._base is not None
        return self._base

    # --- files --------------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the entry "adapter" of config.json; sha256 is of the file with the base."""
        return {
            "rank": self.rank,
            "alpha": SCALE * self.rank,
            "target_modules": self.modules,
            "trained": self.fully_trained,
            "sha256": sha256_of(self._base_file),
        }


def write_base(folder: RunFolder, model: nn.Module, fully_trained: Collection[str]) -> Path:
    """Write the parameters that are not trained to state/base.safetensors.

    Args:
        model: without adapters. fully_trained: names of parameters that are trained themselves.
    """
    tensors = {name: tensor for name, tensor in parameters_of(model).items() if name not in fully_trained}
    with folder.writing("state/base.safetensors", needed=size_of(tensors)):
        write_tensors(folder.base_file, tensors)
    return folder.base_file


def read_base(folder: RunFolder, model: nn.Module, recorded: Mapping[str, Any]) -> Path:
    """Load state/base.safetensors into a model without adapters.

    Args:
        recorded: the entry "adapter" of config.json.

    Raises:
        RunError: it is missing, or not the file that the run began with.
    """
    path = folder.base_file
    try:
        same = sha256_of(path) == recorded["sha256"]
    except OSError:
        same = False
    if not same:
        raise RunError(
            "{path}, which has the parameters that are not trained, is missing or damaged, so the run cannot be "
            "resumed; restore it from a copy, or start a new run with {--init {run}}.",
            path=path,
            run=folder.path,
        )
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name in names_in(path):
            own[name].copy_(_tensor_in(path, name))
    return path


def require_one_process(processes: int) -> None:
    """Raise ConfigError for adapters in several processes."""
    if processes > 1:
        raise ConfigError(
            "{--lora} trains in one process; leave out {--processes} and torchrun, or leave out {--lora}."
        )


def names_in(path: Path) -> list[str]:
    """Return the names of the tensors in a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise RunError("{path} is damaged ({error}); restore it from a copy.", path=path, error=error) from None


def _tensor_in(path: Path, name: str) -> Tensor:
    """Read one tensor. The file is opened for each of them, so that no more than one is in memory."""
    with safe_open(path, framework="pt") as file:
        found: Tensor = file.get_tensor(name)
        return found


def _matrices(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the matrices of the blocks, by name."""
    for outer, block in model.named_modules():
        if isinstance(block, Block):
            for name, part in block.named_modules():
                if isinstance(part, nn.Linear):
                    yield f"{outer}.{name}", part


def _replace(model: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, part)
