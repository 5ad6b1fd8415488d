"""Writing of the config.json of a stock class."""

from __future__ import annotations

from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, to_dict
from jumok.config.features import TRANSFORMERS, architecture_of, require
from jumok.config.huggingface._classes import CLASSES, CLASSIFIER, DECODERS, ENCODERS, IDS
from jumok.config.huggingface._rope import written

TEMPERATURE = 0.8  # as `jumok generate`


def stock_class(config: ModelConfig) -> str:
    """Return the stock class that can express a model.

    Raises:
        JumokError: there is none.
    """
    require(config, TRANSFORMERS)
    if isinstance(config, BERTConfig):  # without a pooler, a BERT or RoBERTa is of the class that has one
        head = "pooler" if config.head == "none" and config.family != "electra" else config.head
        wanted = (config.family, head)
        return next(name for name, (kind, its) in ENCODERS.items() if (kind.model_type, its) == wanted)
    if isinstance(config, EncoderDecoderConfig):
        return "MarianMTModel" if config.family == "original" else "BartForConditionalGeneration"
    assert isinstance(config, GPTConfig)
    name = architecture_of(config)
    if config.labels:
        return f"{name}{CLASSIFIER}"
    return "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"


def their_config(config: ModelConfig) -> dict[str, Any]:
    """Return the config.json of the stock class for a model, without the dtype of its parameters.

    Raises:
        JumokError: no stock class can express the model.
    """
    name = stock_class(config)
    kind = CLASSES[name]
    own = getattr(config, "activation", "gelu")
    found = {
        "architectures": [name],
        "model_type": kind.model_type,
        **{their: getattr(config, our) for their, our in kind.settings.items()},
        kind.activation: next(their for their, our in kind.activations.items() if our == own),
        **kind.neutral,
    }
    if isinstance(config, GPTConfig):
        found |= _special_ids(config)
        if kind in DECODERS.values():
            found |= written(kind, config)
        else:
            found["embd_pdrop"] = config.dropout
        if kind.attention_bias is not None:
            found["attention_bias"] = config.block().qkv_bias
    if isinstance(config, BERTConfig):
        found |= {"max_position_embeddings": config.position_offset + config.context_length}
        found |= {"tie_word_embeddings": True}
    if isinstance(config, EncoderDecoderConfig):
        found |= {"is_encoder_decoder": True}
        if config.family == "original":
            found |= {"decoder_vocab_size": config.vocab_size}
    labels = getattr(config, "labels", ())
    if labels:
        found |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    return found


def their_generation_config(config: ModelConfig, *, answers: bool = False) -> dict[str, Any] | None:
    """Return the generation_config.json, or None for a model that does not generate text.

    A GPT that `answers` in conversations takes the likeliest token each time, as in `jumok chat`; another one draws.

    The length is given as max_new_tokens: beside a max_length in this file `generate` of `transformers` warns each time
    that a caller gives max_new_tokens.
    """
    if isinstance(config, EncoderDecoderConfig):
        ids = {their: getattr(config, our) for their, our in IDS.items()}
        return {**ids, **_rules(config), "max_new_tokens": config.context_length}
    if not isinstance(config, GPTConfig) or config.labels:
        return None
    # Without top_k, `generate` of transformers keeps the 50 likeliest tokens.
    drawing = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0}
    sampling: dict[str, Any] = {"do_sample": False} if answers else drawing
    return {**_special_ids(config), **_rules(config), **sampling, "max_new_tokens": max(1, config.context_length // 2)}


def _rules(config: GPTConfig | EncoderDecoderConfig) -> dict[str, Any]:
    """Return the rules of generation that a model has. `transformers` generates padding unless it is forbidden."""
    rules = {} if config.generation is None else to_dict(config.generation)
    ends = (config.eos_id,) if isinstance(config, EncoderDecoderConfig) else config.eos_ids
    padding = [] if config.pad_id is None or config.pad_id in ends else [[config.pad_id]]
    rules["bad_words_ids"] = [*padding, *rules.get("bad_words_ids", ())]
    return {name: rule for name, rule in rules.items() if rule}


def _special_ids(config: GPTConfig) -> dict[str, Any]:
    """Return the special ids of a GPT. null is written too: otherwise the class of GPT-2 uses 50256, its own id."""
    ends = config.eos_ids[0] if len(config.eos_ids) == 1 else list(config.eos_ids) or None
    return {"bos_token_id": config.bos_id, "eos_token_id": ends, "pad_token_id": config.pad_id}
