"""Conversion of BERT: BertModel, BertForMaskedLM or BertForSequenceClassification, depending on its head."""

from __future__ import annotations

import dataclasses

from jumok.config import BERTConfig
from jumok.interop.huggingface.tensors import Format, Row, Tensors, numbered, pairs

ENCODER = {
    **{
        f"embeddings.{their}_embeddings.weight": Row((f"{our}_embedding.weight",))
        for their, our in {"word": "token", "position": "position", "token_type": "type"}.items()
    },
    **pairs(
        {
            "embeddings.LayerNorm": "embedding_norm",
            "encoder.layer.{i}.attention.self.query": "blocks.{i}.attention.q_proj",
            "encoder.layer.{i}.attention.self.key": "blocks.{i}.attention.k_proj",
            "encoder.layer.{i}.attention.self.value": "blocks.{i}.attention.v_proj",
            "encoder.layer.{i}.attention.output.dense": "blocks.{i}.attention.o_proj",
            "encoder.layer.{i}.attention.output.LayerNorm": "blocks.{i}.attention_norm",
            "encoder.layer.{i}.intermediate.dense": "blocks.{i}.mlp.up_proj",
            "encoder.layer.{i}.output.dense": "blocks.{i}.mlp.down_proj",
            "encoder.layer.{i}.output.LayerNorm": "blocks.{i}.mlp_norm",
        }
    ),
}
POOLER = pairs({"pooler.dense": "pooler"})
CLASSIFIER = pairs({"classifier": "classifier"})
MLM_HEAD = {
    "cls.predictions.bias": Row(("mlm_head.bias",)),
    **pairs(
        {
            "cls.predictions.transform.dense": "mlm_head.dense",
            "cls.predictions.transform.LayerNorm": "mlm_head.norm",
        }
    ),
}
# By the head in jumok: rows with the prefix of the encoder, and rows without it.
INSIDE = {"none": ENCODER, "mlm": ENCODER, "pooler": ENCODER | POOLER, "classify": ENCODER | POOLER}
BESIDE = {"none": {}, "pooler": {}, "mlm": MLM_HEAD, "classify": CLASSIFIER}
PREFIX = "bert."  # of the encoder, in classes with a head
ANY_HEAD = ("pooler.", "cls.", "classifier.")
# Names in files of 2018. The output layer shares the matrix of the embedding and the bias of the head.
OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
SHARED_BIAS = "cls.predictions.decoder.bias"


class BERTFormat(Format[BERTConfig]):
    """A BERT with any of its heads."""

    def rows(self, config: BERTConfig) -> dict[str, Row]:
        """Return the row of each stock tensor; in classes with a head, the encoder has a prefix."""
        prefix = PREFIX if BESIDE[config.head] else ""
        inside = {prefix + name: row for name, row in INSIDE[config.head].items()}
        return numbered(inside | BESIDE[config.head], config.n_layer)

    def normalised(self, config: BERTConfig, tensors: Tensors) -> Tensors:
        """Return the tensors with current names, without constants and without heads that the model does not have.

        Published files contain the heads of pre-training whatever their class is; the stock classes ignore them.
        """
        wanted = {name.removeprefix(PREFIX): name for name in self.rows(config)}
        found = {_current_name(name): tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
        if SHARED_BIAS in found:
            found.setdefault("cls.predictions.bias", found[SHARED_BIAS])
        return {
            wanted.get(name, name): tensor
            for name, tensor in found.items()
            if name in wanted or not name.startswith(ANY_HEAD)
        }

    def adjusted(self, config: BERTConfig, tensors: Tensors) -> BERTConfig:
        """Remove the pooler if the file has none: the config.json of a BertModel does not state that."""
        without = config.head == "pooler" and "pooler.dense.weight" not in map(_current_name, tensors)
        return dataclasses.replace(config, head="none") if without else config


def _current_name(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name.removeprefix(PREFIX)
