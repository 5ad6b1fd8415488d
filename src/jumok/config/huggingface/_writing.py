"""Conversion of a configuration of jumok to the config.json of a stock class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, to_dict
from jumok.config.features import TRANSFORMERS, architecture_of, require
from jumok.config.huggingface._decoders import DECODERS, decoder_config
from jumok.config.huggingface._encoders import ENCODERS, encoder_class, to_encoder
from jumok.config.huggingface._names import CLASSIFIER, ENCODER_DECODER, GPT2, IDS
from jumok.config.huggingface._settings import named_classes, theirs


def stock_class(config: ModelConfig) -> str:
    """Return the stock class that can express a model.

    Raises:
        JumokError: there is none.
    """
    require(config, TRANSFORMERS)
    if isinstance(config, BERTConfig):
        return encoder_class(config)
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
    return {"architectures": [name], **WRITERS[name](config)}


def their_generation_config(config: ModelConfig) -> dict[str, Any] | None:
    """Return the generation_config.json, or None for a model that does not generate text.

    The length is given as max_new_tokens: beside a max_length in this file `generate` of `transformers` warns each time
    that a caller gives max_new_tokens.
    """
    if isinstance(config, EncoderDecoderConfig):
        return {**theirs(config, IDS), **_rules(config), "max_new_tokens": config.context_length}
    if not isinstance(config, GPTConfig) or config.labels:
        return None
    # Without top_k, `generate` of transformers keeps the 50 likeliest tokens.
    sampling = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0}
    return {**_special_ids(config), **_rules(config), **sampling, "max_new_tokens": max(1, config.context_length // 2)}


TEMPERATURE = 0.8  # as `jumok generate`


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


def _to_gpt2(config: GPTConfig) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        **theirs(config, GPT2),
        "activation_function": {"gelu": "gelu_new", "relu": "relu"}[config.activation],
        "embd_pdrop": config.dropout,
        **_special_ids(config),
        **named_classes(config),
    }


def _to_decoder(config: GPTConfig) -> dict[str, Any]:
    return {**decoder_config(stock_class(config), config), **_special_ids(config), **named_classes(config)}


def _to_bart(config: EncoderDecoderConfig) -> dict[str, Any]:
    return {
        "model_type": "bart",
        **theirs(config, ENCODER_DECODER),
        "activation_function": config.activation,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def _to_marian(config: EncoderDecoderConfig) -> dict[str, Any]:
    return {
        **_to_bart(config),
        "model_type": "marian",
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
    }


WRITERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "GPT2LMHeadModel": _to_gpt2,
    f"GPT2{CLASSIFIER}": _to_gpt2,
    **{name + head: _to_decoder for name in DECODERS for head in ("ForCausalLM", CLASSIFIER)},
    **dict.fromkeys(ENCODERS, to_encoder),
    "BartForConditionalGeneration": _to_bart,
    "MarianMTModel": _to_marian,
}
