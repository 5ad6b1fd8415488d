"""The contract between the trainer and a task, and what a task is made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from jumok.checkpoint import RunFolder
from jumok.config import TrainConfig
from jumok.models import Model, ModelConfig
from jumok.tasks.goal import Goal
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer

FEWEST_TOKENS = 5_000  # that a validation reads, whatever was planned


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run learns from and what it holds out.

    source: read already. cut: how many of its characters or rows belong to the training part; what follows is held
    out. held_out: held out instead; then the cut is the length of the source.
    """

    source: Text | Table
    cut: int
    held_out: Text | Table | None = None

    @classmethod
    def of(cls, source: Text | Table, held_out: Text | Table | None, val: float) -> Material:
        """With the last part of the source held out, its share `val`, or else `held_out`."""
        size = source.chars if isinstance(source, Text) else len(source)
        return cls(source=source, cut=size if held_out is not None else size - round(size * val), held_out=held_out)

    def identity(self) -> dict[str, Any]:
        """What config.json keeps, so that a resumed run can tell other material from its own."""
        return {
            "sources": [source.name for source in self.source.sources],
            "sha256": self.source.sha256,
            "val_sha256": None if self.held_out is None else self.held_out.sha256,
        }

    def rows(self) -> dict[str, int | None]:
        """How many were given, before any is left out; held_out_rows is None where no other table is held out."""
        assert isinstance(self.source, Table)
        held_out = len(self.held_out) if isinstance(self.held_out, Table) else None
        return {"rows": len(self.source), "held_out_rows": held_out}


M = TypeVar("M", bound=Model)


class Task(ABC, Generic[M]):
    """One task of one run: the loop asks it for batches, losses and figures, and knows nothing else of it.

    Args:
        folder: of the run, prepared by `prepare`. data: what `prepare` returned.
        model: the shape. config: the training.
    """

    kinds: ClassVar[tuple[type[ModelConfig], ...]]  # configurations it can train, the default first
    keys: ClassVar[frozenset[str]]  # of `data`
    goal: ClassVar[Goal]  # the figure by which a run may stop
    glance: ClassVar[int] = 16  # contexts of tokens that a quick validation reads at least
    loss_label: ClassVar[str]  # what the "loss" of its figures is, for the picture
    most_dropout: ClassVar[float] = 1.0  # unless a person asks for more
    columns: ClassVar[tuple[str, ...]] = ()  # of the table it learns from; none: from a text
    fixed_shapes: ClassVar[bool]  # all batches are alike, so that compiling pays

    tokens_per_batch: int
    validation_tokens: int

    @abstractmethod
    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None: ...

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def material(cls, source: Any, held_out: Any, config: TrainConfig) -> Material:
        """What was read, checked, and cut in two.

        Raises:
            TextError: it is not what this task reads, or it lacks what the task needs.
        """

    @classmethod
    def training(cls, material: Material) -> dict[str, Any]:
        """Fields of the training's configuration that this material wants different, where nobody has set them."""
        return {}

    @classmethod
    def usual_tokenizer(cls, material: Material) -> str:
        """The kind of tokenizer that is trained when nothing else is asked for."""
        return "char"

    @classmethod
    @abstractmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """A tokenizer trained on the training part, and on nothing of what is held out."""

    @classmethod
    def fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Fields of the model's configuration that follow from the material and its ids, for example the labels.

        Args:
            inherited: the fields of the model to begin with, where there is one.
        """
        return {}

    @classmethod
    @abstractmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write the material as ids into `folder.state`; return what config.json tells of it, `keys` and no others.

        Raises:
            TextError: there is too little of it, or it does not fit the task.
        """

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def has_validation(self) -> bool:
        """Whether anything is held out."""
        return self.validation_tokens > 0

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know of the material, said when the run begins."""
        return ()

    @abstractmethod
    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Batch `number` of the run, from 0; the same number gives the same batch. The first dimension is B."""

    @abstractmethod
    def loss(self, model: M, batch: tuple[Tensor, ...]) -> Tensor:
        """The mean training loss of one batch, a scalar."""

    def compile(self) -> None:  # most tasks have nothing to add
        """Compile what `loss` computes outside the model's blocks."""

    def fewest_tokens(self, context_length: int) -> int:
        """How many tokens a validation reads at least, if there are as many: fewer would leave its figures to luck."""
        return max(8, -(-FEWEST_TOKENS // context_length)) * context_length

    @abstractmethod
    def validate(self, model: M, max_tokens: int) -> dict[str, float]:
        """Figures on the held-out part, reading about `max_tokens` evenly spread tokens.

        They have a "loss"; "tokens" tells how many were read.
        """

    def to_minimise(self, figures: Mapping[str, float]) -> float:
        """What decides which of the weights of a run are best, out of the figures of a validation."""
        return figures["loss"]

    @abstractmethod
    def final(self, model: M, max_tokens: int) -> dict[str, float]:
        """The figures to quote."""

    def final_reads(self, max_tokens: int) -> int:
        """About how many tokens `final` reads at most, which tells how long it will take.

        Windows that overlap by three quarters read each token four times.
        """
        return min(4 * self.validation_tokens, max_tokens)

    @abstractmethod
    def headline(self, figures: Mapping[str, float]) -> str:
        """The figures in a few words."""

    @abstractmethod
    def sample(self, model: M, tokens: int, seed: int) -> str:
        """Something for people to read."""

    def draw(self, model: M, folder: RunFolder) -> None:
        """Pictures of the finished model besides the learning curve."""
