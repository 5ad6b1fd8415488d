"""The configurations that all models share, and the checks of several models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jumok.config._fields import nearest_multiples, require_id, require_range, setting, validate
from jumok.errors import ConfigError

# Upper limits; larger values come from a typing error or a damaged file. `jumok.models.build` checks the memory.
LARGEST_SIZE = 100_000_000
LARGEST_DEPTH = 10_000  # blocks
LARGEST_BASE = 1e12
LARGEST_EPSILON = 1.0
MOST_DROPOUT = 0.95

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]  # gelu: the erf form, gelu_tanh: its approximation
SPECIAL_IDS = ("pad_id", "bos_id", "eos_id", "decoder_start_id", "forced_bos_id", "forced_eos_id")  # of some models


def size_of(default: int | None, help: str, most: int = LARGEST_SIZE) -> Any:
    """Return the field of a size: a number of at least 1."""
    return setting(default, help, 1, most)


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """The architecture of one block. The configuration of a model creates it with `block()`.

    Attributes:
        width: C.
        n_head: query heads.
        n_kv_head: key/value heads.
        head_dim: width of one head.
        mlp_width: hidden width of the MLP; 0 for no MLP.
        activation: between the layers of the MLP.
        gated: whether the MLP is a SwiGLU.
        norm: "layer", "rms" or "none".
        norm_eps: epsilon of the norms.
        pre_norm: x + f(norm(x)); otherwise norm(x + f(x)), as in the paper of 2017.
        residual: whether x is added.
        qk_norm: whether each head of q and k has an RMSNorm.
        qkv_bias: whether the projections to q, k and v have biases.
        out_bias: whether the output projection of attention has a bias.
        mlp_bias: whether the layers of the MLP have biases.
        parallel: x + attention(norm(x)) + mlp(norm(x)), each with its own norm (GPT-NeoX).
        dropout: rate on the residual branches.
        attention_dropout: rate on the attention weights.
    """

    width: int
    n_head: int
    n_kv_head: int
    head_dim: int
    mlp_width: int
    activation: Activation
    gated: bool = False
    norm: Literal["layer", "rms", "none"] = "layer"
    norm_eps: float = 1e-5
    pre_norm: bool = True
    residual: bool = True
    qk_norm: bool = False
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    parallel: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The special ids before and after each text that a model reads.

    Raises:
        ConfigError: a value is no id.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        validate(self, "frame.")

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids before and after a text."""
        return (*self.before, *self.after)


@dataclass(frozen=True, kw_only=True)
class GenerationRules:
    """Which ids a model does not generate, named as in `transformers`.

    Raises:
        ConfigError: a value has a wrong type, or is negative.
    """

    bad_words_ids: tuple[tuple[int, ...], ...] = setting((), "sequences of ids, none of which is ever completed", 0)
    suppress_tokens: tuple[int, ...] = setting((), "ids that are never generated", 0)
    begin_suppress_tokens: tuple[int, ...] = setting((), "ids that are not generated first", 0)
    min_length: int = setting(0, "fewest ids of a text, its beginning included, before an id may end it", 0)
    min_new_tokens: int = setting(0, "fewest generated ids before an id may end a text", 0)

    def __post_init__(self) -> None:
        validate(self)
        for word in self.bad_words_ids:
            require_range("the length of a sequence in bad_words_ids", len(word), 1)

    @property
    def ids(self) -> set[int]:
        """The ids that are not generated, alone or in sequences."""
        return {*self.suppress_tokens, *self.begin_suppress_tokens}.union(*self.bad_words_ids)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The fields of all models. The `help` of each field describes it.

    Without vocab_size it is a configuration for `Trainer.start`, which takes the size from the tokenizer.
    """

    vocab_size: int = setting(None, "number of token ids [that of the tokenizer]", 1, LARGEST_SIZE, option=False)
    context_length: int = size_of(256, "maximum number of tokens that the model sees at once")
    dropout: float = setting(0.0, "dropout rate of embeddings and residual branches", 0, MOST_DROPOUT)
    frame: Frame | None = setting(
        None, "ids before and after each text; none: see `jumok.models.special_ids`", option=False
    )

    def __post_init__(self) -> None:
        validate(self)
        for name in SPECIAL_IDS:
            require_id(name, getattr(self, name, None), self.vocab_size)
        rules: GenerationRules | None = getattr(self, "generation", None)
        ids = {
            "frame": () if self.frame is None else self.frame.ids,
            "eos_ids": getattr(self, "eos_ids", ()),
            "generation": () if rules is None else rules.ids,
        }
        for name, several in ids.items():
            for one in several:
                require_id(f"an id in {name}", one, self.vocab_size)
        if rules == GenerationRules():
            object.__setattr__(self, "generation", None)
        labels: tuple[str, ...] = getattr(self, "labels", ())
        if len(set(labels)) < len(labels):
            raise ConfigError(
                "labels={labels} names a class twice; give each class a name of its own.", labels=list(labels)
            )

    def _fill(self, **values: object) -> None:
        """Set fields that were left out to the values that follow from other fields."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def require_vocabulary(self) -> None:
        """Raise ConfigError if vocab_size is missing; a model cannot be built without it."""
        if getattr(self, "vocab_size") is None:  # noqa: B009  (its type is that of a whole configuration)
            raise ConfigError("vocab_size is missing; give the number of token ids, for example tokenizer.vocab_size.")


def require_whole_heads(n_embd: int, n_head: int, name: str = "n_head", otherwise: str = "") -> None:
    """Raise ConfigError unless `n_embd` is divisible by `n_head`, the value of the field `name`."""
    if n_embd % n_head:
        raise ConfigError(
            "n_embd={n_embd} is not divisible by {name}={n_head}; use n_embd={nearest}{otherwise}.",
            n_embd=n_embd,
            name=name,
            n_head=n_head,
            nearest=nearest_multiples(n_embd, n_head),
            otherwise=otherwise,
        )
