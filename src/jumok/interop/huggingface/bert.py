"""Conversion of BERT, RoBERTa and ELECTRA, with the head of their classes.

The names in the encoder are the same in the three families.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from jumok.config import BERTConfig
from jumok.interop.huggingface.tensors import Format, Row, Tensors, merged, numbered, pairs

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
PROJECTION = pairs({"embeddings_project": "embedding_projection"})
POOLER = pairs({"pooler.dense": "pooler"})
DEEP_CLASSIFIER = {"classifier.dense": "pooler", "classifier.out_proj": "classifier"}


@dataclass(frozen=True)
class Names:
    """The names of the heads of a family.

    Attributes:
        prefix: of the encoder, in classes with a head.
        classifier, mlm: layers of the heads for classes and for masked tokens.
        bias: of the head for masked tokens.
        copy: a second name of the bias in files.
        decoder: the name of the matrix of that head, which is that of the embedding.
    """

    prefix: str
    classifier: dict[str, str]
    mlm: dict[str, str]
    bias: str
    copy: str
    decoder: str


FAMILIES = {
    "bert": Names(
        prefix="bert.",
        classifier={"bert.pooler.dense": "pooler", "classifier": "classifier"},
        mlm={
            "cls.predictions.transform.dense": "mlm_head.dense",
            "cls.predictions.transform.LayerNorm": "mlm_head.norm",
        },
        bias="cls.predictions.bias",
        copy="cls.predictions.decoder.bias",
        decoder="cls.predictions.decoder.weight",
    ),
    "roberta": Names(
        prefix="roberta.",
        classifier=DEEP_CLASSIFIER,
        mlm={"lm_head.dense": "mlm_head.dense", "lm_head.layer_norm": "mlm_head.norm"},
        bias="lm_head.bias",
        copy="lm_head.decoder.bias",
        decoder="lm_head.decoder.weight",
    ),
    "electra": Names(
        prefix="electra.",
        classifier=DEEP_CLASSIFIER,
        mlm={"generator_predictions.dense": "mlm_head.dense", "generator_predictions.LayerNorm": "mlm_head.norm"},
        bias="generator_lm_head.bias",
        copy="generator_predictions.bias",
        decoder="generator_lm_head.weight",
    ),
}
WORDS = "embeddings.word_embeddings.weight"
# Tensors of heads, which files contain whatever their class is; the stock classes ignore those that they lack.
ANY_HEAD = ("pooler.", "cls.", "classifier.", "lm_head.", "discriminator_predictions.", "generator_")
OLD_NAMES = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}  # in files of 2018
CONSTANTS = ("position_ids", "token_type_ids")  # in files of transformers before 4.31


class BERTFormat(Format[BERTConfig]):
    """A BERT, RoBERTa or ELECTRA with any of its heads."""

    def rows(self, config: BERTConfig) -> dict[str, Row]:
        """Return the row of each stock tensor; in classes with a head, the encoder has a prefix."""
        names = FAMILIES[config.family]
        encoder = numbered(ENCODER, config.n_layer) | (PROJECTION if config.embedding_width != config.n_embd else {})
        if config.head in ("none", "pooler"):
            return encoder | (POOLER if config.head == "pooler" else {})
        head = pairs(names.classifier)
        if config.head == "mlm":
            head = {names.bias: Row(("mlm_head.bias",)), **pairs(names.mlm)}
        return {names.prefix + name: row for name, row in encoder.items()} | head

    def normalised(self, config: BERTConfig, tensors: Tensors, where: str) -> Tensors:
        """Return the tensors with current names, without constants and without heads that the model does not have."""
        names = FAMILIES[config.family]
        wanted = {name.removeprefix(names.prefix): name for name in self.rows(config)}
        found = {
            _current_name(name, names.prefix): tensor
            for name, tensor in tensors.items()
            if not name.endswith(CONSTANTS)
        }
        if config.head == "mlm":
            found = merged(found, WORDS, (names.decoder,), where)
            if names.copy in found and (config.family != "electra" or names.bias not in found):
                # transformers computes with this one, wherever the two differ.
                found[names.bias] = found[names.copy]
        return {
            wanted.get(name, name): tensor
            for name, tensor in found.items()
            if name in wanted or not name.startswith(ANY_HEAD)
        }

    def adjusted(self, config: BERTConfig, tensors: Tensors) -> BERTConfig:
        """Remove the pooler if the file has none: the config.json of a model without a head does not state that."""
        prefix = FAMILIES[config.family].prefix
        without = config.head == "pooler" and "pooler.dense.weight" not in {_current_name(n, prefix) for n in tensors}
        return dataclasses.replace(config, head="none") if without else config


def _current_name(name: str, prefix: str) -> str:
    for old, new in OLD_NAMES.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name.removeprefix(prefix)
