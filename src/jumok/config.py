"""Configurations: frozen, keyword-only, checked when they are made, and free of torch.

A field that is left at None is filled in from the others at once, so a finished configuration never holds a None
that a reader would have to resolve again.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from jumok.errors import ConfigError

Family = Literal["modern", "classic"]
Activation = Literal["silu", "gelu", "relu"]
Precision = Literal["auto", "float32", "bfloat16"]

ACTIVATIONS: dict[str, tuple[Activation, ...]] = {"modern": ("silu",), "classic": ("gelu", "relu")}


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """' Did you mean 'x'?' for the closest allowed word, or '' when nothing is close."""
    close = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `allowed`."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(
            f"{name}={value!r} is not known; choose from {', '.join(allowed)}.{did_you_mean(str(value), allowed)}"
        )


def require_range(name: str, value: float, low: float, high: float | None = None) -> None:
    """Raise ConfigError unless low <= value (<= high) and value is finite."""
    if not (low <= value and math.isfinite(value) and (high is None or value <= high)):
        allowed = f"between {low:g} and {high:g}" if high is not None else f"at least {low:g}"
        if value == math.inf:
            allowed += ", and finite"
        raise ConfigError(f"{name}={value!r} is out of range: it must be {allowed}.")


def require_type(name: str, value: object, kind: type) -> None:
    """Raise ConfigError unless `value` is a `kind`; a whole number is a float too, a bool is no number."""
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{name}={value!r} is of type {type(value).__name__}; it must be of type {kind.__name__}.")


def _require_types(config: GPTConfig | TrainConfig) -> None:
    kinds = field_types(type(config))
    for setting in dataclasses.fields(config):
        value = getattr(config, setting.name)
        if value is not None or setting.default is not None:
            require_type(setting.name, value, kinds[setting.name])


def _nearest_multiples(value: int, of: int) -> str:
    below = value // of * of
    return f"{below + of}" if below == 0 else f"{below} or {below + of}"


def _setting(default: Any, help: str) -> Any:
    """A field with the sentence that `jumok train --help` shows for it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """What one block is made of. A model's configuration makes it with `block()`; a lesson may make its own.

    width: C. head_dim: width of one head. mlp_width: hidden width, 0 for no MLP at all.
    activation: "silu", "gelu" (erf), "gelu_tanh" or "relu". gated: a SwiGLU instead of two matrices.
    norm: "layer", "rms" or "none". pre_norm: x + f(norm(x)); otherwise norm(x + f(x)), as in the paper of 2017.
    residual: whether x is added at all. qk_norm: an RMSNorm over each head of q and k. bias: in all projections.
    """

    width: int
    n_head: int
    n_kv_head: int
    head_dim: int
    mlp_width: int
    activation: str
    gated: bool = False
    norm: Literal["layer", "rms", "none"] = "layer"
    norm_eps: float = 1e-5
    pre_norm: bool = True
    residual: bool = True
    qk_norm: bool = False
    bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT; each field says what it is in its `help`.

    `family="modern"` is exactly what `transformers` calls Qwen3ForCausalLM; `family="classic"` is GPT2LMHeadModel,
    except that the total head width n_head * head_dim may differ from n_embd.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together; the message names both.
    """

    vocab_size: int = field(metadata={"help": "number of token ids"})
    context_length: int = _setting(256, "most tokens the model sees at once")
    family: Family = _setting("modern", "modern (as Qwen3) or classic (as GPT-2)")
    n_layer: int = _setting(4, "blocks")
    n_head: int = _setting(4, "query heads")
    n_embd: int = _setting(256, "width of the residual stream")
    n_kv_head: int = _setting(None, "key/value heads, a divisor of n_head [n_head]")
    head_dim: int = _setting(None, "width of one head [n_embd / n_head]")
    # For modern 8/3 of the width, rounded up to a multiple of 64: three matrices then cost what two of 4x did.
    mlp_width: int = _setting(None, "hidden width of the MLP [4 n_embd; modern: 8/3 n_embd]")
    activation: Activation = _setting(None, "gelu (tanh form) or relu; modern always has silu in a SwiGLU")
    dropout: float = _setting(0.0, "rate on embeddings and both residual branches [by how often the text is seen]")
    attention_dropout: float = _setting(0.0, "rate on the attention weights")
    tie_embeddings: bool = _setting(True, "share the token embedding with the output layer")
    norm_eps: float = _setting(None, "epsilon of the norms [modern 1e-6, classic 1e-5]")
    rope_theta: float = _setting(10_000.0, "base of the rotary wavelengths (modern)")

    def __post_init__(self) -> None:
        _require_types(self)
        require_choice("family", self.family, ACTIVATIONS)
        modern = self.family == "modern"
        for name in ("vocab_size", "context_length", "n_layer", "n_head", "n_embd"):
            require_range(name, getattr(self, name), 1)
        if self._missing("head_dim") and self.n_embd % self.n_head:
            raise ConfigError(
                f"n_embd={self.n_embd} is not divisible by n_head={self.n_head}; use n_embd="
                f"{_nearest_multiples(self.n_embd, self.n_head)}, or give head_dim yourself."
            )
        self._fill("head_dim", self.n_embd // self.n_head)
        self._fill("n_kv_head", self.n_head)
        self._fill("mlp_width", -(-self.n_embd * 8 // 3 // 64) * 64 if modern else 4 * self.n_embd)
        self._fill("activation", ACTIVATIONS[self.family][0])
        self._fill("norm_eps", 1e-6 if modern else 1e-5)
        for name in ("head_dim", "n_kv_head", "mlp_width"):
            require_range(name, getattr(self, name), 1)
        require_choice("activation", self.activation, ACTIVATIONS[self.family])
        require_range("norm_eps", self.norm_eps, 0)
        require_range("dropout", self.dropout, 0, 0.95)
        require_range("attention_dropout", self.attention_dropout, 0, 0.95)
        require_range("rope_theta", self.rope_theta, 1)
        if self.n_head % self.n_kv_head:
            divisors = [str(n) for n in range(1, self.n_head + 1) if self.n_head % n == 0]
            raise ConfigError(
                f"n_head={self.n_head} is not divisible by n_kv_head={self.n_kv_head}; "
                f"use one of {', '.join(divisors)}."
            )
        if modern and self.head_dim % 2:
            raise ConfigError(
                f"head_dim={self.head_dim} is odd, and rotary positions turn pairs; "
                f"use {_nearest_multiples(self.head_dim, 2)}."
            )
        if not modern and self.n_kv_head != self.n_head:
            raise ConfigError(
                f"n_kv_head={self.n_kv_head} differs from n_head={self.n_head}, which the classic family does not "
                "have; leave it out, or use --family modern."
            )

    def block(self) -> BlockConfig:
        """What the blocks of this model are made of."""
        modern = self.family == "modern"
        return BlockConfig(
            width=self.n_embd,
            n_head=self.n_head,
            n_kv_head=self.n_kv_head,
            head_dim=self.head_dim,
            mlp_width=self.mlp_width,
            activation="gelu_tanh" if self.activation == "gelu" else self.activation,
            gated=modern,
            norm="rms" if modern else "layer",
            norm_eps=self.norm_eps,
            qk_norm=modern,
            bias=not modern,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    def _missing(self, name: str) -> bool:
        return getattr(self, name) is None

    def _fill(self, name: str, value: object) -> None:
        if self._missing(name):
            object.__setattr__(self, name, value)


Mixing = Literal["none", "average", "attention"]


@dataclass(frozen=True, kw_only=True)
class RungConfig(GPTConfig):
    """A GPT with parts left out: a rung of the ladder in `jumok.lessons`. No stock class can express it.

    With everything left in it is the GPT of its family.
    """

    mixing: Mixing = _setting("attention", "none (no blocks at all), average (of the past) or attention")
    feed_forward: bool = _setting(True, "whether blocks have an MLP")
    residual: bool = _setting(True, "whether a block adds to its input, or replaces it")
    norm: bool = _setting(True, "whether there are norms")

    def block(self) -> BlockConfig:
        """What is left of a block."""
        whole = super().block()
        return dataclasses.replace(
            whole,
            mlp_width=whole.mlp_width if self.feed_forward else 0,
            residual=self.residual,
            norm=whole.norm if self.norm else "none",
            qk_norm=whole.qk_norm and self.norm,
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained; each field says what it is in its `help`.

    The length is steps or minutes; with neither given it is ten minutes.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together.
    """

    task: Literal["lm"] = _setting("lm", "what is learned: lm (the next token)")
    steps: int | None = _setting(None, "length of the run in optimizer steps")
    minutes: float | None = _setting(None, "or in minutes by the clock, all included [10]")
    batch_size: int = _setting(16, "sequences of context_length tokens in one pass")
    accumulate: int = _setting(1, "passes per optimizer step")
    optimizer: Literal["muon", "adamw"] = _setting("muon", "muon (matrices; adamw for the rest) or adamw")
    learning_rate: float = _setting(5e-3, "peak rate of AdamW")
    matrix_learning_rate: float = _setting(0.02, "peak rate of Muon")
    schedule: Literal["linear", "cosine", "constant"] = _setting("linear", "how the rate falls after the warm-up")
    final_rate: float = _setting(0.0, "rate at the end, as a share of the peak")
    warmup: float = _setting(0.02, "share of the run in which the rate rises from zero")
    weight_decay: float = _setting(0.1, "decoupled weight decay, on matrices only")
    beta1: float = _setting(0.9, "AdamW's first moment")
    beta2: float = _setting(0.95, "AdamW's second moment")
    momentum: float = _setting(0.95, "Muon's momentum")
    clip: float = _setting(1.0, "largest gradient norm, 0 for no clipping")
    val: float = _setting(0.1, "share of the text to hold out, its last part")
    eval_every: int = _setting(0, "steps between validations [12 in the run]")
    patience: int = _setting(5, "validations without a new best before the run is brought to its end, 0 for never")
    sample_tokens: int = _setting(60, "tokens of the sample written at each validation, 0 for none")
    save_every: float = _setting(60.0, "seconds between saves of the training state")
    seed: int = _setting(0, "of the first weights, the order of the data, and dropout")
    precision: Precision = _setting("auto", "float32, bfloat16, or auto: what measures faster")
    compile: Literal["auto", "on", "off"] = _setting("auto", "torch.compile; auto: if the run is long enough to pay")

    def __post_init__(self) -> None:
        _require_types(self)
        if self.steps is not None and self.minutes is not None:
            raise ConfigError(f"steps={self.steps} and minutes={self.minutes:g} were both given; give one of them.")
        if self.steps is None and self.minutes is None:
            object.__setattr__(self, "minutes", 10.0)
        if self.steps is not None:
            require_range("steps", self.steps, 1)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes={self.minutes!r} is out of range: it must be more than 0 and finite.")
        for name in ("batch_size", "accumulate"):
            require_range(name, getattr(self, name), 1)
        for name, allowed in field_choices(type(self)).items():
            require_choice(name, getattr(self, name), allowed)
        for name in ("learning_rate", "matrix_learning_rate", "weight_decay", "clip", "save_every"):
            require_range(name, getattr(self, name), 0)
        for name in ("final_rate", "warmup"):
            require_range(name, getattr(self, name), 0, 1)
        for name in ("beta1", "beta2", "momentum"):
            require_range(name, getattr(self, name), 0, 0.99999)
        require_range("val", self.val, 0, 0.9)
        for name in ("eval_every", "patience", "sample_tokens"):
            require_range(name, getattr(self, name), 0)
        require_range("seed", self.seed, 0, 2**31 - 1)


# Named sizes: what differs from the defaults above, for the model and for its training.
SIZES: dict[str, dict[str, Any]] = {
    "nano": {"n_layer": 2, "n_head": 4, "n_embd": 128, "context_length": 128},
    "micro": {"n_layer": 4, "n_head": 4, "n_embd": 256, "context_length": 256},
    "mini": {"n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256},
    "small": {"n_layer": 8, "n_head": 8, "n_embd": 512, "context_length": 512},
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 1024},
    # The configuration of a 2025 Korean blog series on building a GPT from scratch, with its two slips mended:
    # scores are scaled by head_dim**-0.5 and the final norm is applied.
    "nanokogpt": {
        "family": "classic", "n_layer": 6, "n_head": 8, "n_embd": 256, "head_dim": 16, "context_length": 256,
        "activation": "relu", "dropout": 0.1, "tie_embeddings": False,
        "steps": 10_000, "batch_size": 64, "optimizer": "adamw", "learning_rate": 2e-4, "schedule": "constant",
        "warmup": 0.0, "weight_decay": 0.01, "beta2": 0.999, "clip": 0.0,
    },
}  # fmt: skip

# What the classic family wants different in training.
FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "modern": {},
    "classic": {"optimizer": "adamw", "learning_rate": 1e-3},
}


def resolve(
    settings: Mapping[str, Any], size: str | None = None, kind: type[GPTConfig] = GPTConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for the model and for its training: what was given goes before the size, the size before the family.

    Args:
        settings: any fields of `kind` and TrainConfig; a None counts as not given.
        size: a name in SIZES. kind: of model.

    Returns:
        fields for `kind` (without vocab_size), fields for TrainConfig; neither holds more than is known.

    Raises:
        ConfigError: an unknown size or field ("did you mean"), or a vocabulary size, which the tokenizer sets.
    """
    if size is not None:
        require_choice("size", size, SIZES)
    given = {key: value for key, value in settings.items() if value is not None}
    chosen = {**SIZES.get(size or "", {}), **given}
    if "steps" in given or "minutes" in given:  # the person's budget replaces the size's
        chosen = {k: v for k, v in chosen.items() if k not in ("steps", "minutes") or k in given}
    family = chosen.get("family", "modern")
    require_choice("family", family, FAMILY_DEFAULTS)
    chosen = {**FAMILY_DEFAULTS[family], **chosen}
    model_fields, train_fields = field_types(kind), field_types(TrainConfig)
    for key in chosen:
        if key == "vocab_size" or key not in {**model_fields, **train_fields}:
            known = sorted({*model_fields, *train_fields} - {"vocab_size"})
            raise ConfigError(f"unknown setting {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}.")
    return (
        {key: value for key, value in chosen.items() if key in model_fields},
        {key: value for key, value in chosen.items() if key in train_fields},
    )


Config = TypeVar("Config", bound="GPTConfig | TrainConfig")


def field_types(config: type) -> dict[str, Any]:
    """Field name -> plain type (int, float, bool, str) of a configuration class, None taken off."""
    plain = {}
    for name, hint in typing.get_type_hints(config).items():
        if isinstance(hint, types.UnionType):
            hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
        plain[name] = type(typing.get_args(hint)[0]) if typing.get_origin(hint) is Literal else hint
    return plain


def field_choices(config: type) -> dict[str, tuple[str, ...]]:
    """Field name -> allowed words, for the fields that have a fixed set of them."""
    hints = typing.get_type_hints(config)
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


def from_dict(config: type[Config], values: Mapping[str, Any]) -> Config:
    """A configuration from plain values, as they come out of JSON or TOML.

    Raises:
        ConfigError: a key is unknown ("did you mean"), missing, or of the wrong type.
    """
    allowed = field_types(config)
    for key in values:
        if key not in allowed:
            raise ConfigError(f"unknown setting {key!r}.{did_you_mean(key, allowed)} Known: {', '.join(allowed)}.")
    try:
        return config(**values)
    except TypeError as error:
        raise ConfigError(f"{config.__name__}: {error}") from None


def to_dict(config: GPTConfig | TrainConfig) -> dict[str, Any]:
    """All fields as plain values, ready for JSON."""
    return dataclasses.asdict(config)
