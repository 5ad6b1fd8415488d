"""The encoder–decoder as a stock class: BartForConditionalGeneration, and MarianMTModel for the Transformer of 2017.

BART's position tables begin with two rows that no position uses; ours do not have them.

Marian is the model of 2017 in another order: it writes all sines of a position before all cosines, where the paper
puts them in turns. The order of the coordinates of the residual stream means nothing, so if all parameters that
touch it are put into Marian's order, the model is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig
from jumok.interop.huggingface.tensors import Change, Format, Row, Tensors, numbered, pairs

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
    """The classic family."""

    def rows(self, config: EncoderDecoderConfig) -> dict[str, Row]:
        """The row of each stock tensor; those that share the embedding's matrix have none."""
        tables = {
            f"model.{their}.embed_positions.weight": Row((f"{our}.position_embedding.weight",), OFFSET)
            for their, our in SIDES.items()
        }
        norms = pairs({f"model.{their}.layernorm_embedding": f"{our}.norm" for their, our in SIDES.items()})
        return _shared_rows(config) | tables | norms

    def tidied(self, config: EncoderDecoderConfig, tensors: Tensors) -> Tensors:
        """Under the names of the class with an output layer, whose bias is zero where a file has none."""
        if not any(name.startswith("model.") for name in tensors):  # saved from BartModel
            tensors = {f"model.{name}": tensor for name, tensor in tensors.items()}
        tensors = dict(tensors)
        copies = [tensors.pop(name) for name in COPIES if name in tensors]
        if copies:
            tensors.setdefault(EMBEDDING, copies[0])
        if EMBEDDING in tensors:
            tensors.setdefault("final_logits_bias", tensors[EMBEDDING].new_zeros(1, config.vocab_size))
        return tensors


class MarianFormat(BARTFormat):
    """The original family."""

    def rows(self, config: EncoderDecoderConfig) -> dict[str, Row]:
        """The row of each stock tensor; positions are computed there as here."""
        return _shared_rows(config)

    def tidied(self, config: EncoderDecoderConfig, tensors: Tensors) -> Tensors:
        """As BART's; older files hold the positions, too."""
        tidied = super().tidied(config, tensors)
        return {name: tensor for name, tensor in tidied.items() if not name.endswith("embed_positions.weight")}

    def leaving(self, config: EncoderDecoderConfig, parameters: Tensors) -> tuple[EncoderDecoderConfig, Tensors]:
        """With all sines before all cosines."""
        return config, reordered(parameters, _sines_first(config.n_embd))

    def arriving(self, config: EncoderDecoderConfig, parameters: Tensors) -> Tensors:
        """With sines and cosines in turns."""
        return reordered(parameters, _sines_first(config.n_embd).argsort())


def _sines_first(width: int) -> Tensor:
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def reordered(parameters: Tensors, order: Tensor) -> Tensors:
    """The parameters of the same model with the coordinates of its residual streams in another order.

    What reads from a stream has it in its columns, what writes to one in its rows, and norms act on it directly.

    Args:
        order: (C,), where each new coordinate was before.
    """
    reads = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "up_proj.weight", "embedding.weight")
    writes = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "norm.weight", "norm.bias")
    return {
        name: tensor[:, order] if name.endswith(reads) else tensor[order] if name.endswith(writes) else tensor
        for name, tensor in parameters.items()
    }
