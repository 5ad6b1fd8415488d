"""The contract between the trainer and a task, and what a task is made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from jumok.config import TrainConfig
from jumok.errors import TextError
from jumok.evaluation.overlap import PASSAGE, WORTH_TELLING
from jumok.messages import tr
from jumok.models import Model, ModelConfig
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer
from jumok.training.tasks.goal import Goal

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
        """With the last part of the source held out, its share `val`, or else `held_out`.

        Raises:
            TextError: what is to be held out is one of the sources.
        """
        learned = {one.sha256: one.name for one in source.sources}
        for one in held_out.sources if held_out is not None else ():
            if one.sha256 in learned:
                raise TextError(
                    "{held_out} cannot be held out: it holds the same as {source}, which the model is trained on and "
                    "so would know by heart. Give another file, or a share such as {--val 0.1}.",
                    held_out=one.name,
                    source=learned[one.sha256],
                )
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


def repeated_rows(learned: Iterable[tuple[str, ...]], held_out: Sequence[tuple[str, ...]]) -> float:
    """The share of the held-out rows that are among the others, cell by cell."""
    known = set(learned)
    return sum(row in known for row in held_out) / max(1, len(held_out))


def repetition(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person should know of the share of the held-out part that stands in the training part, too."""
    share = data.get("repeated", 0.0)
    if share < WORTH_TELLING:
        return ()
    if "rows" in data:
        return (
            tr(
                "{share:.1%} of the held-out rows are also among the training rows, so the held-out figures are "
                "better than those of new rows would be.",
                share=share,
            ),
        )
    return (
        tr(
            "{share:.1%} of the held-out text is also in the training part, word for word, in passages of {length} "
            "characters or more, so the held-out figures are better than those of a new text would be. Leave the "
            "copies out, or hold out another text.",
            share=share,
            length=PASSAGE,
        ),
    )


def characters(texts: Iterable[str]) -> str:
    """Each character of some texts once, in the order of Unicode."""
    return "".join(sorted(set().union(*texts)))


def presentable(texts: Iterable[str], longest: int = 40) -> str:
    """The first text that fits into a suggested command, or ""."""
    return next((t for t in texts if t.strip() and t.isprintable() and len(t) <= longest and t[0] != "-"), "")


M = TypeVar("M", bound=Model)


class Task(ABC, Generic[M]):
    """One task of one run: the loop asks it for batches, losses and figures, and knows nothing else of it.

    Args:
        folder: of the run, prepared by `prepare`. data: what `prepare` returned.
        model: the shape. config: the training.
    """

    kinds: ClassVar[tuple[type[ModelConfig], ...]]  # configurations it can train, the default first
    keys: ClassVar[frozenset[str]]  # of `data`, without which a run cannot go on
    later_keys: ClassVar[frozenset[str]] = frozenset()  # of `data`, which older runs lack
    goal: ClassVar[Goal]  # the figure by which a run may stop
    unit: ClassVar[str] = "tokens"  # the figure that tells how much of what is held out was read
    final_has_more_context: ClassVar[bool] = False  # `final` gives a token more of it than `validate`
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
        """Write the material as ids into `folder.state`; return what config.json tells of it: `keys` and
        `later_keys`.

        Raises:
            TextError: there is too little of it, or it does not fit the task.
        """

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def has_validation(self) -> bool:
        """Whether anything is held out."""
        return self.validation_tokens > 0

    @property
    def held_out_size(self) -> int:
        """How much is held out, in `unit`."""
        return self.validation_tokens

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should know of the material, said when the run begins."""
        return ()

    @abstractmethod
    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Batch `number` of the run, from 0; the same number gives the same batch. The first dimension is B."""

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """The rows of batch `number` in batches of which each fits into one pass; mostly it is one."""
        return [self.batch(number)]

    @abstractmethod
    def share(self, batch: tuple[Tensor, ...]) -> float:
        """What a pass over a batch costs, where an average one of the run costs 1."""

    # A loss is a sum and a count, so that the mean over several batches is that over one batch of all their rows. The
    # counts come without a model: all those of a step are known before its first pass.

    @abstractmethod
    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Over how many tokens or texts each of the `sums` goes."""

    @abstractmethod
    def sums(self, model: M, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The sums of the training losses in nats, scalars: one for each loss that has a mean of its own."""

    def loss(self, model: M, batch: tuple[Tensor, ...], counts: Sequence[int] | None = None) -> Tensor:
        """The training loss, a scalar: each sum divided by its count, all added up.

        Args:
            counts: of all batches of a step. Then the loss is the share of this batch in that of the step: losses and
                gradients of all its batches add up to those of one batch of their rows. None: of this batch.
        """
        counts = self.counts(batch) if counts is None else counts
        means = [total / max(1, count) for total, count in zip(self.sums(model, batch), counts, strict=True)]
        return torch.stack(means).sum()

    def compile(self) -> None:  # most tasks have nothing to add
        """Compile what `loss` computes outside the model's blocks."""

    def fewest_tokens(self, context_length: int) -> int:
        """How many tokens a validation reads at least, if there are as many: fewer would leave its figures to luck."""
        return max(8, -(-FEWEST_TOKENS // context_length)) * context_length

    @abstractmethod
    def validate(self, model: M, max_tokens: int) -> dict[str, float]:
        """Figures on the held-out part, reading about `max_tokens` evenly spread tokens.

        They have a "loss"; "tokens" tells how many were read, and `unit` another count where it is not tokens.
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

    @abstractmethod
    def example(self) -> str:
        """A short prompt of the run's own material to try the model with; "" where there is none."""

    @abstractmethod
    def beside(self, material: Text | Table) -> dict[str, float]:
        """What stands beside the figures of other material.

        Returns:
            "seen_in_training", the share of it, 0 to 1, that the run was trained on (what it held out does not count);
            and what a baseline fitted to the training part reaches, by the name of a figure with "baseline_" before it.
        """

    def draw(self, model: M, folder: RunFolder) -> None:
        """Pictures of the finished model besides the learning curve."""
