"""The interface between the trainer and a task: its batches, its loss, and the figures by which it is judged."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor

from jumok.config import TaskConfig, TrainConfig
from jumok.data.batches import LengthBatches
from jumok.errors import ConfigError, TextError
from jumok.messages import tr
from jumok.models import Model, ModelConfig
from jumok.runs.events import Alarm
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.tasks.material import Material, repetition

FEWEST_TOKENS = 5_000  # that a validation reads, whatever was planned

BPE_VOCABULARY = 4_000  # ids, half of what a language model has: a table has too few examples of a rare piece

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The figure by which a task is judged.

    figure: its name among the figures. unit: its unit, a `message`. best: the best possible value, 0 for a loss and 1
    for a share of right answers.
    """

    figure: str
    unit: str
    best: float = 0.0

    def require(self, value: float) -> None:
        """Raise ConfigError unless a run could stop at this value."""
        if value <= 0 or 0 < self.best < value:
            most = tr(" and at most {best:g}", best=self.best) if self.best else ""
            raise ConfigError(
                "stop_at={value!r} is out of range: for this task it is {unit}, more than 0{most}.",
                value=value,
                unit=tr(self.unit),
                most=most,
            )

    def shortfall(self, figures: Mapping[str, float]) -> float:
        """Return the distance of the figures from the best value, 0 or more."""
        return abs(figures[self.figure] - self.best)

    def reached(self, figures: Mapping[str, float], wanted: float) -> bool:
        """Return True if the figures are as good as the wanted value, or better."""
        return self.shortfall(figures) <= abs(wanted - self.best)


class Baseline(NamedTuple):
    """What counting, without a model, reaches on the held-out part (a baseline).

    figure: its name among those of a validation. name: of the baseline, a message. words: the figure in words, a
    message with the field `value`. is_share: a share, of which more is better; otherwise a loss in nats. error: the
    standard error of the share.
    """

    figure: str
    value: float
    name: str
    words: str
    is_share: bool = False
    error: float = 0.0

    def is_beaten(self, found: float) -> bool:
        """Return True if a figure of a model is clearly better: by two standard errors, or a hundredth of the loss."""
        return found > self.value + 2 * self.error if self.is_share else found < 0.99 * self.value


def error_of_share(share: float, count: int) -> float:
    """Return the standard error of a share of so many."""
    return (share * (1 - share) / max(1, count)) ** 0.5


class Task(ABC, Generic[M]):
    """One task of one run: its batches, losses and figures.

    Args:
        folder: of the run, prepared by `prepare`. data: what `prepare` returned.
        model: the shape. config: the training.
    """

    config_type: ClassVar[type[TaskConfig]]  # its settings, the models it can train, and its columns
    keys: ClassVar[frozenset[str]]  # of `data`, without which a run cannot go on
    goal: ClassVar[Goal]  # the figure by which a run may stop
    use: ClassVar[str]  # what a model of it does, a message that stands before a command
    verb: ClassVar[str] = "generate"  # of that command
    unit: ClassVar[str] = "tokens"  # the figure that counts how much of the held-out part was read
    final_has_more_context: ClassVar[bool] = False  # `final` gives each token more context than `validate`
    loss_label: str  # unit of the "loss" among its figures, for the picture
    drawn_beside: ClassVar[str | None] = None  # a share among the figures that is in the picture, too
    most_dropout: ClassVar[float] = 1.0  # unless more was given
    lm_weight: float = 0.0  # of a second loss, of the next token; 0: there is none
    least_steps: ClassVar[int] = 500  # in a run by minutes, however often they pass over a small text
    learns_from_answers: ClassVar[bool] = False  # that the model writes in `begin_step`
    one_process: ClassVar[bool] = False  # it cannot be trained by several
    predicts_next: ClassVar[bool] = False  # each token from those before it alone
    fixed_shapes: ClassVar[bool]  # all batches have the same shape, so that compiling pays

    data: Mapping[str, Any]
    changed: str = ""  # a message for the user, if `begin` has changed what a resumed run is judged by
    tokens_per_batch: int
    validation_tokens: int
    batches: Any  # the rows of each batch
    token_losses: Callable[..., Tensor] | None = None  # what `loss_sums` computes outside the blocks, if compiling pays

    @abstractmethod
    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None: ...

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, val: float) -> Material:
        """Check what was read, and hold out a part of it, or another text or table.

        Raises:
            TextError: the task does not read such a source, or the source lacks what the task needs.
        """
        columns = cls.config_type.columns
        for given in (source, held_out):
            if given is not None and not isinstance(given, Table if columns else Text):
                facts = {"task": cls.config_type.name, "type": type(given).__name__, "columns": ", ".join(columns)}
                if columns:
                    raise TextError(
                        "task {task} learns from a table with the columns {columns} (.tsv, .csv or .jsonl), and a "
                        "{type} was given; read one with jumok.text.read_table.",
                        **facts,
                    )
                raise TextError("task {task} learns from a text, and a {type} was given.", **facts)
        return Material.of(source, held_out, val, cls.examples)

    @classmethod
    def examples(cls, table: Table) -> list[tuple[str, str]]:
        """Return what each row of a table asks and its label, "" for none, by which rows are held out.

        Raises:
            TextError: a column is missing.
        """
        return [(question, "") for question in table.column(cls.config_type.columns[0])]

    @classmethod
    def material_defaults(cls, material: Material) -> Mapping[str, Any]:
        """Return the defaults of both configurations that are others for this material."""
        return {}

    @classmethod
    def default_tokenizer(cls, material: Material) -> str:
        """Return the kind of tokenizer that is trained by default."""
        return "char"

    @classmethod
    @abstractmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on the training part alone."""

    @classmethod
    def adapt_tokenizer(cls, tokenizer: Tokenizer, before: Sequence[int] = ()) -> Tokenizer:
        """Return the tokenizer of the run: that of the model it begins with, a given or a new one, or a larger copy.

        Args:
            before: the ids that the model reads before each text.
        """
        return tokenizer

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the fields of the shape that follow from the material and the tokenizer, such as the labels.

        Args:
            inherited: the fields of the model whose parameters the run begins with, if there is one.
        """
        return {}

    @classmethod
    @abstractmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write the material as ids into `folder.state`.

        Returns:
            What config.json records of it, `keys` among it.

        Raises:
            TextError: there is too little of it, or it does not fit the task.
        """

    def begin(self, model: M, named: Mapping[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
        """Make or read what depends on the initial parameters, before the first step of a new or a resumed run.

        Args:
            model: in eval mode. In a new run it has the initial parameters, and `data` lacks what this method returns.
            named: the settings of this launch, by name: all of a new run; of a resumed one those that were given again.
            report: called with what is being done.

        Returns:
            what config.json records of it; of a resumed run only what differs, and then `changed` says so.

        Raises:
            ResumeError, RunError: what a resumed run needs was not given, differs or is damaged.
        """
        return {}

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def train_tokens(self) -> int:
        """The length of the training part."""
        return int(self.data["train_tokens"])

    def most_tokens(self, config: TrainConfig) -> float:
        """Return how many tokens a run may see by its steps, or by its limit on passes over the training part."""
        per_step = self.tokens_per_batch * config.accumulate
        if config.steps is not None:
            return config.steps * per_step
        return max(config.passes * self.train_tokens, self.least_steps * per_step) if config.passes else math.inf

    @property
    def tokens_per_pass(self) -> int:
        """The most tokens of a pass through the model, about."""
        return self.tokens_per_batch

    @property
    def has_validation(self) -> bool:
        """True if anything is held out."""
        return self.validation_tokens > 0

    @property
    def held_out_size(self) -> int:
        """How much is held out, in `unit`."""
        return self.validation_tokens

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about the material, for the beginning of the run, those of `alarms` among them."""
        return tuple(found.text for found in self.alarms)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms about the material: what makes the figures mean less."""
        return repetition(self.data)

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """What a model must beat to have learned anything, the best known first."""
        return ()

    def begin_step(self, model: M, number: int) -> None:
        """Let the model write what a step learns from, before its batches are made, if `learns_from_answers`.

        Args:
            model: in eval mode, with the parameters before the step. number: of the step, from 0. With the parameters
                it decides what is written.
        """

    @abstractmethod
    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return batch `number` of the run, from 0: a function of the number alone. The first dimension is B."""

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Return batch `number`, split into parts that fit into one pass each; mostly there is one."""
        return [self.batch(number)]

    @property
    def rows_per_batch(self) -> int:
        """Sequences in a batch, on average."""
        return int(self.batches.batch_size)

    def cost(self, batch: tuple[Tensor, ...]) -> float:
        """Return the cost of a pass over a batch; an average batch of the run costs 1."""
        return len(batch[0]) / self.rows_per_batch

    # Each loss is a sum and a count; see `jumok.training.optim.Objective`. The counts need no model, so that all those
    # of a step are known before its first pass.

    @abstractmethod
    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of tokens or texts in each of the `loss_sums`."""

    @abstractmethod
    def loss_sums(self, model: M, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the sums of the training losses in nats, scalars: one for each loss with a mean of its own.

        Sums without a gradient change nothing, and are there for `figures_of_step`.
        """

    def figures_of_step(self, losses: Sequence[float]) -> dict[str, float]:
        """Return what is told of a step besides its first loss. losses: the means of all `loss_sums` of the step."""
        return {}

    def fewest_tokens(self, context_length: int) -> int:
        """Return how many tokens a validation reads at least, if there are as many: fewer make noisy figures."""
        return max(8, -(-FEWEST_TOKENS // context_length)) * context_length

    @abstractmethod
    def validate(self, model: M, max_tokens: int) -> dict[str, float]:
        """Compute the figures on about `max_tokens` evenly spread tokens of the held-out part.

        Among them are "loss", "tokens", the number of tokens that were read, and the count named by `unit`.
        """

    def to_minimise(self, figures: Mapping[str, float]) -> float:
        """Return the number that is least for the best parameters of a run, from the figures of a validation."""
        return figures["loss"]

    def final(self, model: M, max_tokens: int) -> dict[str, float]:
        """Compute the figures to quote, of the finished model."""
        return self.validate(model, max_tokens)

    def final_reads(self, max_tokens: int) -> int:
        """Return about how many tokens `final` reads at most."""
        return min(self.validation_tokens, max_tokens)

    @abstractmethod
    def headline(self, figures: Mapping[str, float]) -> str:
        """Return the figures in a few words."""

    @abstractmethod
    def sample(self, model: M, tokens: int, seed: int) -> str:
        """Let the model write something for people to read."""

    @abstractmethod
    def example(self) -> str:
        """Return a short prompt of the run's own material to try the model with; "" where there is none."""

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """Return what the figures on other material are compared with.

        Returns:
            "seen_in_training": the share of the material, 0 to 1, that is in the training part. The figures of a
            baseline fitted to the training part, each under the name of the figure with "baseline_" before it.
        """
        return {}

    def draw(self, model: M, folder: RunFolder) -> None:
        """Draw pictures of the finished model, besides the learning curve."""


class TableTask(Task[M]):
    """A task that learns from the rows of a table with two columns.

    A batch has as many rows as fit its number of tokens, so its shape varies.
    """

    unit = "rows"
    fixed_shapes = False

    batches: LengthBatches

    @staticmethod
    def train_on(texts: Iterable[str], kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on texts, one a line."""
        usual = {"vocab_size": BPE_VOCABULARY} if kind == "bpe" else {}
        return train_tokenizer((f"{text}\n" for text in texts), kind, **{**usual, **options})

    @property
    def rows_per_batch(self) -> int:
        """The number of rows of the table in a batch, on average."""
        return self.batches.rows_per_batch

    def cost(self, batch: tuple[Tensor, ...]) -> float:
        """Return the cost by the number of ids, padding included."""
        return sum(tensor.numel() for tensor in batch if tensor.dim() == 2) / self.batches.numbers_per_batch
