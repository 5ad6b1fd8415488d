"""The configuration of GPT, of its rotary frequencies, and of GPT with components removed."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Literal

from jumok.config._fields import nearest_multiples, require_choice, setting, validate
from jumok.config._model import (
    LARGEST_BASE,
    LARGEST_DEPTH,
    LARGEST_EPSILON,
    LARGEST_SIZE,
    MOST_DROPOUT,
    Activation,
    BlockConfig,
    GenerationRules,
    ModelConfig,
    require_whole_heads,
    size_of,
)
from jumok.errors import ConfigError
from jumok.messages import tr

Family = Literal["modern", "classic"]
Mixing = Literal["none", "average", "attention"]
Start = Literal["gpt2", "identity", "look_back"]
RopeKind = Literal["linear", "dynamic", "yarn", "llama3"]

LONGEST_TABLE = 4096  # positions; that of 131,072 and heads of 128 would have 134 MB
MOST_NAMED = 128  # largest divisor that a message lists

# Of a family, its default first. The "gelu" of the classic family is gelu_tanh.
ACTIVATIONS: dict[str, tuple[Activation, ...]] = {"modern": ("silu",), "classic": ("gelu", "relu")}

LARGEST_FACTOR = 1e6
LEAST = 1e-6  # of positive numbers
NEEDED = {  # by kind
    "yarn": ("original_context",),
    "llama3": ("original_context", "low_freq_factor", "high_freq_factor"),
}


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are changed for contexts longer than those of pretraining.

    The kinds are those of `transformers`. "dynamic" (NTK) changes nothing up to the context length of the model, so
    here it never does. "yarn": https://arxiv.org/abs/2309.00071. "llama3": https://arxiv.org/abs/2407.21783.

    llama3 multiplies wavelengths above original_context / low_freq_factor by `factor`, and keeps those below
    original_context / high_freq_factor. attention_factor is the factor of cosines and sines; None: 0.1 ln(factor) + 1.

    Raises:
        ConfigError: a value is missing or out of range.
    """

    kind: RopeKind
    factor: float = setting(MISSING, "ratio of the context lengths", 1, LARGEST_FACTOR)
    original_context: int | None = setting(None, "context length of pretraining", 2, LARGEST_SIZE)
    low_freq_factor: float | None = setting(None, "see above (llama3)", LEAST, LARGEST_SIZE)
    high_freq_factor: float | None = setting(None, "see above (llama3)", LEAST, LARGEST_SIZE)
    beta_fast: float = setting(32.0, "rotations from which on frequencies are kept (yarn)", LEAST, LARGEST_SIZE)
    beta_slow: float = setting(1.0, "rotations up to which frequencies are divided (yarn)", LEAST, LARGEST_SIZE)
    attention_factor: float | None = setting(None, "see above (yarn)", LEAST, LARGEST_SIZE)
    truncate: bool = setting(True, "whether the limits of the mixture are rounded to whole dimensions (yarn)")

    def __post_init__(self) -> None:
        validate(self, "rope_scaling.")
        for name in NEEDED.get(self.kind, ()):
            if getattr(self, name) is None:
                raise ConfigError("rope_scaling of kind {kind} has no {name}.", kind=self.kind, name=name)
        low_freq, high_freq = self.low_freq_factor, self.high_freq_factor
        if low_freq is not None and high_freq is not None and low_freq >= high_freq:
            raise ConfigError(
                "rope_scaling has low_freq_factor={low} and high_freq_factor={high}; the first must be less.",
                low=low_freq,
                high=high_freq,
            )


@dataclass(frozen=True, kw_only=True)
class GPTConfig(ModelConfig):
    """The architecture of a GPT. The `help` of each field describes it.

    With `family="modern"` the model computes the same as Qwen3ForCausalLM of `transformers`, with `family="classic"`
    the same as GPT2LMHeadModel, except that the total head width n_head * head_dim can differ from n_embd. A model with
    labels also classifies texts; with `pooling="last"` as Qwen3ForSequenceClassification and
    GPT2ForSequenceClassification.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    family: Family = setting("modern", "modern (as Qwen3) or classic (as GPT-2)")
    n_layer: int = size_of(4, "number of blocks", LARGEST_DEPTH)
    n_head: int = size_of(4, "number of query heads")
    n_embd: int = size_of(256, "width of the residual stream")
    n_kv_head: int = size_of(None, "number of key/value heads, a divisor of n_head [n_head]")
    head_dim: int = size_of(None, "width of one head [n_embd / n_head]")
    # 8/3 of the width in the modern family (a multiple of 64): three matrices then cost as much as two of 4x.
    mlp_width: int = size_of(None, "hidden width of the MLP [4 n_embd; modern: 8/3 n_embd]")
    activation: Activation = setting(None, "gelu (tanh approximation) or relu; modern always uses silu, in a SwiGLU")
    dropout: float = setting(
        0.0, "dropout rate of embeddings and residual branches [by the number of passes]", 0, MOST_DROPOUT
    )
    attention_dropout: float = setting(0.0, "dropout rate of the attention weights", 0, MOST_DROPOUT)
    tie_embeddings: bool = setting(True, "share the token embedding with the output layer")
    norm_eps: float = setting(None, "epsilon of the normalization [modern 1e-6, classic 1e-5]", 0, LARGEST_EPSILON)
    rope_theta: float = setting(10_000.0, "base of the rotary frequencies (modern)", 1, LARGEST_BASE)
    labels: tuple[str, ...] = setting(
        (), "names of the classes, in the order of their logits; none: no classifier", option=False
    )
    pooling: Literal["last", "mean"] = setting("last", "pooling of a classifier: last or mean; BERT: first or mean")
    pad_id: int | None = setting(None, "id that pads the shorter texts of a batch", option=False)
    bos_id: int | None = setting(None, "id that begins a text; none: a newline does", option=False)
    eos_ids: tuple[int, ...] = setting((), "ids that end a text; none: generation goes on", option=False)
    generation: GenerationRules | None = setting(
        None, "ids that are not generated, from generation_config.json", option=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        modern, choices = self.family == "modern", self._activations()
        if getattr(self, "head_dim") is None:  # noqa: B009
            require_whole_heads(self.n_embd, self.n_head, otherwise=tr(", or give head_dim yourself"))
        self._fill(
            head_dim=self.n_embd // self.n_head,
            n_kv_head=self.n_head,
            mlp_width=-(-self.n_embd * 8 // 3 // 64) * 64 if self.has_gate else 4 * self.n_embd,
            activation=choices[0],
            norm_eps=1e-6 if self.has_rms else 1e-5,
        )
        require_choice("activation", self.activation, choices)
        if self.n_head % self.n_kv_head:
            divisors = [str(n) for n in range(1, min(self.n_head, MOST_NAMED) + 1) if self.n_head % n == 0]
            raise ConfigError(
                "n_head={n_head} is not divisible by n_kv_head={n_kv_head}; use one of {divisors} for n_kv_head.",
                n_head=self.n_head,
                n_kv_head=self.n_kv_head,
                divisors=", ".join(divisors),
            )
        if modern:
            self._require_rotation()
        elif self.n_kv_head != self.n_head:
            raise ConfigError(
                "n_kv_head={n_kv_head} differs from n_head={n_head}, which the classic family does not "
                "support; leave it out, or use {--family modern}.",
                n_kv_head=self.n_kv_head,
                n_head=self.n_head,
            )

    def _activations(self) -> tuple[str, ...]:
        return ACTIVATIONS[self.family]

    def _require_rotation(self) -> None:
        if self.head_dim % 2:
            raise ConfigError(
                "head_dim={head_dim} is odd, and rotary positions rotate pairs of dimensions; use {nearest}.",
                head_dim=self.head_dim,
                nearest=nearest_multiples(self.head_dim, 2),
            )

    @property
    def has_gate(self) -> bool:
        """Whether the hidden width of the MLP is by default that of a SwiGLU."""
        return self.family == "modern"

    @property
    def has_rms(self) -> bool:
        """Whether norms are RMSNorms, of queries and keys too, and layers have no biases."""
        return self.family == "modern"

    @property
    def first_parameters(self) -> Start:
        """The initial parameters: as GPT-2; blocks that begin as the identity; or also heads that look back."""
        return "look_back" if self.family == "modern" else "gpt2"

    @property
    def rotated(self) -> int:
        """The number of dimensions of a head that are rotated; 0 for learned positions."""
        return self.head_dim if self.family == "modern" else 0

    @property
    def table_length(self) -> int:
        """The number of positions whose cosines and sines a model keeps; it computes those beyond. 0 if not rotated."""
        return min(self.context_length, LONGEST_TABLE) if self.rotated else 0

    @property
    def frequency_scaling(self) -> RopeScaling | None:
        """The change of the rotary frequencies; see `GPTVariantConfig`."""
        return None

    def window(self, layer: int) -> int | None:
        """Return the number of tokens that a token sees in a layer, or None if it sees all before it."""
        return None

    def block(self) -> BlockConfig:
        """Return the configuration of the blocks."""
        modern = self.has_rms
        return BlockConfig(
            width=self.n_embd,
            n_head=self.n_head,
            n_kv_head=self.n_kv_head,
            head_dim=self.head_dim,
            mlp_width=self.mlp_width,
            activation="gelu_tanh" if self.activation == "gelu" else self.activation,
            gated=self.has_gate,
            norm="rms" if modern else "layer",
            norm_eps=self.norm_eps,
            qk_norm=modern,
            qkv_bias=not modern,
            out_bias=not modern,
            mlp_bias=not modern,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )


@dataclass(frozen=True, kw_only=True)
class RungConfig(GPTConfig):
    """A GPT with components removed, for the ladder of `jumok.course`: a series of models that adds them one by one.

    With the default values it is the GPT of its family. `transformers` has no class for the others. The last four
    fields are for the modern family: each puts a component of GPT-2 in the place of a modern one.

    Raises:
        ConfigError: as GPTConfig; or mixing="average" and the heads together are not as wide as the model.
    """

    mixing: Mixing = setting("attention", "none (no blocks at all), average (of the past) or attention")
    feed_forward: bool = setting(True, "whether blocks have an MLP")
    residual: bool = setting(True, "whether a block adds to its input, or replaces it")
    norm: bool = setting(True, "whether there are norms")
    rotary: bool = setting(True, "whether positions are rotary, or learned as in GPT-2 (modern)")
    rms: bool = setting(True, "whether norms are RMSNorms, of queries and keys too, without biases (modern)")
    gated: bool = setting(True, "whether the MLP is a SwiGLU (modern)")
    start: Start = setting("look_back", "initial parameters: gpt2, identity or look_back (modern)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            self.mixing == "average"
            and not self.n_kv_head * self.head_dim == self.n_head * self.head_dim == self.n_embd
        ):
            raise ConfigError(
                'mixing="average" needs heads that together are as wide as the model, queries and values '
                "alike: n_head={n_head} and n_kv_head={n_kv_head} of head_dim={head_dim} are not "
                "n_embd={n_embd}. Leave n_kv_head and head_dim out.",
                n_head=self.n_head,
                n_kv_head=self.n_kv_head,
                head_dim=self.head_dim,
                n_embd=self.n_embd,
            )

    def _activations(self) -> tuple[str, ...]:
        return super()._activations() if self.has_gate == (self.family == "modern") else ACTIVATIONS["classic"]

    @property
    def has_gate(self) -> bool:
        """Whether the MLP is a SwiGLU."""
        return super().has_gate and self.gated

    @property
    def has_rms(self) -> bool:
        """Whether norms are RMSNorms, of queries and keys too, and layers have no biases."""
        return super().has_rms and self.rms

    @property
    def first_parameters(self) -> Start:
        """The initial parameters; without rotary positions no head looks back."""
        if self.family == "classic":
            return "gpt2"
        return "identity" if self.start == "look_back" and not self.rotary else self.start

    @property
    def rotated(self) -> int:
        """The number of dimensions of a head that are rotated; 0 for learned positions."""
        return super().rotated if self.rotary else 0

    def block(self) -> BlockConfig:
        """Return the configuration of the blocks, without the removed components."""
        whole = super().block()
        return dataclasses.replace(
            whole,
            mlp_width=whole.mlp_width if self.feed_forward else 0,
            residual=self.residual,
            norm=whole.norm if self.norm else "none",
            qk_norm=whole.qk_norm and self.norm,
        )
