"""The configuration of GPTs with the components of other published decoders: Llama, Qwen2, Mistral, GPT-NeoX."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jumok.config._checks import nearest_multiples, require_choice, require_range, require_type
from jumok.config._fields import Configuration, from_dict, require_types, setting
from jumok.config._gpt import GPTConfig
from jumok.config._model import LARGEST_SIZE, BlockConfig
from jumok.errors import ConfigError

RopeKind = Literal["linear", "dynamic", "yarn", "longrope", "llama3"]

LARGEST_FACTOR = 1e6
LEAST = 1e-6  # of positive numbers
NEEDED = {  # by kind
    "yarn": ("original_context",),
    "longrope": ("original_context", "short_factor", "long_factor"),
    "llama3": ("original_context", "low_freq_factor", "high_freq_factor"),
}


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are changed for contexts longer than those of pretraining.

    The kinds are those of `transformers`. "dynamic" (NTK) changes nothing up to the context length of the model, so
    here it never does. "yarn": https://arxiv.org/abs/2309.00071. "longrope": https://arxiv.org/abs/2402.13753; as in
    `transformers`, a text that grows beyond original_context keeps the keys that are in the cache. "llama3":
    https://arxiv.org/abs/2407.21783.

    Attributes:
        kind: "linear", "dynamic", "yarn", "longrope" or "llama3".
        factor: ratio of the context lengths.
        original_context: context length of pretraining (yarn, longrope, llama3).
        low_freq_factor, high_freq_factor: llama3: wavelengths above original_context / low_freq_factor are multiplied
            by `factor`, those below original_context / high_freq_factor are kept.
        beta_fast, beta_slow: yarn: rotations within original_context, between which both frequencies are mixed.
        attention_factor: yarn, longrope: factor of cosines and sines; None: 0.1 ln(factor) + 1 for yarn, and
            sqrt(1 + ln(factor) / ln(original_context)) for longrope.
        truncate: yarn: whether the limits of the mixture are rounded to whole dimensions.
        short_factor, long_factor: longrope: the divisor of each frequency in texts up to original_context, and in
            longer ones.

    Raises:
        ConfigError: a value is missing or out of range.
    """

    kind: RopeKind
    factor: float
    original_context: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("short_factor", "long_factor"):
            if isinstance(getattr(self, name), list):  # JSON has no tuples
                object.__setattr__(self, name, tuple(getattr(self, name)))
        require_types(self, "rope_scaling.")
        require_choice("rope_scaling.kind", self.kind, typing.get_args(RopeKind))
        for name in NEEDED.get(self.kind, ()):
            if getattr(self, name) is None:
                raise ConfigError("rope_scaling of kind {kind} has no {name}.", kind=self.kind, name=name)
        require_range("rope_scaling.factor", self.factor, 1, LARGEST_FACTOR)
        for name, low in (("original_context", 2), ("low_freq_factor", LEAST), ("high_freq_factor", LEAST),
                          ("beta_fast", LEAST), ("beta_slow", LEAST), ("attention_factor", LEAST)):  # fmt: skip
            if getattr(self, name) is not None:
                require_range(f"rope_scaling.{name}", getattr(self, name), low, LARGEST_SIZE)
        for name in ("short_factor", "long_factor"):
            for value in getattr(self, name) or ():
                require_type(f"a number in rope_scaling.{name}", value, float)
                require_range(f"a number in rope_scaling.{name}", value, LEAST, LARGEST_FACTOR)
        low_freq, high_freq = self.low_freq_factor, self.high_freq_factor
        if low_freq is not None and high_freq is not None and low_freq >= high_freq:
            raise ConfigError(
                "rope_scaling has low_freq_factor={low} and high_freq_factor={high}; the first must be less.",
                low=low_freq,
                high=high_freq,
            )


Architecture = Literal["Llama", "Qwen2", "Qwen3", "Mistral", "GPTNeoX"]
VariantNorm = Literal["rms", "layer"]
VariantActivation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class GPTVariantConfig(GPTConfig):
    """A GPT with rotary positions and the components of another published decoder.

    It describes models that were read from `transformers`: Llama, Qwen2, Mistral, GPT-NeoX, and Qwen3 with options that
    the modern family lacks. `jumok train` starts no such model, but continues one with `--init`. The defaults are those
    of Llama.

    Raises:
        ConfigError: as GPTConfig.
    """

    architecture: Architecture = setting("Llama", "architecture of transformers as which the model is exported")
    # Unlike in GPTConfig, "gelu" is the exact form, and "gelu_tanh" the approximation.
    activation: VariantActivation = setting("silu", "silu, gelu (erf), gelu_tanh or relu")  # type: ignore[assignment]
    norm: VariantNorm = setting("rms", "rms or layer")
    gated: bool = setting(True, "whether the MLP is a SwiGLU")
    qk_norm: bool = setting(False, "whether each head of q and k has an RMSNorm")
    qkv_bias: bool = setting(False, "whether the projections to q, k and v have biases")
    out_bias: bool = setting(False, "whether the output projection of attention has a bias")
    mlp_bias: bool = setting(False, "whether the layers of the MLP have biases")
    parallel: bool = setting(False, "whether attention and MLP read the same input: x + attention(x) + mlp(x)")
    rotary_dim: int = setting(None, "dimensions of a head that are rotated, the first ones [head_dim]")
    rope_scaling: RopeScaling | None = setting(None, "change of the rotary frequencies for long contexts")
    sliding_window: int | None = setting(None, "number of tokens that a token sees, itself included; none: all")
    sliding_layers: tuple[int, ...] = setting(None, "layers with the sliding window [all]")

    def __post_init__(self, replaced: Configuration | None) -> None:
        scaling: object = self.rope_scaling
        layers: object = self.sliding_layers
        if isinstance(scaling, Mapping):
            object.__setattr__(self, "rope_scaling", from_dict(RopeScaling, scaling))
        if isinstance(layers, list):
            object.__setattr__(self, "sliding_layers", tuple(layers))
        super().__post_init__(replaced)
        if self.family != "modern":
            raise ConfigError("family={family!r} has no rotary positions; leave it out.", family=self.family)
        require_choice("architecture", self.architecture, typing.get_args(Architecture))
        require_choice("norm", self.norm, typing.get_args(VariantNorm))
        if self.gated and self.activation != "silu":
            raise ConfigError(
                "activation={activation!r} is for an MLP without a gate; use gated=False, or silu.",
                activation=self.activation,
            )
        if self.sliding_window is not None:
            require_range("sliding_window", self.sliding_window, 1)
        self._fill("sliding_layers", tuple(range(self.n_layer)) if self.sliding_window is not None else ())
        for layer in self.sliding_layers:
            require_type("a layer in sliding_layers", layer, int)
            require_range("a layer in sliding_layers", layer, 0, self.n_layer - 1)

    def _activations(self) -> tuple[str, ...]:
        return typing.get_args(VariantActivation)

    def _require_rotation(self) -> None:
        self._fill("rotary_dim", self.head_dim)
        require_range("rotary_dim", self.rotary_dim, 2, self.head_dim)
        if self.rotary_dim % 2:
            raise ConfigError(
                "rotary_dim={rotary_dim} is odd, and rotary positions rotate pairs of dimensions; use {nearest}.",
                rotary_dim=self.rotary_dim,
                nearest=nearest_multiples(self.rotary_dim, 2),
            )
        scaling = self.rope_scaling
        if scaling is None:
            return
        if scaling.kind == "yarn" and self.rope_theta == 1:
            raise ConfigError("rope_scaling of kind yarn needs a rope_theta greater than 1.")
        for name in NEEDED["longrope"][1:]:
            factors = getattr(scaling, name)
            if factors is not None and len(factors) != self.rotary_dim // 2:
                raise ConfigError(
                    "rope_scaling.{name} has {count} numbers, but rotary_dim={rotary_dim} has {expected} frequencies.",
                    name=name,
                    count=len(factors),
                    rotary_dim=self.rotary_dim,
                    expected=self.rotary_dim // 2,
                )

    @property
    def rotated(self) -> int:
        """The number of dimensions of a head that are rotated."""
        return self.rotary_dim

    @property
    def table_length(self) -> int:
        """The number of positions whose cosines and sines a model keeps; beyond longrope's, all angles change."""
        length, scaling = super().table_length, self.rope_scaling
        if scaling is None or scaling.kind != "longrope":
            return length
        assert scaling.original_context is not None
        return min(length, scaling.original_context)

    @property
    def frequency_scaling(self) -> RopeScaling | None:
        """The change of the rotary frequencies."""
        return self.rope_scaling

    def window(self, layer: int) -> int | None:
        """Return the number of tokens that a token sees in a layer, or None if it sees all before it."""
        return self.sliding_window if layer in self.sliding_layers else None

    def block(self) -> BlockConfig:
        """Return the configuration of the blocks."""
        return dataclasses.replace(
            super().block(),
            activation=self.activation,
            gated=self.gated,
            norm=self.norm,
            qk_norm=self.qk_norm,
            qkv_bias=self.qkv_bias,
            out_bias=self.out_bias,
            mlp_bias=self.mlp_bias,
            parallel=self.parallel,
        )
