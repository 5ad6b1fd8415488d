"""Conversion of the config.json of a stock class to a configuration of jumok."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, from_dict, require_range
from jumok.config.huggingface._names import (
    ACTIVATIONS,
    BART_DEFAULTS,
    BERT,
    BERT_DEFAULTS,
    CLASSIFIER,
    ENCODER_DECODER,
    GPT2,
    GPT2_ACTIVATIONS,
    GPT2_DEFAULTS,
    HEADS,
    IDS,
    MARIAN_DEFAULTS,
    MOST_LABELS,
    PLAIN,
    QWEN3,
    QWEN3_DEFAULTS,
    SINGLE_LABEL,
)
from jumok.errors import ConfigError, JumokError, RunError

Stock = Mapping[str, Any]


def read_stock(path: Path) -> dict[str, Any]:
    """Read a config.json; special ids that it lacks are taken from the generation_config.json in the same folder."""
    stock = read_json(path)
    beside = path.parent / "generation_config.json"
    written = read_json(beside) if beside.is_file() else {}
    return stock | {name: written[name] for name in IDS if stock.get(name) is None and written.get(name) is not None}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises:
        RunError: it is missing, damaged, or contains another type.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            "{folder} has no {name}; is it the folder of a Hugging Face model?", folder=path.parent, name=path.name
        ) from None
    except (OSError, ValueError) as error:
        raise RunError("{path} cannot be read ({error}); restore it from a copy.", path=path, error=error) from None
    if not isinstance(values, dict):
        raise RunError(
            "{path} holds a {type}, not settings; restore it from a copy.", path=path, type=type(values).__name__
        )
    return values


def our_config(stock: Stock, where: str) -> ModelConfig:
    """Convert the config.json of a transformers class to a configuration of jumok.

    Args:
        stock: the content of the file.
        where: its folder, for messages.

    Raises:
        RunError: the file is damaged, or a size is missing.
        ConfigError: a size has the wrong type or is out of range.
        JumokError: jumok does not support the architecture or one of its settings; the message names it.
    """
    try:
        return READERS[architecture(stock, where)](stock, where)
    except KeyError as error:
        raise RunError(
            "{where}/config.json does not say {name}; restore it from a copy.", where=where, name=error
        ) from None
    except (AttributeError, TypeError) as error:  # such as a list instead of a string
        raise RunError(
            "{where}/config.json has a value of a wrong type ({error}); restore it from a copy.",
            where=where,
            error=error,
        ) from None


def architecture(stock: Stock, where: str) -> str:
    """Return the stock class that a config.json names, or the default class of its model_type.

    Raises:
        JumokError: jumok does not support the class; the message lists those that it supports.
    """
    names = stock.get("architectures")
    kind = stock.get("model_type")
    name = names[0] if isinstance(names, list) and names else PLAIN.get(str(kind))
    if name not in READERS:
        known = ", ".join(READERS)
        if name:
            raise JumokError("{where} is a model {name}; jumok reads {known}.", where=where, name=name, known=known)
        raise JumokError(
            "{where} is of model_type {kind!r}, and names no class; jumok reads {known}.",
            where=where,
            kind=kind,
            known=known,
        )
    return str(name)


def _from_gpt2(stock: Stock, where: str) -> GPTConfig:
    activation = stock.get("activation_function", "gelu_new")
    _refuse(
        where,
        {
            f"activation_function {activation!r}": activation not in GPT2_ACTIVATIONS,
            "scale_attn_weights false": not stock.get("scale_attn_weights", True),
            "scale_attn_by_inverse_layer_idx": stock.get("scale_attn_by_inverse_layer_idx", False),
            "add_cross_attention": stock.get("add_cross_attention", False),
        },
    )
    fields = {**_ours(stock, GPT2, GPT2_DEFAULTS), **_classes(stock, where)}
    return from_dict(GPTConfig, {"family": "classic", "activation": GPT2_ACTIVATIONS[activation], **fields})


def _from_qwen3(stock: Stock, where: str) -> GPTConfig:
    rope = stock.get("rope_parameters") or stock.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    activation = stock.get("hidden_act", "silu")
    _refuse(
        where,
        {
            f"hidden_act {activation!r}": activation != "silu",
            f"rope_type {rope_type!r}": rope_type != "default",
            "attention_bias": stock.get("attention_bias", False),
            "use_sliding_window": stock.get("use_sliding_window", False),
        },
    )
    theta = rope.get("rope_theta") or stock.get("rope_theta") or 10_000.0
    fields = {**_ours(stock, QWEN3, QWEN3_DEFAULTS), **_classes(stock, where)}
    return from_dict(GPTConfig, {"family": "modern", "rope_theta": theta, **fields})


def _classes(stock: Stock, where: str) -> dict[str, Any]:
    """Return the additional fields of a GPT that classifies; none for a language model.

    The stock class has no output layer. Ours has one; it is tied to the embedding, so it adds no parameters.
    """
    if not architecture(stock, where).endswith(CLASSIFIER):
        return {}
    return {
        "labels": _labels(stock, where),
        "pooling": "last",
        "pad_id": stock.get("pad_token_id"),
        "tie_embeddings": True,
    }


def _from_bert(stock: Stock, where: str) -> BERTConfig:
    head = HEADS[architecture(stock, where)]
    activation = stock.get("hidden_act", "gelu")
    positions = stock.get("position_embedding_type", "absolute")
    _refuse(
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
    labels = _labels(stock, where) if head == "classify" else []
    return from_dict(BERTConfig, {"head": head, "labels": labels, **_ours(stock, BERT, BERT_DEFAULTS)})


def _labels(stock: Stock, where: str) -> list[str]:
    """Return the names of the classes, of which exactly one applies to a text.

    The stock classes also support regression (one label) and several labels per text; jumok does not.
    """
    labels = _named_labels(stock, where)
    problem = stock.get("problem_type") or SINGLE_LABEL
    regression = len(labels) == 1
    _refuse(where, {f"problem_type {problem!r}": problem != SINGLE_LABEL, "num_labels 1 (regression)": regression})
    return labels


def _named_labels(stock: Stock, where: str) -> list[str]:
    named = stock.get("id2label")
    try:
        if named is None:  # the default names of the stock class
            count = stock.get("num_labels", 2)
            require_range("num_labels", count, 1, MOST_LABELS)
            return [f"LABEL_{i}" for i in range(count)]
        names = {int(number): str(name) for number, name in named.items()}
        return [names[i] for i in range(len(names))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise RunError(
            "{where}/config.json has an id2label that does not name the classes 0, 1, 2 and so on; correct it.",
            where=where,
        ) from None


def _from_bart(stock: Stock, where: str) -> EncoderDecoderConfig:
    _refuse(
        where,
        {
            **_shared_faults(stock),
            "static_position_embeddings": stock.get("static_position_embeddings", False),
            "normalize_embedding false": not stock.get("normalize_embedding", True),
        },
    )
    return from_dict(EncoderDecoderConfig, {"family": "classic", **_from_pair(stock, BART_DEFAULTS)})


def _from_marian(stock: Stock, where: str) -> EncoderDecoderConfig:
    targets = stock.get("decoder_vocab_size") or stock["vocab_size"]
    _refuse(
        where,
        {
            **_shared_faults(stock),
            "static_position_embeddings false": not stock.get("static_position_embeddings", True),
            "normalize_embedding": stock.get("normalize_embedding", False),
            "share_encoder_decoder_embeddings false": not stock.get("share_encoder_decoder_embeddings", True),
            f"decoder_vocab_size {targets}": targets != stock["vocab_size"],
        },
    )
    return from_dict(EncoderDecoderConfig, {"family": "original", **_from_pair(stock, MARIAN_DEFAULTS)})


def _shared_faults(stock: Stock) -> dict[str, bool]:
    activation = stock.get("activation_function", "gelu")
    return {
        f"activation_function {activation!r}": activation not in ACTIVATIONS,
        "tie_word_embeddings false": not stock.get("tie_word_embeddings", True),
        "normalize_before": stock.get("normalize_before", False),  # from older versions of the class
        "add_final_layer_norm": stock.get("add_final_layer_norm", False),
    }


def _from_pair(stock: Stock, defaults: Stock) -> dict[str, Any]:
    activation = ACTIVATIONS[stock.get("activation_function", "gelu")]
    return {"activation": activation, **_ours(stock, ENCODER_DECODER, defaults)}


def _ours(stock: Stock, names: Mapping[str, str], defaults: Stock) -> dict[str, Any]:
    """Convert settings to fields of jumok. Raises KeyError for a setting with neither a value nor a default."""
    return {
        our: stock[their] if their in stock or their not in defaults else defaults[their]
        for their, our in names.items()
    }


def _refuse(where: str, faults: Mapping[str, bool]) -> None:
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise JumokError(
            "{where} needs what jumok's model does not support: {features}.", where=where, features=", ".join(found)
        )


READERS: dict[str, Callable[[Stock, str], ModelConfig]] = {
    "Qwen3ForCausalLM": _from_qwen3,
    f"Qwen3{CLASSIFIER}": _from_qwen3,
    "GPT2LMHeadModel": _from_gpt2,
    f"GPT2{CLASSIFIER}": _from_gpt2,
    **dict.fromkeys(HEADS, _from_bert),
    "BartForConditionalGeneration": _from_bart,
    "BartModel": _from_bart,
    "MarianMTModel": _from_marian,
}
