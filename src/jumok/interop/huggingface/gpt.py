"""GPT as a stock class: Qwen3ForCausalLM is the modern family, GPT2LMHeadModel the classic one.

With labels they are Qwen3ForSequenceClassification and GPT2ForSequenceClassification, which have no output layer.
GPT-2 keeps q, k and v in one tensor, and its matrices the other way round (its class calls them Conv1D).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jumok.config import GPTConfig
from jumok.errors import JumokError
from jumok.interop.huggingface.tensors import TRANSPOSED, Format, Row, Tensors, numbered

QWEN3 = {
    f"{their}.weight": Row((f"{our}.weight",))
    for their, our in {
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
    }.items()
}
CONV1D = {
    "attn.c_attn": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "attn.c_proj": ("attention.o_proj",),
    "mlp.c_fc": ("mlp.up_proj",),
    "mlp.c_proj": ("mlp.down_proj",),
}
GPT2 = {
    "transformer.wte.weight": Row(("token_embedding.weight",)),
    "transformer.wpe.weight": Row(("position_embedding.weight",)),
    **{
        f"transformer.h.{{i}}.{their}.weight": Row(tuple(f"blocks.{{i}}.{our}.weight" for our in ours), TRANSPOSED)
        for their, ours in CONV1D.items()
    },
    **{
        f"transformer.h.{{i}}.{their}.bias": Row(tuple(f"blocks.{{i}}.{our}.bias" for our in ours))
        for their, ours in CONV1D.items()
    },
    **{
        f"transformer.{their}.{kind}": Row((f"{our}.{kind}",))
        for their, our in {
            "h.{i}.ln_1": "blocks.{i}.attention_norm",
            "h.{i}.ln_2": "blocks.{i}.mlp_norm",
            "ln_f": "norm",
        }.items()
        for kind in ("weight", "bias")
    },
    "lm_head.weight": Row(("head.weight",)),
}
CLASSIFIER = {"score.weight": Row(("classifier.weight",))}
BESIDE = ("lm_head.weight", *CLASSIFIER)  # the names without the prefix of the others
BUFFERS = (".attn.bias", ".attn.masked_bias")  # constants that old GPT-2 files carry along


class GPTFormat(Format[GPTConfig]):
    """A causal model of either family.

    Args:
        table: its rows. prefix: of all names but that of a head, and absent where a file was saved without one.
    """

    def __init__(self, table: Mapping[str, Row], prefix: str) -> None:
        self._table, self._prefix = table, prefix

    def rows(self, config: GPTConfig) -> dict[str, Row]:
        """The row of each stock tensor; a head that is tied to the embedding has none."""
        rows = numbered(self._table, config.n_layer)
        if config.tie_embeddings or config.labels:
            del rows["lm_head.weight"]
        return rows | CLASSIFIER if config.labels else rows

    def tidied(self, config: GPTConfig, tensors: Tensors) -> Tensors:
        """Under the names of the class with a head, without constants and without a head that is tied."""
        if not any(name.startswith(self._prefix) for name in tensors):
            tensors = {name if name in BESIDE else self._prefix + name: t for name, t in tensors.items()}
        tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}
        if config.tie_embeddings:  # some files hold the shared matrix twice
            tensors.pop("lm_head.weight", None)
        return tensors

    def leaving(self, config: GPTConfig, parameters: Tensors) -> tuple[GPTConfig, Tensors]:
        """As they are, or with wider heads; see `widen_heads`."""
        return widen_heads(config, parameters) if config.family == "classic" else (config, parameters)

    def arriving(self, config: GPTConfig, parameters: Tensors) -> Tensors:
        """With the head that is tied."""
        if config.tie_embeddings:
            parameters["head.weight"] = parameters["token_embedding.weight"]
        return parameters


def widen_heads(config: GPTConfig, parameters: Tensors) -> tuple[GPTConfig, Tensors]:
    """The same classic model with heads that fill n_embd, as GPT-2 demands: n_head * head_dim = n_embd.

    Each head is padded with zeros, in q, k, v and in the matching columns of the output projection, which changes
    no product. GPT-2 divides the scores by the root of the new width instead of the old one; q grows by the root of
    their quotient to make up for it. Where n_embd is not divisible by n_head, heads of zeros are added until it is.
    The logits are equal up to rounding.

    Raises:
        JumokError: n_head * head_dim is more than n_embd, so that nothing can be padded.
    """
    heads = next((h for h in range(config.n_head, config.n_embd // config.head_dim + 1) if config.n_embd % h == 0), 0)
    if not heads:
        raise JumokError(
            "GPT2LMHeadModel cannot express this model: n_head={n_head} heads of head_dim={head_dim} "
            "do not fit into n_embd={n_embd} there. Train with n_head * head_dim of at most n_embd.",
            n_head=config.n_head,
            head_dim=config.head_dim,
            n_embd=config.n_embd,
        )
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
