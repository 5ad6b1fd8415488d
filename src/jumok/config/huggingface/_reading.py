"""Reading of the config.json of a stock class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, GenerationRules, GPTConfig, ModelConfig, from_dict, require_count, to_dict
from jumok.config.huggingface._classes import CLASSES, CLASSIFIER, DECODERS, ENCODERS, IDS, PLAIN, Architecture
from jumok.config.huggingface._rope import SCALING, rope_settings, rotated_width, scaling_of, windows_of
from jumok.errors import ConfigError, JumokError, RunError
from jumok.messages import closest, tr

Stock = Mapping[str, Any]

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


MOST_LABELS = 100_000  # of a classifier
SINGLE_LABEL = "single_label_classification"  # the name for a softmax over the classes


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
        name = architecture(stock, where)
        refuse_quantised(stock, where)
        return _read(name, stock, where)
    except JumokError:
        raise
    except KeyError as error:
        raise RunError("{where}/config.json has no {name}; restore it from a copy.", where=where, name=error) from None
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:  # such as a list instead of a string
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
    name = names[0] if isinstance(names, list) and names else PLAIN.get(str(kind), kind)
    if name in CLASSES:
        return str(name)
    near = closest(str(name), CLASSES)
    raise JumokError(
        "{where} is a model {name}; jumok reads {known}.",
        where=where,
        name=name,
        known=", ".join(CLASSES) + (tr("; the nearest name is {near}", near=near) if near else ""),
    )


def refuse_quantised(stock: Stock, where: str) -> None:
    """Raise JumokError for a model whose parameters are stored in few bits; the message names the method."""
    settings = stock.get("quantization_config") or stock.get("compression_config")
    if settings:
        raise JumokError(
            "{where} is quantised ({method}), which jumok does not read; get the model with parameters in float32, "
            "bfloat16 or float16.",
            where=where,
            method=settings.get("quant_method") or "?",
        )


def refuse(where: str, faults: Mapping[str, bool]) -> None:
    """Raise JumokError, which names the faults that are true."""
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise JumokError(
            "{where} uses features that jumok does not support: {features}.", where=where, features=", ".join(found)
        )


def _read(name: str, stock: Stock, where: str) -> ModelConfig:
    """Return the configuration of a class in the tables."""
    kind = CLASSES[name]
    pair = kind.model_type in ("bart", "marian")
    if pair:  # `transformers` allows a list of ids for each role
        lists = {role: stock[role] for role in IDS if isinstance(stock.get(role), list)}
        refuse(where, {f"{role} {ids!r}": len(ids) != 1 for role, ids in lists.items()})
        stock = {**stock, **{role: ids[0] for role, ids in lists.items()}}
    activation = stock.get(kind.activation, next(iter(kind.activations)))
    faults = {f"{kind.activation} {activation!r}": activation not in kind.activations}
    for setting, neutral in kind.neutral.items():
        given = stock.get(setting, neutral)
        faults[f"{setting} {given!r}" if isinstance(given, str) else f"{setting} {json.dumps(given)}"] = (
            given != neutral and bool(given or neutral)
        )
    refuse(where, faults)
    found = {our: stock[their] for their, our in kind.names.items()}
    found |= {our: stock.get(their, default) for their, (our, default) in kind.optional.items()}
    found |= kind.fixed
    if name in ENCODERS:
        return _bert(name, found, stock, where)
    found["activation"] = kind.activations[activation]
    if not pair:
        return _gpt(name, kind, found, stock, where)
    targets = stock.get("decoder_vocab_size") or stock["vocab_size"]
    refuse(where, {f"decoder_vocab_size {targets}": targets != stock["vocab_size"]})
    return from_dict(kind.config, {**found, **_generation(stock, where)})


def _bert(name: str, found: dict[str, Any], stock: Stock, where: str) -> BERTConfig:
    _, head = ENCODERS[name]
    refuse(where, {"tie_word_embeddings false": head == "mlm" and not stock.get("tie_word_embeddings", True)})
    if found["family"] == "roberta":  # the rows of padding, and those before it, are no positions
        found["context_length"] -= 1 + (found["pad_id"] or 0)
    return from_dict(BERTConfig, {**found, "head": head, "labels": _labels(stock, where) if head == "classify" else []})


def _gpt(name: str, kind: Architecture, found: dict[str, Any], stock: Stock, where: str) -> GPTConfig:
    config: type[ModelConfig] = kind.config
    decoder = name.removesuffix(CLASSIFIER).removesuffix("ForCausalLM")
    if decoder in DECODERS:
        found |= _decoder(kind, stock, where)
        found["architecture"] = decoder
        plain = not (found["qkv_bias"] or found["rope_scaling"] or found.get("sliding_window"))
        if decoder == "Qwen3" and plain:  # the modern family
            config = GPTConfig
            found = {our: found[our] for our in ("rope_theta", *kind.settings.values())}
    if not name.endswith(CLASSIFIER):
        refuse(where, {f"{setting} {stock.get(setting)!r}": stock.get(setting) is not None for setting in FORCED})
        return from_dict(config, {**found, **_special_ids(stock), **_generation(stock, where)})  # type: ignore[return-value]
    # The stock class has no output layer. Ours has one; it is tied to the embedding, so it adds no parameters.
    classes = {"labels": _labels(stock, where), "pooling": "last", "pad_id": stock.get("pad_token_id")}
    return from_dict(config, {**found, **classes, "tie_embeddings": True})  # type: ignore[return-value]


def _decoder(kind: Architecture, stock: Stock, where: str) -> dict[str, Any]:
    """Return the fields of a decoder that follow from several settings."""
    rope = rope_settings(stock)
    shares = (rope.get("partial_rotary_factor"), stock.get("partial_rotary_factor"), stock.get("rotary_pct"))
    share = next((share for share in shares if share is not None), 0.25 if kind.partial else 1.0)
    layers = stock.get("layer_types") or []
    others = sorted({*map(str, layers)} - {"full_attention", "sliding_attention"})
    refuse(
        where,
        {
            f"rope_type {rope['rope_type']!r}": rope["rope_type"] not in ("default", *SCALING),
            f"partial_rotary_factor {share}": share != 1 and not kind.partial,
            "rope_parameters by layer": any(isinstance(value, Mapping) for value in rope.values()),
            f"layer_types {', '.join(others)}": bool(others) or (bool(layers) and kind.window != "some"),
        },
    )
    found: dict[str, Any] = {"rope_theta": rope["rope_theta"]}
    if kind.attention_bias is not None:
        found["qkv_bias"] = found["out_bias"] = stock.get("attention_bias", kind.attention_bias)
    else:
        found["qkv_bias"] = kind.fixed.get("qkv_bias", False)
    if kind.partial:
        found["rotary_dim"] = rotated_width(stock, share)
    return {**found, "rope_scaling": scaling_of(rope, stock), **windows_of(kind, stock)}


def _special_ids(stock: Stock) -> dict[str, Any]:
    """Return the ids that begin and end the texts of a GPT.

    The defaults of the stock classes are not used: they belong to the vocabulary of one published model. For the same
    reason ids outside the vocabulary, which no text can contain, are left out.
    """
    size = stock["vocab_size"]

    def known(role: str) -> list[int]:
        given = stock.get(f"{role}_token_id")
        return [i for i in (given if isinstance(given, list) else [given]) if isinstance(i, int) and 0 <= i < size]

    pad, bos = known("pad"), known("bos")
    return {
        "pad_id": pad[0] if pad and not isinstance(stock["pad_token_id"], list) else None,
        "bos_id": next(iter(bos), None),
        "eos_ids": tuple(dict.fromkeys(known("eos"))),
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


def _labels(stock: Stock, where: str) -> list[str]:
    """Return the names of the classes, of which exactly one applies to a text.

    The stock classes also support regression (one label) and several labels per text; jumok does not.
    """
    named = stock.get("id2label")
    try:
        if named is None:  # the default names of the stock class
            count = stock.get("num_labels", 2)
            require_count("num_labels", count, 1, MOST_LABELS)
            named = {i: f"LABEL_{i}" for i in range(count)}
        numbered = {int(number): str(name) for number, name in named.items()}
        names = [numbered[i] for i in range(len(numbered))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise RunError(
            "{where}/config.json has an id2label that does not name the classes 0, 1, 2 and so on; correct it.",
            where=where,
        ) from None
    problem = stock.get("problem_type") or SINGLE_LABEL
    regression = len(names) == 1
    refuse(where, {f"problem_type {problem!r}": problem != SINGLE_LABEL, "num_labels 1 (regression)": regression})
    return names
