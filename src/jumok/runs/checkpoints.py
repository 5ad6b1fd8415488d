"""Checkpoints: training states for `--resume`, in folders `state/step-N`.

A state is a folder with tensors, numbers, the best parameters so far, and a manifest with the SHA-256 of each file. The
tensors are in one file, or, if several processes write the state, in one file of each (`jumok.runs.stored`). A state
is written atomically (`jumok.files.atomic_folder`). If the same step is saved again, the new folder is `step-N.1`, and
the older one is removed afterwards. The states of the last two steps are kept.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from jumok.files import atomic_folder, copy_or_link, parse_json, sha256_of
from jumok.messages import reason_and_file, tr
from jumok.models.tensors import load_tensors

if TYPE_CHECKING:  # reading a model to write with it needs no torch
    from torch import Tensor

    from jumok.runs.stored import StoredTensors

TENSORS = "tensors.safetensors"  # written by one process
PARTS = "tensors"  # the folder of the files of several processes
PART = re.compile(rf"{PARTS}/[\w.-]+\.safetensors")
NUMBERS = "numbers.json"
NEEDED = ("best", "best_metrics", "validated")  # numbers that say which parameters belong to a state
MANIFEST = "manifest.json"  # SHA-256 of each file
BEST_PARAMETERS = "best.safetensors"  # copy of model.safetensors, if there is one
KEPT = 2  # steps

# What `read_state` raises for a damaged state.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError)

WriteParts = Callable[[Path], Mapping[str, str]]  # writes files to a folder; returns their names and SHA-256


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The training state of a run after `step` steps, without its configuration.

    Attributes:
        step: steps of the optimizer so far.
        tensors: parameters and optimizer moments by name. Those of several processes are read when they are asked for.
        numbers: plain JSON values.
        best: path and SHA-256 of the copy of model.safetensors; None for a new state, or if there was none.
        files: that the tensors are in; empty for a new state.
    """

    step: int
    tensors: Mapping[str, Tensor] = field(repr=False)
    numbers: dict[str, Any]
    best: tuple[Path, str] | None = None
    files: tuple[Path, ...] = ()


class Checkpoints:
    """The training states in one folder `state/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._damaged: set[Path] = set()  # states that `newest` skipped

    def write(self, state: Checkpoint, best: Path, write_parts: WriteParts | None = None) -> None:
        """Write a state, with a link to the file `best` if it exists. Earlier states are not changed.

        Args:
            write_parts: writes the tensors, together with other processes.

        Raises:
            OSError, SafetensorError: it cannot be written.
        """
        earlier = [again for step, again in map(_place, self._found()) if step == state.step]
        final = self._folder / (f"step-{state.step:09d}" + (f".{max(earlier) + 1}" if earlier else ""))  # a new name
        with atomic_folder(final) as folder:
            if write_parts is None:
                from safetensors.torch import save_file

                save_file(dict(state.tensors), folder / TENSORS)
            numbers = json.dumps({"step": state.step, **state.numbers}, ensure_ascii=False)
            (folder / NUMBERS).write_text(numbers, encoding="utf-8")
            if best.is_file():
                copy_or_link(best, folder / BEST_PARAMETERS)
            manifest = {file.name: sha256_of(file) for file in sorted(folder.iterdir())}
            if write_parts is not None:
                manifest |= {f"{PARTS}/{name}": each for name, each in write_parts(folder / PARTS).items()}
            (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    def prune(self) -> None:
        """Remove damaged states found by `newest`, and all but the newest state of each of the last KEPT steps."""
        kept: set[int] = set()
        for folder in self._found():
            step, _ = _place(folder)
            if folder in self._damaged or step in kept or len(kept) == KEPT:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                kept.add(step)

    def clear(self) -> None:
        """Remove all states.

        Raises:
            OSError: one cannot be removed.
        """
        for folder in self._found():
            shutil.rmtree(folder)

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest undamaged state, or None, and a message for each damaged one."""
        sentences: list[str] = []
        for folder in self._found():
            try:
                return read_state(folder), sentences
            except UNREADABLE as error:
                self._damaged.add(folder)
                sentences.append(
                    tr("{folder} is damaged ({error}) and was skipped.", folder=folder, error=reason_and_file(error))
                )
        return None, sentences

    def _found(self) -> list[Path]:
        return states_in(self._folder)


def states_in(folder: Path) -> list[Path]:
    """Return the folders of the training states in a folder `state/`, the newest first."""
    found = [p for p in folder.glob("step-*") if p.is_dir() and re.fullmatch(r"step-\d+(\.\d+)?", p.name)]
    return sorted(found, key=_place, reverse=True)


def read_state(folder: Path) -> Checkpoint:
    """Read a training state, whose files are compared with its manifest.

    Raises:
        one of UNREADABLE: it is damaged.
    """
    manifest = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
    names = [TENSORS] if TENSORS in manifest else sorted(filter(PART.fullmatch, manifest))
    wrong = [name for name in (*names, NUMBERS) if sha256_of(folder / name) != manifest[name]]
    if wrong:
        raise ValueError(tr("{names} changed since it was written", names=", ".join(wrong)))
    if not names:
        raise ValueError(tr("no file with tensors is named in manifest.json"))
    numbers = parse_json((folder / NUMBERS).read_text(encoding="utf-8"))
    files = tuple(folder / name for name in names)
    tensors = load_tensors(*files) if names == [TENSORS] else stored_tensors(files)
    best = (folder / BEST_PARAMETERS, manifest[BEST_PARAMETERS]) if BEST_PARAMETERS in manifest else None
    step = numbers.pop("step")
    if type(step) is not int:
        raise ValueError(f"step {step!r}")
    absent = [name for name in NEEDED if name not in numbers]
    if absent:
        raise ValueError(tr("{file} lacks {names}", file=NUMBERS, names=", ".join(absent)))
    return Checkpoint(step=step, tensors=tensors, numbers=numbers, best=best, files=files)


def stored_tensors(files: Sequence[Path]) -> StoredTensors:
    """Return the tensors of a saved state by the files that they are in, in one process or in several.

    Raises:
        OSError, SafetensorError, ValueError: the files are not whole.
    """
    from jumok.runs.stored import StoredTensors  # slow to import

    return StoredTensors(files)


def _place(state: Path) -> tuple[int, int]:
    """Return the step of a state, and how often that step was saved before, from a name such as step-000000123.1."""
    step, _, again = state.name.removeprefix("step-").partition(".")
    return int(step), int(again or 0)
