"""The tensors of a training state that several processes write and read, by `torch.distributed.checkpoint`.

Each process writes one safetensors file with a part of the tensors, or of each tensor where they are sharded; the
header of the file says where in its tensor a part belongs. Any number of processes can read them again. No file is
pickled (https://pytorch.org/docs/stable/distributed.checkpoint.html).

`torch.distributed.checkpoint` is slow to import, so this module is imported where it is needed.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from jumok.files import sha256_of


class StoredTensors(Mapping[str, Tensor]):
    """Tensors in safetensors files, whole or in parts. They are read when one is asked for, all of them at once.

    Attributes:
        files: where they are.

    Raises:
        OSError, SafetensorError: a file is missing or damaged.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._found: dict[str, TensorStorageMetadata] = _Reader(self.files).read_metadata().state_dict_metadata  # type: ignore[assignment]

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Shapes by name; nothing is read for them."""
        return {name: found.size for name, found in self._found.items()}

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of a tensor."""
        return self._found[name].properties.dtype

    def read_into(self, tensors: dict[str, Tensor], *, alone: bool = False) -> None:
        """Overwrite tensors by those of the same names, of which a process reads what it has of a DTensor.

        Args:
            tensors: the same names and shapes in all processes. alone: other processes do not call this.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # what `alone` means
            try:
                load(tensors, storage_reader=_Reader(self.files), no_dist=alone)
            except CheckpointException as error:  # which is no Exception
                if not alone:
                    raise  # all processes do
                fault, _ = error.failures[0]
                raise fault from None

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        tensors = {name: torch.empty(found.size, dtype=self.dtype(name)) for name, found in self._found.items()}
        self.read_into(tensors, alone=True)
        return tensors


def write_part(tensors: dict[str, Tensor], folder: Path) -> dict[str, str]:
    """Write the part of this process of a state, and flush it to the disk; all processes do so at the same time.

    Args:
        tensors: by name, the same names in all processes. Of one that is no DTensor, one process writes the whole.

    Returns:
        On rank 0 the SHA-256 of each file, by its name. No other rank knows them all.

    Raises:
        CheckpointException: it failed in some process; all of them raise this.
    """
    writer = _Writer(folder)
    save(tensors, storage_writer=writer)
    return writer.sums


class _Writer(HuggingFaceStorageWriter):
    """Writes one file, and gathers the SHA-256 of all files on rank 0."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), save_distributed=True)
        self.sums: dict[str, str] = {}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results = super().write_data(plan, planner).wait()
        names = {result.storage_data.relative_path for result in results}
        sums = {name: sha256_of(Path(self.path) / name) for name in names}
        done: Future[list[WriteResult]] = Future()
        done.set_result([dataclasses.replace(result, storage_data=sums) for result in results])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        self.sums = {name: each for parts in results for part in parts for name, each in part.storage_data.items()}


class _Reader(HuggingFaceStorageReader):
    """Reads these files, whatever else their folder holds."""

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__(str(files[0].parent))
        self.fs = _Listed([str(file) for file in files])


class _Listed(FileSystem):
    def __init__(self, files: list[str]) -> None:
        self._files = files

    def ls(self, path: Any) -> list[str]:
        return self._files
