"""Conversion of the config.json of a stock class to a configuration of jumok."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from jumok.config import (
    EncoderDecoderConfig,
    GenerationRules,
    GPTConfig,
    GPTVariantConfig,
    ModelConfig,
    from_dict,
    to_dict,
)
from jumok.config.huggingface._decoders import DECODERS, decoder_fields
from jumok.config.huggingface._encoders import ENCODERS, from_encoder
from jumok.config.huggingface._names import (
    ACTIVATIONS,
    BART_DEFAULTS,
    CLASSIFIER,
    ENCODER_DECODER,
    GPT2,
    GPT2_ACTIVATIONS,
    GPT2_DEFAULTS,
    IDS,
    MARIAN_DEFAULTS,
    PLAIN,
    QWEN3,
)
from jumok.config.huggingface._refusals import refuse_quantised, unknown_class
from jumok.config.huggingface._settings import Stock, labels, ours, refuse
from jumok.errors import RunError
from jumok.messages import tr

ENDS = ("eos_token_id", "decoder_start_token_id")  # of which generation_config.json decides
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
RULES = tuple(field.name for field in fields(GenerationRules))
# Rules about what is generated that jumok does not have, and their values that change nothing. What a caller chooses,
# such as temperature, beams and penalties, is left to the settings of jumok.
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("sequence_bias", "forced_decoder_ids", "stop_strings"), (None, [], {}, "")),
    "exponential_decay_length_penalty": (None,),
    "encoder_no_repeat_ngram_size": (None, 0),
    "encoder_repetition_penalty": (None, 1),
    "guidance_scale": (None, 1),
}


def read_stock(path: Path) -> dict[str, Any]:
    """Read a config.json, with what the generation_config.json in the same folder says about generation.

    As in `generate` of `transformers`, config.json rules what is generated only if there is no generation_config.json.
    Special ids that one of the files lacks are those of the other: the model itself uses some of them, too.
    """
    stock = read_json(path)
    beside = path.parent / "generation_config.json"
    if not beside.is_file():
        return stock
    written = read_json(beside)
    ids = {name: written[name] for name in IDS if written.get(name) is not None}
    kept = {name: ids[name] for name in ids if stock.get(name) is None or name in ENDS}
    return stock | kept | {name: written.get(name) for name in (*FORCED, *RULES, *UNSUPPORTED)}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises:
        RunError: it is missing, damaged, or contains another type.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, for example, which would be waited for
            raise OSError(tr("it is no file"))
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            "{folder} has no {name}; is it the folder of a Hugging Face model?", folder=path.parent, name=path.name
        ) from None
    except (OSError, ValueError, RecursionError) as error:
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
        read = READERS[architecture(stock, where)]
        refuse_quantised(stock, where)
        return read(stock, where)
    except KeyError as error:
        raise RunError("{where}/config.json has no {name}; restore it from a copy.", where=where, name=error) from None
    except (AttributeError, TypeError) as error:  # such as a list instead of a string
        raise RunError(
            "{where}/config.json has a value of a wrong type ({error}); restore it from a copy.",
            where=where,
            error=error,
        ) from None


def architecture(stock: Stock, where: str) -> str:
    """Return the stock class that a config.json names, or the default class of its model_type.

    Raises:
        JumokError: jumok does not support the class; the message lists those that it supports, and the nearest.
    """
    names = stock.get("architectures")
    kind = stock.get("model_type")
    name = names[0] if isinstance(names, list) and names else PLAIN.get(str(kind))
    if name not in READERS:
        raise unknown_class(name, stock, where, READERS)
    return str(name)


def _from_gpt2(stock: Stock, where: str) -> GPTConfig:
    activation = stock.get("activation_function", "gelu_new")
    refuse(
        where,
        {
            f"activation_function {activation!r}": activation not in GPT2_ACTIVATIONS,
            "scale_attn_weights false": not stock.get("scale_attn_weights", True),
            "scale_attn_by_inverse_layer_idx": stock.get("scale_attn_by_inverse_layer_idx", False),
            "add_cross_attention": stock.get("add_cross_attention", False),
        },
    )
    fields = {**ours(stock, GPT2, GPT2_DEFAULTS), **_classes(stock, where)}
    return from_dict(GPTConfig, {"family": "classic", "activation": GPT2_ACTIVATIONS[activation], **fields})


def _from_decoder(stock: Stock, where: str) -> GPTConfig:
    name = architecture(stock, where).removesuffix(CLASSIFIER).removesuffix("ForCausalLM")
    fields = decoder_fields(name, stock, where)
    varied = fields["qkv_bias"] or fields["rope_scaling"] or fields.get("sliding_window") if name == "Qwen3" else True
    if not varied:  # the modern family
        fields = {"family": "modern", **{name: fields[name] for name in ("rope_theta", *QWEN3.values())}}
    return from_dict(GPTVariantConfig if varied else GPTConfig, {**fields, **_classes(stock, where)})


def _special_ids(stock: Stock) -> dict[str, Any]:
    """Return the ids that begin and end the texts of a GPT.

    The defaults of the stock classes are not used: they belong to the vocabulary of one published model. For the same
    reason ids outside the vocabulary, which no text can contain, are left out.
    """
    size, ends = stock["vocab_size"], stock.get("eos_token_id")
    known = {
        name: [i for i in (given if isinstance(given, list) else [given]) if isinstance(i, int) and 0 <= i < size]
        for name, given in (("bos", stock.get("bos_token_id")), ("eos", ends))
    }
    pad = stock.get("pad_token_id")
    return {
        "pad_id": pad if isinstance(pad, int) and 0 <= pad < size else None,
        "bos_id": next(iter(known["bos"]), None),
        "eos_ids": tuple(dict.fromkeys(known["eos"])),
    }


def _generation(stock: Stock, where: str) -> dict[str, Any]:
    """Return the rules of generation of a model; ids outside its vocabulary, which it cannot generate, are left out.

    Raises:
        JumokError: a rule that jumok does not apply; the message names it.
    """
    refuse(where, {f"{name} {stock.get(name)!r}": stock.get(name) not in unset for name, unset in UNSUPPORTED.items()})
    rules = GenerationRules(**{name: stock[name] for name in RULES if stock.get(name) is not None})
    size, padding = stock["vocab_size"], (stock.get("pad_token_id"),)  # which jumok never generates
    rules = replace(
        rules,
        bad_words_ids=tuple(word for word in rules.bad_words_ids if max(word) < size and word != padding),
        suppress_tokens=tuple(i for i in rules.suppress_tokens if i < size),
        begin_suppress_tokens=tuple(i for i in rules.begin_suppress_tokens if i < size),
    )
    return {"generation": to_dict(rules)}


def _classes(stock: Stock, where: str) -> dict[str, Any]:
    """Return the fields of a GPT by its task: names and pooling of a classifier, special ids of a language model.

    The stock class has no output layer. Ours has one; it is tied to the embedding, so it adds no parameters.
    """
    if not architecture(stock, where).endswith(CLASSIFIER):
        refuse(where, {f"{name} {stock.get(name)!r}": stock.get(name) is not None for name in FORCED})
        return {**_special_ids(stock), **_generation(stock, where)}
    return {
        "labels": labels(stock, where),
        "pooling": "last",
        "pad_id": stock.get("pad_token_id"),
        "tie_embeddings": True,
    }


def _from_bart(stock: Stock, where: str) -> EncoderDecoderConfig:
    stock = _single_ids(stock, where)
    refuse(
        where,
        {
            **_shared_faults(stock),
            "static_position_embeddings": stock.get("static_position_embeddings", False),
            "normalize_embedding false": not stock.get("normalize_embedding", True),
        },
    )
    return from_dict(EncoderDecoderConfig, {"family": "classic", **_from_pair(stock, where, BART_DEFAULTS)})


def _from_marian(stock: Stock, where: str) -> EncoderDecoderConfig:
    targets = stock.get("decoder_vocab_size") or stock["vocab_size"]
    stock = _single_ids(stock, where)
    refuse(
        where,
        {
            **_shared_faults(stock),
            "static_position_embeddings false": not stock.get("static_position_embeddings", True),
            "normalize_embedding": stock.get("normalize_embedding", False),
            "share_encoder_decoder_embeddings false": not stock.get("share_encoder_decoder_embeddings", True),
            f"decoder_vocab_size {targets}": targets != stock["vocab_size"],
        },
    )
    return from_dict(EncoderDecoderConfig, {"family": "original", **_from_pair(stock, where, MARIAN_DEFAULTS)})


def _shared_faults(stock: Stock) -> dict[str, bool]:
    activation = stock.get("activation_function", "gelu")
    return {
        f"activation_function {activation!r}": activation not in ACTIVATIONS,
        "tie_word_embeddings false": not stock.get("tie_word_embeddings", True),
        "normalize_before": stock.get("normalize_before", False),  # from older versions of the class
        "add_final_layer_norm": stock.get("add_final_layer_norm", False),
    }


def _single_ids(stock: Stock, where: str) -> Stock:
    """Return the settings of an encoder–decoder with one id for each role; `transformers` allows a list of them."""
    lists = {name: stock[name] for name in IDS if isinstance(stock.get(name), list)}
    refuse(where, {f"{name} {ids!r}": len(ids) != 1 for name, ids in lists.items()})
    return {**stock, **{name: ids[0] for name, ids in lists.items()}}


def _from_pair(stock: Stock, where: str, defaults: Stock) -> dict[str, Any]:
    activation = ACTIVATIONS[stock.get("activation_function", "gelu")]
    return {"activation": activation, **ours(stock, ENCODER_DECODER, defaults), **_generation(stock, where)}


READERS: dict[str, Callable[[Stock, str], ModelConfig]] = {
    "GPT2LMHeadModel": _from_gpt2,
    f"GPT2{CLASSIFIER}": _from_gpt2,
    **{name + head: _from_decoder for name in DECODERS for head in ("ForCausalLM", CLASSIFIER)},
    **{name: partial(from_encoder, name) for name in ENCODERS},
    "BartForConditionalGeneration": _from_bart,
    "BartModel": _from_bart,
    "MarianMTModel": _from_marian,
}
