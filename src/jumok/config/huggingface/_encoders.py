"""Conversion of the configurations of BERT, RoBERTa and ELECTRA, in both directions."""

from __future__ import annotations

from typing import Any

from jumok.config import BERTConfig, EncoderFamily, Head, from_dict
from jumok.config.huggingface._names import SIZES
from jumok.config.huggingface._settings import Stock, labels, named_classes, ours, refuse, theirs

# The family and the head of each stock class. XLM-RoBERTa is a RoBERTa, and it is exported as one.
ENCODERS: dict[str, tuple[EncoderFamily, Head]] = {
    "BertModel": ("bert", "pooler"),
    "BertForMaskedLM": ("bert", "mlm"),
    "BertForSequenceClassification": ("bert", "classify"),
    "BertForPreTraining": ("bert", "mlm"),  # without its head for next-sentence prediction
    "RobertaModel": ("roberta", "pooler"),
    "RobertaForMaskedLM": ("roberta", "mlm"),
    "RobertaForSequenceClassification": ("roberta", "classify"),
    "XLMRobertaModel": ("roberta", "pooler"),
    "XLMRobertaForMaskedLM": ("roberta", "mlm"),
    "XLMRobertaForSequenceClassification": ("roberta", "classify"),
    "ElectraModel": ("electra", "none"),
    "ElectraForPreTraining": ("electra", "none"),  # the discriminator, without its head for replaced tokens
    "ElectraForMaskedLM": ("electra", "mlm"),  # the generator
    "ElectraForSequenceClassification": ("electra", "classify"),
}
BERT = {
    **SIZES,
    "type_vocab_size": "n_token_type",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "norm_eps",
    "pad_token_id": "pad_id",
}
BERT_DEFAULTS = {
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
# Settings whose defaults differ between the classes.
FAMILY_DEFAULTS = {"bert": {}, "roberta": {"pad_token_id": 1}, "electra": {"embedding_size": 128}}
WIDTH = {"embedding_size": "embedding_width"}  # of ELECTRA


def from_encoder(name: str, stock: Stock, where: str) -> BERTConfig:
    """Convert the config.json of the stock class `name`. See `our_config`."""
    family, head = ENCODERS[name]
    activation = stock.get("hidden_act", "gelu")
    positions = stock.get("position_embedding_type", "absolute")
    refuse(
        where,
        {
            f"hidden_act {activation!r}": activation != "gelu",
            f"position_embedding_type {positions!r}": positions != "absolute",
            "is_decoder": stock.get("is_decoder", False),
            "add_cross_attention": stock.get("add_cross_attention", False),
            "tie_word_embeddings false": head == "mlm" and not stock.get("tie_word_embeddings", True),
            "pruned_heads": bool(stock.get("pruned_heads")),
        },
    )
    names = BERT | (WIDTH if family == "electra" else {})
    fields = ours(stock, names, BERT_DEFAULTS | FAMILY_DEFAULTS[family])
    if family == "roberta":  # the rows of padding, and those before it, are no positions
        fields["context_length"] -= 1 + (fields["pad_id"] or 0)
    classes = labels(stock, where) if head == "classify" else []
    return from_dict(BERTConfig, {"family": family, "head": head, "labels": classes, **fields})


def encoder_class(config: BERTConfig) -> str:
    """Return the stock class of a model. A BERT or RoBERTa without a pooler is of the class that has one."""
    head = "pooler" if config.head == "none" and config.family != "electra" else config.head
    return next(name for name, made in ENCODERS.items() if made == (config.family, head))


def to_encoder(config: BERTConfig) -> dict[str, Any]:
    """Return the config.json of the stock class, without the name of the class."""
    return {
        "model_type": config.family,
        **theirs(config, BERT | (WIDTH if config.family == "electra" else {})),
        "max_position_embeddings": config.position_offset + config.context_length,
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        **named_classes(config),
    }
