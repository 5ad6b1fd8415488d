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
PoolingKind = Literal["first", "last", "mean", "attention"]


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
        """All of them."""
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
        for one in self.frame.ids if self.frame is not None else ():
            require_id("an id in frame", one, self.vocab_size)

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


def require_distinct_labels(labels: tuple[str, ...]) -> None:
    """Raise ConfigError if two classes have the same name."""
    if len(set(labels)) < len(labels):
        raise ConfigError(
            "labels={labels} names a class twice; give each class a name of its own.", labels=list(labels)
        )


def read_rules(config: ModelConfig, rules: GenerationRules | None) -> None:
    """Check the rules of a model against its vocabulary; rules that forbid nothing become None.

    Raises:
        ConfigError: an id is not in the vocabulary.
    """
    if rules is None:
        return
    words = (one for word in rules.bad_words_ids for one in word)
    for one in {*rules.suppress_tokens, *rules.begin_suppress_tokens, *words}:
        require_id("an id in generation", one, config.vocab_size)
    if rules == GenerationRules():
        object.__setattr__(config, "generation", None)
