"""Conversion of GPT: the modern family to Qwen3, the classic family to GPT-2, variants to the class that they are.

With labels the classes end with ForSequenceClassification, and have no output layer. GPT-2 stores q, k and v in one
tensor, and its matrices (Conv1D) are transposed. GPT-NeoX stores q, k and v in one tensor, head by head.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jumok.config import GPTConfig
from jumok.config.features import wider_heads
from jumok.interop.huggingface.tensors import SAME, TRANSPOSED, Change, Format, Row, Tensors, merged, numbered, same

FUSED = "q, k and v"  # in one tensor; in GPT-NeoX head by head

# From their layers to ours. Which of them exist, and which have biases, depends on the configuration.
LLAMA = {
    "model.embed_tokens": "token_embedding",
    "model.layers.{i}.input_layernorm": "blocks.{i}.attention_norm",
    "model.layers.{i}.self_attn.q_proj": "blocks.{i}.attention.q_proj",
    "model.layers.{i}.self_attn.k_proj": "blocks.{i}.attention.k_proj",
    "model.layers.{i}.self_attn.v_proj": "blocks.{i}.attention.v_proj",
    "model.layers.{i}.self_attn.o_proj": "blocks.{i}.attention.o_proj",
    "model.layers.{i}.self_attn.q_norm": "blocks.{i}.attention.q_norm",
    "model.layers.{i}.self_attn.k_norm": "blocks.{i}.attention.k_norm",
    "model.layers.{i}.post_attention_layernorm": "blocks.{i}.mlp_norm",
    "model.layers.{i}.mlp.gate_proj": "blocks.{i}.mlp.gate_proj",
    "model.layers.{i}.mlp.up_proj": "blocks.{i}.mlp.up_proj",
    "model.layers.{i}.mlp.down_proj": "blocks.{i}.mlp.down_proj",
    "model.norm": "norm",
    "lm_head": "head",
}
GPT_NEOX = {
    "gpt_neox.embed_in": "token_embedding",
    "gpt_neox.layers.{i}.input_layernorm": "blocks.{i}.attention_norm",
    "gpt_neox.layers.{i}.attention.query_key_value": FUSED,
    "gpt_neox.layers.{i}.attention.dense": "blocks.{i}.attention.o_proj",
    "gpt_neox.layers.{i}.post_attention_layernorm": "blocks.{i}.mlp_norm",
    "gpt_neox.layers.{i}.mlp.dense_h_to_4h": "blocks.{i}.mlp.up_proj",
    "gpt_neox.layers.{i}.mlp.dense_4h_to_h": "blocks.{i}.mlp.down_proj",
    "gpt_neox.final_layer_norm": "norm",
    "embed_out": "head",
}
GPT2 = {
    "transformer.wte": "token_embedding",
    "transformer.wpe": "position_embedding",
    "transformer.h.{i}.ln_1": "blocks.{i}.attention_norm",
    "transformer.h.{i}.attn.c_attn": FUSED,
    "transformer.h.{i}.attn.c_proj": "blocks.{i}.attention.o_proj",
    "transformer.h.{i}.ln_2": "blocks.{i}.mlp_norm",
    "transformer.h.{i}.mlp.c_fc": "blocks.{i}.mlp.up_proj",
    "transformer.h.{i}.mlp.c_proj": "blocks.{i}.mlp.down_proj",
    "transformer.ln_f": "norm",
    "lm_head": "head",
}
CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # GPT-2 stores these transposed
CLASSIFIER = {"score.weight": Row(("classifier.weight",))}
HEADS = ("lm_head.weight", "embed_out.weight")  # names without the prefix; older and newer ones of GPT-NeoX
# Constants in old files.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq")


class GPTFormat(Format[GPTConfig]):
    """The conversion of a GPT of either family.

    Args:
        layers: from stock layers to those of jumok.
        prefix: of all names except those of heads. Files saved without a head do not have it.
    """

    def __init__(self, layers: Mapping[str, str], prefix: str) -> None:
        self._layers, self._prefix = layers, prefix

    def rows(self, config: GPTConfig) -> dict[str, Row]:
        """Return the row of each stock tensor; a tied output layer has none."""
        rows = numbered(_rows(self._layers, config), config.n_layer)
        if config.tie_embeddings or config.labels:
            rows = {name: row for name, row in rows.items() if name not in HEADS}
        return rows | CLASSIFIER if config.labels else rows

    def normalised(self, config: GPTConfig, tensors: Tensors, where: str) -> Tensors:
        """Return the tensors with the names of the class with a head, without constants and a tied output layer."""
        named = self._named(tensors)
        head = self._name_of("head")
        if config.labels:  # the class has no output layer
            return {name: tensor for name, tensor in named.items() if name != head}
        if config.tie_embeddings:  # some files contain the shared matrix twice
            return merged(named, self._name_of("token_embedding"), (head,), where)
        return named

    def adjusted(self, config: GPTConfig, tensors: Tensors) -> GPTConfig:
        """Untie the output layer if the file contains another matrix for it, as `transformers` does.

        Merging an adapter into one of two tied matrices writes such files, and leaves tie_word_embeddings true.
        """
        named = self._named(tensors)
        head, embedding = (named.get(self._name_of(our)) for our in ("head", "token_embedding"))
        if config.labels or head is None or embedding is None or same(embedding, head):
            return config
        return dataclasses.replace(config, tie_embeddings=False)

    def _named(self, tensors: Tensors) -> Tensors:
        """Return the tensors with the names of the class with a head, without constants."""
        bare = not any(name.startswith(self._prefix) for name in tensors)
        head = self._name_of("head")
        return {
            head if name in HEADS else self._prefix + name if bare and name not in CLASSIFIER else name: tensor
            for name, tensor in tensors.items()
            if not name.endswith(BUFFERS)
        }

    def _name_of(self, our: str) -> str:
        """Return the stock name of the matrix of one of our layers outside the blocks."""
        return f"{next(their for their, layer in self._layers.items() if layer == our)}.weight"

    def for_export(self, config: GPTConfig, parameters: Tensors) -> tuple[GPTConfig, Tensors]:
        """Widen the heads of a classic model if necessary; see `widen_heads`."""
        return widen_heads(config, parameters) if config.family == "classic" else (config, parameters)

    def after_import(self, config: GPTConfig, parameters: Tensors) -> Tensors:
        """Add the tied output layer to the embedding."""
        if config.tie_embeddings and "token_embedding.weight" in parameters:
            parameters["head.weight"] = parameters["token_embedding.weight"]
        return parameters


def _rows(layers: Mapping[str, str], config: GPTConfig) -> dict[str, Row]:
    """Return the rows of a table of stock layers and layers of jumok, by the parameters that these have."""
    rows: dict[str, Row] = {}
    for their, our in layers.items():
        ours = [f"blocks.{{i}}.attention.{part}_proj" for part in "qkv"] if our == FUSED else [our]
        for kind in _kinds(ours[0], config):
            name, change = f"{their}.{kind}", SAME
            if name.endswith(CONV1D):
                change = TRANSPOSED
            elif our == FUSED and layers is GPT_NEOX:
                change = interleaved(config.n_head)
            rows[name] = Row(tuple(f"{one}.{kind}" for one in ours), change)
    return rows


def _kinds(layer: str, config: GPTConfig) -> tuple[str, ...]:
    """Return the parameters of a layer: none, weight, or weight and bias."""
    block, name = config.block(), layer.rpartition(".")[2]
    if name in ("q_norm", "k_norm"):
        return ("weight",) if block.qk_norm else ()
    biased = {
        **dict.fromkeys(("q_proj", "k_proj", "v_proj"), block.qkv_bias),
        "o_proj": block.out_bias,
        **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), block.mlp_bias),
        **dict.fromkeys(("attention_norm", "mlp_norm", "norm"), block.norm == "layer"),
    }
    return ("weight", "bias") if biased.get(name) else ("weight",)


def interleaved(heads: int) -> Change:
    """Return the change from q, k and v, one after another, to q, k and v of each head, one after another."""
    return Change(
        lambda tensor: tensor.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2),
        lambda tensor: tensor.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2),
    )


def widen_heads(config: GPTConfig, parameters: Tensors) -> tuple[GPTConfig, Tensors]:
    """Return an equivalent classic model with n_head * head_dim = n_embd, as GPT-2 requires.

    Each head is padded with zeros in q, k, v and in the matching columns of the output projection, which changes no
    product. GPT-2 divides the scores by the root of the new head width; q is multiplied by the root of the ratio of the
    widths to compensate. If n_embd is not divisible by n_head, heads of zeros are added. The logits are equal up to
    rounding.
    """
    heads = wider_heads(config)
    width = config.n_embd // heads
    if (heads, width) == (config.n_head, config.head_dim):
        return config, parameters
    wider = dict(parameters)
    for name, tensor in parameters.items():
        if ".q_proj." in name or ".k_proj." in name or ".v_proj." in name:
            scale = (width / config.head_dim) ** 0.5 if ".q_proj." in name else 1.0
            padded = tensor.new_zeros(heads, width, *tensor.shape[1:])  # (H', D') or (H', D', C)
            padded[: config.n_head, : config.head_dim] = tensor.unflatten(0, (config.n_head, config.head_dim)) * scale
            wider[name] = padded.flatten(0, 1)  # (C,) or (C, C)
        elif name.endswith("o_proj.weight"):
            padded = tensor.new_zeros(config.n_embd, heads, width)  # (C, H', D')
            padded[:, : config.n_head, : config.head_dim] = tensor.unflatten(1, (config.n_head, config.head_dim))
            wider[name] = padded.flatten(1)  # (C, C)
    return dataclasses.replace(config, n_head=heads, n_kv_head=heads, head_dim=width), wider


GPT2_FORMAT = GPTFormat(GPT2, "transformer.")
LLAMA_FORMAT = GPTFormat(LLAMA, "model.")
GPT_NEOX_FORMAT = GPTFormat(GPT_NEOX, "gpt_neox.")
