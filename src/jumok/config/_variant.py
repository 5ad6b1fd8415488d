"""The configuration of GPTs with the components of other published decoders: Llama, Qwen2, Mistral, GPT-NeoX."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Literal

from jumok.config._fields import nearest_multiples, require_range, setting
from jumok.config._gpt import GPTConfig, RopeScaling, Start
from jumok.config._model import Activation, BlockConfig
from jumok.errors import ConfigError

Architecture = Literal["Llama", "Qwen2", "Qwen3", "Mistral", "GPTNeoX"]
VariantNorm = Literal["rms", "layer"]


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
    activation: Activation = setting("silu", "silu, gelu (erf), gelu_tanh or relu")
    norm: VariantNorm = setting("rms", "rms or layer")
    gated: bool = setting(True, "whether the MLP is a SwiGLU")
    qk_norm: bool = setting(False, "whether each head of q and k has an RMSNorm")
    qkv_bias: bool = setting(False, "whether the projections to q, k and v have biases")
    out_bias: bool = setting(False, "whether the output projection of attention has a bias")
    mlp_bias: bool = setting(False, "whether the layers of the MLP have biases")
    parallel: bool = setting(False, "whether attention and MLP read the same input: x + attention(x) + mlp(x)")
    rotary_dim: int = setting(None, "dimensions of a head that are rotated, the first ones [head_dim]")
    rope_scaling: RopeScaling | None = setting(None, "change of the rotary frequencies for long contexts")
    sliding_window: int | None = setting(None, "number of tokens that a token sees, itself included; none: all", 1)
    sliding_layers: tuple[int, ...] = setting(None, "layers with the sliding window [all]")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family != "modern":
            raise ConfigError("family={family!r} has no rotary positions; leave it out.", family=self.family)
        if self.gated and self.activation != "silu":
            raise ConfigError(
                "activation={activation!r} is for an MLP without a gate; use gated=False, or silu.",
                activation=self.activation,
            )
        self._fill(sliding_layers=tuple(range(self.n_layer)) if self.sliding_window is not None else ())
        for layer in self.sliding_layers:
            require_range("a layer in sliding_layers", layer, 0, self.n_layer - 1)

    def _activations(self) -> tuple[str, ...]:
        return typing.get_args(Activation)

    def _require_rotation(self) -> None:
        self._fill(rotary_dim=self.head_dim)
        require_range("rotary_dim", self.rotary_dim, 2, self.head_dim)
        if self.rotary_dim % 2:
            raise ConfigError(
                "rotary_dim={rotary_dim} is odd, and rotary positions rotate pairs of dimensions; use {nearest}.",
                rotary_dim=self.rotary_dim,
                nearest=nearest_multiples(self.rotary_dim, 2),
            )
        if self.rope_scaling is not None and self.rope_scaling.kind == "yarn" and self.rope_theta == 1:
            raise ConfigError("rope_scaling of kind yarn needs a rope_theta greater than 1.")

    @property
    def first_parameters(self) -> Start:
        """The initial parameters: blocks that begin as the identity."""
        return "identity"

    @property
    def rotated(self) -> int:
        """The number of dimensions of a head that are rotated."""
        return self.rotary_dim

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
