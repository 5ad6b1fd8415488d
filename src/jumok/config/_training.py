"""The settings of training that all tasks share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from jumok.config._fields import (
    field_types,
    from_dict,
    require_choice,
    require_type,
    setting,
    to_dict,
    unknown_setting,
    validate,
)
from jumok.config._tasks import TASK_CONFIGS, Defaults, LMConfig, TaskConfig
from jumok.errors import ConfigError

# Upper limits, far above sensible values and far below overflow.
MOST = 1_000_000_000  # of counts
MOST_PASSES = 100_000  # per optimizer step
MOST_MINUTES = 1_000_000  # two years
MOST_RATE = 1_000

Precision = Literal["auto", "float32", "bfloat16"]
Attention = Literal["auto", "chunked", "fused"]


# Defaults of fields that tasks may have otherwise (`TaskConfig.defaults`).
SHARED_DEFAULTS: Defaults = {
    "passes": 0.0,
    "batch_size": 16,
    "warmup": 0.02,
    "patience": 5,
    "weight_decay": 0.1,
    "momentum": 0.95,
}
REMOVED: Defaults = {"whole_words": False}  # settings that run folders of version 0.1.0 have, where they were off
# How a run learns, beside the settings of its task. The rest is its length, its validations, and the machine.
LEARNING = (
    "batch_size", "accumulate", "optimizer", "learning_rate", "matrix_learning_rate", "schedule", "final_rate",
    "warmup", "weight_decay", "beta1", "beta2", "momentum", "clip",
)  # fmt: skip
# It learns faster and overfits later; and directions of fewer steps suit runs of a few hundred (bench/LOG.md).
LM_WITH_MUON: Defaults = {"weight_decay": 0.5, "momentum": 0.9}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of a training run. The `help` of each field describes it.

    The length is given in steps or minutes; the default is ten minutes. The task is given by its name, or with settings
    of its own: `TrainConfig(task="mlm")`, `TrainConfig(task=MLMConfig(mask_rate=0.3))`. Fields that are left out have
    the defaults of the task.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    task: TaskConfig = setting(
        "lm",
        "lm (next token), mlm (masked tokens), classify (labels of texts), seq2seq (pairs of texts), chat "
        "(conversations), preference (the better of two answers) or reward (answers that score)",
    )
    steps: int | None = setting(None, "length of the run in optimizer steps", 1, MOST)
    minutes: float | None = setting(None, "length of the run in minutes, with preparation [10]")
    passes: float = setting(
        None,
        "maximum passes over the text in a run by minutes (of at least 500 steps, lm and chat 200); 0: no maximum",
        0,
        MOST,
    )
    stop_at: float | None = setting(
        None, "stop when the validation reaches this many nats/char (for other tasks, their main figure)", 0, MOST
    )
    batch_size: int = setting(
        None, "sequences of context_length tokens per batch, or as many tokens in shorter ones", 1, MOST
    )
    accumulate: int = setting(1, "batches per optimizer step (gradient accumulation)", 1, MOST_PASSES)
    optimizer: Literal["muon", "adamw"] = setting("muon", "muon (matrices; adamw for the rest) or adamw")
    lora: int | None = setting(
        None, "train adapters of this rank on the matrices of --init, which stay as they are (LoRA) [none]", 1, MOST
    )
    learning_rate: float = setting(5e-3, "peak learning rate of AdamW", 0, MOST_RATE)
    matrix_learning_rate: float = setting(0.02, "peak learning rate of Muon", 0, MOST_RATE)
    schedule: Literal["linear", "cosine", "constant", "invsqrt"] = setting(
        "linear", "learning rate schedule after the warm-up; invsqrt is that of the 2017 paper"
    )
    final_rate: float = setting(0.0, "final learning rate, as a share of the peak; not used by invsqrt", 0, 1)
    warmup: float = setting(None, "share of the run in which the learning rate rises from zero", 0, 1)
    weight_decay: float = setting(None, "decoupled weight decay, on matrices only", 0, MOST_RATE)
    beta1: float = setting(0.9, "decay of AdamW's first moment", 0, 0.99999)
    beta2: float = setting(0.95, "decay of AdamW's second moment", 0, 0.99999)
    momentum: float = setting(None, "momentum of Muon", 0, 0.99999)
    clip: float = setting(1.0, "maximum gradient norm; 0: no clipping", 0, MOST)
    val: float = setting(0.1, "share to hold out: the end of a text, or rows of a table", 0, 0.9)
    eval_every: int = setting(0, "steps between validations [12 validations per run]", 0, MOST)
    eval_tokens: int = setting(0, "held-out tokens per validation [as many as 2% of the training time allows]", 0, MOST)
    patience: int = setting(
        None, "validations without improvement before early stopping; 0: no early stopping", 0, MOST
    )
    keep: Literal["best", "last"] = setting(
        "best",
        "parameters to keep: best (of the best validation) or last (of the last step, without early stopping: to learn "
        "a text by heart)",
    )
    sample_tokens: int = setting(60, "tokens of the sample generated at each validation; 0: no sample", 0, MOST)
    save_every: float = setting(60.0, "seconds between saves of the training state", 0, MOST)
    seed: int = setting(0, "seed of the initial parameters, the order of the data, and dropout", 0, 2**31 - 1)
    precision: Precision = setting("auto", "float32, bfloat16, or auto (bfloat16 where the device computes it)")
    attention: Attention = setting(
        "auto",
        "attention in training: chunked (for CPUs), fused (PyTorch's kernel), or auto (chunked on CPUs)",
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "use torch.compile; auto: if the run is long enough to benefit"
    )
    recompute: bool = setting(
        False,
        "keep only the inputs of blocks for the backward pass: less memory, more time",
        may_change=True,
    )
    shard: bool = setting(
        False,
        "FSDP: each process keeps a part of the parameters, gradients and moments (no effect with one process)",
        may_change=True,
    )

    def __post_init__(self) -> None:
        if isinstance(self.task, str):
            require_choice("task", self.task, TASK_CONFIGS)
            object.__setattr__(self, "task", TASK_CONFIGS[self.task]())
        require_type("task", self.task, TaskConfig)
        defaults = {**SHARED_DEFAULTS, **self.task.defaults, **(LM_WITH_MUON if self._is_lm_with_muon else {})}
        if self.steps is None:
            defaults["minutes"] = 10.0
        for name in field_types(TrainConfig).keys() & defaults.keys():
            if getattr(self, name) is None:
                object.__setattr__(self, name, defaults[name])
        validate(self)
        if self.minutes is not None and not 0 < self.minutes <= MOST_MINUTES:
            raise ConfigError(
                "minutes={minutes} is out of range: it must be more than 0 and at most {most}.",
                minutes=repr(self.minutes),
                most=f"{MOST_MINUTES:,}",
            )
        if self.steps is not None and self.minutes is not None:
            raise ConfigError(
                "steps={steps} and minutes={minutes:g} were both given; give one of them.",
                steps=self.steps,
                minutes=self.minutes,
            )
        if self.schedule == "invsqrt" and self.warmup == 0:
            raise ConfigError(
                "schedule='invsqrt' with warmup=0 would keep the learning rate at zero, because this "
                "schedule measures time in warm-ups; give a warmup above 0, for example 0.02, or another "
                "schedule."
            )

    @property
    def rates(self) -> dict[str, float]:
        """Return the learning rates that the optimizer has, by name."""
        names = ("learning_rate", "matrix_learning_rate") if self.optimizer == "muon" else ("learning_rate",)
        return {name: getattr(self, name) for name in names}

    @property
    def keeps_mean(self) -> bool:
        """Return True if the run validates and keeps a mean of its newest parameters instead of the last ones.

        It does with a goal, and for a language model with Muon, which learns a text by heart that it reads several
        times. Others were not measured (bench/LOG.md, "Few steps").
        """
        return self.stop_at is not None or (self._is_lm_with_muon and self.keep == "best")

    @property
    def _is_lm_with_muon(self) -> bool:
        return isinstance(self.task, LMConfig) and self.optimizer == "muon"

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name, those of the task among them, as plain values that JSON can express."""
        return {**to_dict(self), "task": self.task.name, **to_dict(self.task)}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Make the configuration of settings by name, those of the task among them; the reverse of `to_dict`.

        Settings of other tasks are left out: run folders of version 0.1.0 have those of all tasks.

        Raises:
            ConfigError: a setting is unknown, or a value is wrong.
        """
        name = settings.get("task", "lm")
        require_type("task", name, str)
        require_choice("task", name, TASK_CONFIGS)
        settings = {key: value for key, value in settings.items() if REMOVED.get(key, ...) != value}
        own = {field.name for field in dataclasses.fields(cls)} - {"task"}
        of_task = task_fields(TASK_CONFIGS[name])
        of_any = {field for kind in TASK_CONFIGS.values() for field in task_fields(kind)}
        for key in settings.keys() - own - of_any - {"task"}:
            raise unknown_setting(key, sorted(own | of_task | {"task"}))
        task = from_dict(TASK_CONFIGS[name], {key: settings[key] for key in settings.keys() & of_task})
        return from_dict(cls, {"task": task, **{key: settings[key] for key in settings.keys() & own}})


def task_fields(task: type[TaskConfig]) -> set[str]:
    """Return the names of the settings that a task adds."""
    return {field.name for field in dataclasses.fields(task)}
