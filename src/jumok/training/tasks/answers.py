"""What the tasks that judge whole answers share: sequences that end with an answer, and its log-probability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.batches import LengthBatches
from jumok.data.packing import DTYPE
from jumok.data.rows import Rows, load_rows, write_rows
from jumok.errors import ConfigError, RunError
from jumok.evaluation.chat import answer_losses
from jumok.files import sha256_of
from jumok.models.gpt import GPT
from jumok.models.losses import IGNORED
from jumok.models.tensors import load_tensors
from jumok.runs.folder import RunFolder
from jumok.runs.parameters import size_of, write_tensors
from jumok.tokenizers import Tokenizer
from jumok.training.tasks.material import Material
from jumok.training.tasks.stored_rows import start_time
from jumok.training.tasks.task import Task

REFERENCE = "reference.safetensors"  # in state/: what follows from the model that a run began with

Answered = tuple[NDArray[Any], NDArray[Any]]  # ids up to the last but one, and what follows each: (n,), IGNORED before


def answered(ids: Sequence[int] | NDArray[np.int64], start: int) -> Answered:
    """Return a sequence whose answer begins at place `start` and goes on to its end."""
    inputs, targets = np.array(ids[:-1], np.int64), np.array(ids[1:], np.int64)
    targets[: start - 1] = IGNORED
    return inputs, targets


class AnsweredRows(NamedTuple):
    """Sequences with an answer at the end of each, and the targets in it."""

    inputs: Rows
    targets: Rows

    @classmethod
    def of(cls, sequences: Sequence[Answered]) -> AnsweredRows:
        """Make rows from sequences in memory."""
        return cls(*(Rows.of([one[part] for one in sequences]) for part in range(2)))

    @classmethod
    def load(cls, folder: Path, name: str, count: int) -> AnsweredRows:
        """Map rows that `write` has written into memory."""
        return cls(*(load_rows(folder / f"{name}-{part}.npy", count) for part in cls._fields))

    @classmethod
    def write(cls, folder: Path, name: str, sequences: Iterable[Answered], dtype: np.dtype[Any]) -> None:
        """Write sequences to files in a folder. name: of the part. dtype: of ids."""
        sequences = list(sequences)
        for part, (field, kind) in enumerate(zip(cls._fields, (dtype, DTYPE), strict=True)):
            write_rows(folder / f"{name}-{field}.npy", (one[part].astype(kind) for one in sequences), kind)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return some sequences as inputs and targets, (B, T) each, int64."""
        return self.inputs.padded(rows, 0), self.targets.padded(rows, IGNORED)


def passes(widths: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Return rows in parts that fit into a pass. widths: as in `LengthBatches`. tokens: the most of a pass, about."""
    batches = LengthBatches(widths, tokens, seed=0) if len(widths) else None
    return [] if batches is None else [batches.rows(number) for number in range(batches.count)]


def answer_log_probabilities(model: GPT, inputs: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the log-probability of each target, and 0 where it is IGNORED: (B, T) each -> (B, T), float32 or better.

    Logits are computed for the answers alone. temperature: by which they are divided.
    """
    losses = answer_losses(model, inputs, targets, temperature=temperature)  # (N,)
    return losses.new_zeros(targets.shape).masked_scatter(targets != IGNORED, -losses)


class JudgesAnswers(Task[GPT]):
    """What the tasks that begin with a model that answers, and compare it with the model as it was, have in common."""

    most_dropout = 0.0  # neither the reference nor the answers are computed with it
    least_steps = 50
    one_process = True

    folder: RunFolder

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Never called: the run begins with a model and its tokenizer."""
        raise NotImplementedError

    @classmethod
    def adapt_tokenizer(cls, tokenizer: Tokenizer, before: Sequence[int] = ()) -> Tokenizer:
        """Return the tokenizer of the model to begin with.

        Raises:
            ConfigError: the model has no chat template.
        """
        if tokenizer.chat is None:
            raise ConfigError(
                "task {task} begins with a model that holds conversations, and this one has no chat template. Train it "
                "with conversations first: jumok train talk.jsonl --task chat --init RUN",
                task=cls.config_type.name,
            )
        return start_time(tokenizer)

    def stored_reference(self, make: Callable[[], dict[str, Tensor]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what is stored of the model that the run began with, and what config.json records of it.

        Args:
            make: returns it, if it is not stored yet.

        Raises:
            RunError: the file is not as it was.
        """
        path, known = self.folder.state / REFERENCE, self.data.get("reference_sha256")
        if known is None:
            tensors = make()
            with self.folder.writing(f"state/{REFERENCE}", needed=size_of(tensors)):
                write_tensors(path, tensors)
            return tensors, {"reference_sha256": sha256_of(path)}
        try:
            same = sha256_of(path) == known
        except OSError:
            same = False
        if not same:
            raise RunError(
                "{path}, which belongs to the model that the run began with, is missing or damaged, so the run cannot "
                "be resumed; restore it from a copy, or start a new run with {--init {run}}.",
                path=path,
                run=self.folder.path,
            )
        return load_tensors(path), {}
