"""Conversion of the encoder–decoder: BartForConditionalGeneration, and MarianMTModel for the Transformer of 2017.

The position tables of BART begin with two unused rows, which those of jumok do not have.

Marian has all sines of a position before all cosines, while the paper alternates them. The order of the coordinates of
the residual stream is arbitrary, so the conversion permutes all parameters that read from it or write to it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig
from jumok.errors import RunError
from jumok.interop.huggingface.tensors import Change, Format, Row, Tensors, merged, numbered, pairs
from jumok.nn.positions import sinusoidal

UNUSED_ROWS = 2
OFFSET = Change(lambda table: F.pad(table, (0, 0, UNUSED_ROWS, 0)), lambda table: table[UNUSED_ROWS:])
ONE_ROW = Change(lambda bias: bias[None], lambda bias: bias[0])  # (1, V) there

SELF = {
    **{f"self_attn.{kind}_proj": f"attention.{kind}_proj" for kind in "qkv"},
    "self_attn.out_proj": "attention.o_proj",
    "self_attn_layer_norm": "attention_norm",
    "fc1": "mlp.up_proj",
    "fc2": "mlp.down_proj",
    "final_layer_norm": "mlp_norm",
}
CROSS = {
    **{f"encoder_attn.{kind}_proj": f"cross_attention.{kind}_proj" for kind in "qkv"},
    "encoder_attn.out_proj": "cross_attention.o_proj",
    "encoder_attn_layer_norm": "cross_norm",
}
EMBEDDING = "model.shared.weight"
COPIES = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
ROUNDED = 2**-8  # how much a sine in bfloat16 can differ
SIDES = {"encoder": "source_placement", "decoder": "target_placement"}


def _shared_rows(config: EncoderDecoderConfig) -> dict[str, Row]:
    encoder = {f"model.encoder.layers.{{i}}.{their}": f"encoder.{{i}}.{our}" for their, our in SELF.items()}
    decoder = {f"model.decoder.layers.{{i}}.{their}": f"decoder.{{i}}.{our}" for their, our in (SELF | CROSS).items()}
    return {
        EMBEDDING: Row(("token_embedding.weight",)),
        "final_logits_bias": Row(("output_bias",), ONE_ROW),
        **numbered(pairs(encoder), config.n_layer),
        **numbered(pairs(decoder), config.n_decoder_layer),
    }


class BARTFormat(Format[EncoderDecoderConfig]):
    """The conversion of the classic family."""

    def rows(self, config: EncoderDecoderConfig) -> dict[str, Row]:
        """Return the row of each stock tensor; tensors that share the matrix of the embedding have none."""
        tables = {
            f"model.{their}.embed_positions.weight": Row((f"{our}.position_embedding.weight",), OFFSET)
            for their, our in SIDES.items()
        }
        norms = pairs({f"model.{their}.layernorm_embedding": f"{our}.norm" for their, our in SIDES.items()})
        return _shared_rows(config) | tables | norms

    def normalised(self, config: EncoderDecoderConfig, tensors: Tensors, where: str) -> Tensors:
        """Return the tensors with the names of the class with an output layer; a missing bias is zero."""
        if not any(name.startswith("model.") for name in tensors):  # saved from BartModel
            tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
        tensors = merged(tensors, EMBEDDING, COPIES, where)
        if EMBEDDING in tensors:
            tensors.setdefault("final_logits_bias", tensors[EMBEDDING].new_zeros(1, config.vocab_size))
        return tensors


class MarianFormat(BARTFormat):
    """The conversion of the original family."""

    def rows(self, config: EncoderDecoderConfig) -> dict[str, Row]:
        """Return the row of each stock tensor; the positions are computed, so they have none."""
        return _shared_rows(config)

    def normalised(self, config: EncoderDecoderConfig, tensors: Tensors, where: str) -> Tensors:
        """Return the tensors as for BART, without the positions that older files contain."""
        normalised = super().normalised(config, tensors, where)
        for name in [name for name in normalised if name.endswith("embed_positions.weight")]:
            table = sinusoidal(config.context_length, config.n_embd)[:, _sines_first(config.n_embd)]  # (T, C)
            found = normalised.pop(name).to(table.dtype)
            if found.shape != table.shape or not torch.allclose(found, table, rtol=0, atol=ROUNDED):
                raise RunError(
                    "{where}: {name} is not the table of sines and cosines that this architecture computes; remove it "
                    "from the file, or restore the file from a copy.",
                    where=where,
                    name=name,
                )
        return normalised

    def for_export(self, config: EncoderDecoderConfig, parameters: Tensors) -> tuple[EncoderDecoderConfig, Tensors]:
        """Permute the coordinates to all sines before all cosines."""
        return config, reordered(parameters, _sines_first(config.n_embd))

    def after_import(self, config: EncoderDecoderConfig, parameters: Tensors) -> Tensors:
        """Permute the coordinates to alternating sines and cosines."""
        return reordered(parameters, _sines_first(config.n_embd).argsort())


def _sines_first(width: int) -> Tensor:
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def reordered(parameters: Tensors, order: Tensor) -> Tensors:
    """Return the parameters of an equivalent model with the coordinates of its residual streams in another order.

    Matrices that read from a stream have it in their columns, and matrices that write to it in their rows.

    Args:
        order: (C,), the old index of each new coordinate.
    """
    reads = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "up_proj.weight", "embedding.weight")
    writes = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "norm.weight", "norm.bias")
    return {
        name: tensor[:, order] if name.endswith(reads) else tensor[order] if name.endswith(writes) else tensor
        for name, tensor in parameters.items()
    }
