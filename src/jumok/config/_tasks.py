"""What each task adds to the settings of training, and where its defaults differ. To add a task, begin here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jumok.config._bert import BERTConfig
from jumok.config._encoder_decoder import EncoderDecoderConfig
from jumok.config._fields import setting, validate
from jumok.config._gpt import GPTConfig, RungConfig
from jumok.config._model import ModelConfig
from jumok.config._variant import GPTVariantConfig
from jumok.errors import ConfigError
from jumok.text.conversations import COLUMNS, PREFERENCE_COLUMNS

Defaults = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The settings of one task. The `help` of each field describes it.

    Class attributes:
        name: value of `--task`. kinds: configurations of the models that it can train, its default first.
        columns: those of the table that it learns from, by their names in options; none: it learns from a text.
        needs_init: it begins with another model.
        defaults: of fields of the model and of `TrainConfig` that differ from those of the classes.
        init_defaults, lora_defaults: the same for runs that start from another model, or train adapters of one.
        material_defaults: the same by the kind of the material, which the task finds out.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[type[ModelConfig], ...]]
    columns: ClassVar[tuple[str, ...]] = ()
    needs_init: ClassVar[bool] = False
    defaults: ClassVar[Defaults] = {}
    init_defaults: ClassVar[Defaults] = {}
    lora_defaults: ClassVar[Defaults] = {}
    material_defaults: ClassVar[Mapping[str, Defaults]] = {}

    def __post_init__(self) -> None:
        validate(self)

    def for_model(self, kind: type[ModelConfig]) -> TaskConfig:
        """Return the settings with what follows from the kind of the model.

        Raises:
            ConfigError: a setting does not fit such a model.
        """
        return self


@dataclass(frozen=True, kw_only=True)
class LMConfig(TaskConfig):
    """Predict each next token of a text."""

    name = "lm"
    kinds = (GPTConfig, RungConfig, GPTVariantConfig)
    defaults: ClassVar[Defaults] = {"passes": 12.0}  # more passes raise the loss on other texts (bench/LOG.md)


@dataclass(frozen=True, kw_only=True)
class MLMConfig(TaskConfig):
    """Predict masked tokens of a text."""

    name = "mlm"
    kinds = (BERTConfig,)
    defaults: ClassVar[Defaults] = {  # the loss may stay on a plateau at first
        "warmup": 0.05,
        "patience": 0,
        "attention_dropout": 0.0,
    }

    mask_rate: float = setting(0.15, "share of the tokens that are masked (mlm)", 0, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_rate == 0:
            raise ConfigError("mask_rate=0 hides nothing, so there is nothing to learn; 0.15 is usual.")


@dataclass(frozen=True, kw_only=True)
class ClassifyConfig(TaskConfig):
    """Find the label of a text."""

    name = "classify"
    kinds = (GPTConfig, BERTConfig, GPTVariantConfig)
    columns = ("text", "label")
    # Labels are few and quickly memorised: a shallow model, a second loss, and few passes reduce overfitting.
    defaults: ClassVar[Defaults] = {
        "context_length": 128,
        "batch_size": 16,
        "n_layer": 2,
        "attention_dropout": 0.0,
        "passes": 2.0,
    }
    # Labels teach little about a text: what was learned before must stay (bench/LOG.md, "Tasks").
    init_defaults: ClassVar[Defaults] = {"matrix_learning_rate": 0.0015}

    class_weights: bool = setting(False, "weight classes by their inverse frequency (classify)")
    lm_weight: float = setting(
        None, "weight of the next-token loss that is added to the loss of the classes [gpt 1, bert 0]", 0, 1000
    )
    token_dropout: float = setting(0.1, "share of the tokens of a text that are dropped in training (classify)", 0, 1)

    def for_model(self, kind: type[ModelConfig]) -> TaskConfig:
        """Return the settings with the default of lm_weight, which only a GPT can have."""
        writes = issubclass(kind, GPTConfig)
        if self.lm_weight and not writes:
            raise ConfigError(
                "lm_weight={lm_weight:g} adds the loss of the next token, which a BERT already sees; "
                "leave it out, or train a gpt.",
                lm_weight=self.lm_weight,
            )
        given = getattr(self, "lm_weight")  # noqa: B009  (None if it was left out)
        return replace(self, lm_weight=1.0 if writes else 0.0) if given is None else self


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(TaskConfig):
    """Answer texts, as learned from pairs of a source and a target."""

    name = "seq2seq"
    kinds = (EncoderDecoderConfig,)
    columns = ("source", "target")
    defaults: ClassVar[Defaults] = {"n_layer": 3, "n_embd": 192, "context_length": 64, "batch_size": 32, "warmup": 0.05}
    material_defaults: ClassVar[Mapping[str, Defaults]] = {
        "sentences": {"batch_size": 64},  # the learning rates need larger batches than those for single words
        "words": {"n_layer": 2, "n_embd": 128},  # more steps in the time are worth more than size (bench/LOG.md)
    }

    label_smoothing: float = setting(
        0.0, "label smoothing: share of the probability spread over all tokens (seq2seq)", 0, 1
    )


@dataclass(frozen=True, kw_only=True)
class ChatConfig(TaskConfig):
    """Answer in conversations."""

    name = "chat"
    kinds = (GPTConfig, GPTVariantConfig)
    columns = COLUMNS
    defaults: ClassVar[Defaults] = {"passes": 4.0}


# Of tasks that judge whole answers of a model that answers already: higher rates make all answers alike.
TUNING: Defaults = {"optimizer": "adamw", "learning_rate": 1e-4}
TUNING_LORA: Defaults = {"learning_rate": 5e-4}


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig(TaskConfig):
    """Prefer one answer to another one (DPO, https://arxiv.org/abs/2305.18290)."""

    name = "preference"
    kinds = (GPTConfig, GPTVariantConfig)
    columns = PREFERENCE_COLUMNS
    needs_init = True
    defaults: ClassVar[Defaults] = {"passes": 2.0, "warmup": 0.05}
    init_defaults: ClassVar[Defaults] = TUNING
    lora_defaults: ClassVar[Defaults] = TUNING_LORA

    beta: float = setting(0.1, "how much it costs to leave the model of --init (preference)", 0, 1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta == 0:
            raise ConfigError("beta=0 makes all models equally good, so there is nothing to learn; 0.1 is usual.")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(TaskConfig):
    """Write answers, and make those with a higher reward likelier (https://arxiv.org/abs/2402.03300)."""

    name = "reward"
    kinds = (GPTConfig, GPTVariantConfig)
    columns = COLUMNS
    needs_init = True
    defaults: ClassVar[Defaults] = {"patience": 0}
    init_defaults: ClassVar[Defaults] = TUNING
    lora_defaults: ClassVar[Defaults] = TUNING_LORA

    reward: str = setting(
        "checks",
        "what answers are rewarded for: checks (those of the material), re:PATTERN (the whole answer matches), or a "
        "Python file with a function reward(messages, answer) (reward)",
        may_change=True,  # a file may lie elsewhere; its content is compared
    )
    prompts_per_step: int = setting(32, "prompts that are answered for an optimizer step (reward)", 1, 1_000_000)
    answers_per_prompt: int = setting(8, "answers to each prompt, which are compared (reward)", 2, 1_000_000)
    temperature: float = setting(1.0, "temperature of the answers that are learned from (reward)", 0, 100)
    kl_weight: float = setting(
        0.0, "weight of the divergence from the model of --init, for each token in nats (reward)", 0, 1000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature == 0:
            raise ConfigError("temperature=0 gives each prompt the same answer each time; 1 is usual.")
        if self.reward != "checks" and not self.reward.startswith("re:") and not self.reward.endswith(".py"):
            raise ConfigError(
                "reward={reward!r} is not known; give checks, re:PATTERN, or the path of a Python file (score.py).",
                reward=self.reward,
            )


TASK_CONFIGS: dict[str, type[TaskConfig]] = {
    kind.name: kind
    for kind in (LMConfig, MLMConfig, ClassifyConfig, Seq2SeqConfig, ChatConfig, PreferenceConfig, RewardConfig)
}
