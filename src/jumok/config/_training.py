"""The configuration of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jumok.config._checks import require_choice, require_range
from jumok.config._fields import Configuration, field_choices, require_types, setting
from jumok.errors import ConfigError

# Upper limits, far above sensible values and far below overflow.
MOST = 1_000_000_000  # of counts
MOST_PASSES = 100_000  # per optimizer step
MOST_MINUTES = 1_000_000  # two years
MOST_RATE = 1_000

TaskName = Literal["lm", "mlm", "classify", "seq2seq"]
Precision = Literal["auto", "float32", "bfloat16"]
Attention = Literal["auto", "chunked", "fused"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Configuration):
    """The settings of a training run. The `help` of each field describes it.

    The length is given in steps or minutes; the default is ten minutes.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    task: TaskName = setting(
        "lm", "lm (next token), mlm (masked tokens), classify (labels of texts) or seq2seq (pairs of texts)"
    )
    steps: int | None = setting(None, "length of the run in optimizer steps")
    minutes: float | None = setting(None, "length of the run in minutes, with preparation [10]")
    passes: float = setting(
        0.0, "maximum passes over the text in a run by minutes (of at least 500 steps, lm 200); 0: no maximum"
    )
    stop_at: float | None = setting(
        None, "stop when the validation reaches this many nats/char (for other tasks, their main figure)"
    )
    batch_size: int = setting(16, "sequences of context_length tokens per batch, or as many tokens in shorter ones")
    accumulate: int = setting(1, "batches per optimizer step (gradient accumulation)")
    optimizer: Literal["muon", "adamw"] = setting("muon", "muon (matrices; adamw for the rest) or adamw")
    lora: int | None = setting(
        None, "train adapters of this rank on the matrices of --init, which stay as they are (LoRA) [none]"
    )
    learning_rate: float = setting(5e-3, "peak learning rate of AdamW")
    matrix_learning_rate: float = setting(0.02, "peak learning rate of Muon")
    schedule: Literal["linear", "cosine", "constant", "invsqrt"] = setting(
        "linear", "learning rate schedule after the warm-up; invsqrt is that of the 2017 paper"
    )
    final_rate: float = setting(0.0, "final learning rate, as a share of the peak; not used by invsqrt")
    warmup: float = setting(0.02, "share of the run in which the learning rate rises from zero")
    weight_decay: float = setting(0.1, "decoupled weight decay, on matrices only")
    beta1: float = setting(0.9, "decay of AdamW's first moment")
    beta2: float = setting(0.95, "decay of AdamW's second moment")
    momentum: float = setting(0.95, "momentum of Muon")
    clip: float = setting(1.0, "maximum gradient norm; 0: no clipping")
    mask_rate: float = setting(0.15, "share of the tokens that are masked (mlm)")
    whole_words: bool = setting(False, "mask whole words (eojeol) instead of single tokens (mlm)")
    class_weights: bool = setting(False, "weight classes by their inverse frequency (classify)")
    lm_weight: float = setting(
        0.0, "weight of the next-token loss that is added to the loss of the classes (classify, gpt)"
    )
    token_dropout: float = setting(0.0, "share of the tokens of a text that are dropped in training (classify)")
    label_smoothing: float = setting(0.0, "label smoothing: share of the probability spread over all tokens (seq2seq)")
    val: float = setting(0.1, "share of the text to hold out, at its end")
    eval_every: int = setting(0, "steps between validations [12 validations per run]")
    eval_tokens: int = setting(0, "held-out tokens per validation [as many as 2% of the training time allows]")
    patience: int = setting(5, "validations without improvement before early stopping; 0: no early stopping")
    keep: Literal["best", "last"] = setting(
        "best",
        "parameters to keep: best (of the best validation) or last (of the last step, without early stopping: to learn "
        "a text by heart)",
    )
    sample_tokens: int = setting(60, "tokens of the sample generated at each validation; 0: no sample")
    save_every: float = setting(60.0, "seconds between saves of the training state")
    seed: int = setting(0, "seed of the initial parameters, the order of the data, and dropout")
    precision: Precision = setting("auto", "float32, bfloat16, or auto (the faster one, measured)")
    attention: Attention = setting(
        "auto",
        "attention in training: chunked (for CPUs), fused (PyTorch's kernel), or auto (the faster one, measured)",
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "use torch.compile; auto: if the run is long enough to benefit"
    )
    recompute: bool = setting(False, "keep only the inputs of blocks for the backward pass: less memory, more time")

    shard: bool = setting(
        False, "FSDP: each process keeps a part of the parameters, gradients and moments (no effect with one process)"
    )

    def __post_init__(self, replaced: Configuration | None) -> None:
        super().__post_init__(replaced)
        require_types(self)
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
        if self.steps is None and self.minutes is None:
            object.__setattr__(self, "minutes", 10.0)
        if self.steps is not None:
            require_range("steps", self.steps, 1, MOST)
        require_range("passes", self.passes, 0, MOST)
        if self.stop_at is not None:
            require_range("stop_at", self.stop_at, 0, MOST)
        require_range("batch_size", self.batch_size, 1, MOST)
        if self.lora is not None:
            require_range("lora", self.lora, 1, MOST)
        require_range("accumulate", self.accumulate, 1, MOST_PASSES)
        for name, allowed in field_choices(type(self)).items():
            require_choice(name, getattr(self, name), allowed)
        for name in ("learning_rate", "matrix_learning_rate", "weight_decay", "lm_weight"):
            require_range(name, getattr(self, name), 0, MOST_RATE)
        for name in ("clip", "save_every"):
            require_range(name, getattr(self, name), 0, MOST)
        for name in ("final_rate", "warmup", "mask_rate", "label_smoothing", "token_dropout"):
            require_range(name, getattr(self, name), 0, 1)
        if self.schedule == "invsqrt" and self.warmup == 0:
            raise ConfigError(
                "schedule='invsqrt' with warmup=0 would keep the learning rate at zero, because this "
                "schedule measures time in warm-ups; give a warmup above 0, for example 0.02, or another "
                "schedule."
            )
        for name in ("beta1", "beta2", "momentum"):
            require_range(name, getattr(self, name), 0, 0.99999)
        require_range("val", self.val, 0, 0.9)
        for name in ("eval_every", "eval_tokens", "patience", "sample_tokens"):
            require_range(name, getattr(self, name), 0, MOST)
        require_range("seed", self.seed, 0, 2**31 - 1)
