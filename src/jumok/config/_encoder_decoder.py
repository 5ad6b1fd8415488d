"""The configuration of the encoder–decoder Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jumok.config._fields import setting
from jumok.config._model import (
    LARGEST_DEPTH,
    MOST_DROPOUT,
    Activation,
    BlockConfig,
    GenerationRules,
    ModelConfig,
    require_whole_heads,
    size_of,
)
from jumok.errors import ConfigError

EncoderDecoderFamily = Literal["classic", "original"]


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """The architecture of an encoder and a decoder. The `help` of each field describes it.

    With `family="classic"` the model computes the same as BartForConditionalGeneration of `transformers`: learned
    positions and a norm over the embeddings (https://arxiv.org/abs/1910.13461). With `family="original"` it is the
    Transformer of 2017, with sinusoidal positions and no such norm (https://arxiv.org/abs/1706.03762), and computes the
    same as MarianMTModel. Both are post-norm, have biases, and share one matrix between both embeddings and the output
    layer.

    The ids of special tokens are None if the model has no such token.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    context_length: int = size_of(256, "maximum number of tokens of the source, and of the target")
    family: EncoderDecoderFamily = setting("classic", "classic (as BART) or original (the paper of 2017)")
    n_layer: int = size_of(4, "number of blocks of the encoder", LARGEST_DEPTH)
    n_decoder_layer: int = size_of(None, "number of blocks of the decoder [n_layer]", LARGEST_DEPTH)
    n_head: int = size_of(4, "number of heads of the encoder")
    n_decoder_head: int = size_of(None, "number of heads of the decoder [n_head]")
    n_embd: int = size_of(256, "width of the residual streams, a multiple of both numbers of heads")
    mlp_width: int = size_of(None, "hidden width of the encoder's MLPs [4 n_embd]")
    decoder_mlp_width: int = size_of(None, "hidden width of the decoder's MLPs [mlp_width]")
    activation: Activation = setting(None, "gelu (erf form), gelu_tanh, relu or silu [classic gelu, original relu]")
    scale_embedding: bool = setting(None, "multiply embeddings by the square root of n_embd [classic no, original yes]")
    dropout: float = setting(0.1, "dropout rate of embeddings and residual branches", 0, MOST_DROPOUT)
    attention_dropout: float = setting(0.0, "dropout rate of the attention weights", 0, MOST_DROPOUT)
    pad_id: int | None = setting(None, "id that pads the shorter texts of a batch", option=False)
    bos_id: int | None = setting(None, "id that begins a text", option=False)
    eos_id: int | None = setting(None, "id that ends a text", option=False)
    decoder_start_id: int | None = setting(None, "id of the first input of the decoder", option=False)
    forced_bos_id: int | None = setting(None, "id that the decoder always generates first", option=False)
    forced_eos_id: int | None = setting(
        None, "id that the decoder always generates at the maximum length", option=False
    )
    generation: GenerationRules | None = setting(
        None, "ids that are not generated, from generation_config.json", option=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        original = self.family == "original"
        self._fill(n_decoder_layer=self.n_layer, n_decoder_head=self.n_head, mlp_width=4 * self.n_embd)
        self._fill(decoder_mlp_width=self.mlp_width)
        self._fill(activation="relu" if original else "gelu", scale_embedding=original)
        require_whole_heads(self.n_embd, self.n_head)
        require_whole_heads(self.n_embd, self.n_decoder_head, "n_decoder_head")
        never = () if self.generation is None else self.generation.suppress_tokens
        contradictory = [one for one in (self.forced_bos_id, self.forced_eos_id) if one in never]
        if contradictory:
            raise ConfigError(
                "the id {found} is forced (forced_bos_id, forced_eos_id) and never generated (suppress_tokens); "
                "correct generation_config.json.",
                found=contradictory[0],
            )

    def encoder_block(self) -> BlockConfig:
        """Return the configuration of the blocks of the encoder."""
        return self._block(self.n_head, self.mlp_width)

    def decoder_block(self) -> BlockConfig:
        """Return the configuration of the blocks of the decoder."""
        return self._block(self.n_decoder_head, self.decoder_mlp_width)

    def _block(self, n_head: int, mlp_width: int) -> BlockConfig:
        return BlockConfig(
            width=self.n_embd,
            n_head=n_head,
            n_kv_head=n_head,
            head_dim=self.n_embd // n_head,
            mlp_width=mlp_width,
            activation=self.activation,
            pre_norm=False,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )
