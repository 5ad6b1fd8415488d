"""The config.json of `transformers` and our configurations: one in terms of the other, both ways, without torch.

    our configuration                     stock class
    GPTConfig, family "modern"            Qwen3ForCausalLM; with labels Qwen3ForSequenceClassification
    GPTConfig, family "classic"           GPT2LMHeadModel; with labels GPT2ForSequenceClassification
    BERTConfig                            BertModel, BertForMaskedLM, BertForSequenceClassification, by its head
    EncoderDecoderConfig, "classic"       BartForConditionalGeneration (and BartModel, to read)
    EncoderDecoderConfig, "original"      MarianMTModel

A stock setting that changes what a model computes and that jumok has not is refused by name. Settings that act in
training alone, such as the rates of other dropouts than the two that jumok has, are not kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, from_dict, require_range
from jumok.errors import ConfigError, JumokError, RunError
from jumok.messages import tr

Stock = Mapping[str, Any]

# Their name: ours. What a file may leave out has the default of its class, below.
QWEN3 = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "n_kv_head",
    "hidden_size": "n_embd",
    "head_dim": "head_dim",
    "intermediate_size": "mlp_width",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
    "rms_norm_eps": "norm_eps",
}
QWEN3_DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": 128,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
}
GPT2 = {
    "vocab_size": "vocab_size",
    "n_positions": "context_length",
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "n_inner": "mlp_width",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
    "layer_norm_epsilon": "norm_eps",
}
GPT2_DEFAULTS = {
    "n_inner": None,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}
BERT = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "intermediate_size": "mlp_width",
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
IDS = {
    "pad_token_id": "pad_id",
    "bos_token_id": "bos_id",
    "eos_token_id": "eos_id",
    "decoder_start_token_id": "decoder_start_id",
    "forced_bos_token_id": "forced_bos_id",
    "forced_eos_token_id": "forced_eos_id",
}
ENCODER_DECODER = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "encoder_layers": "n_layer",
    "decoder_layers": "n_decoder_layer",
    "encoder_attention_heads": "n_head",
    "decoder_attention_heads": "n_decoder_head",
    "d_model": "n_embd",
    "encoder_ffn_dim": "mlp_width",
    "decoder_ffn_dim": "decoder_mlp_width",
    "scale_embedding": "scale_embedding",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    **IDS,
}
BART_DEFAULTS = {
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_bos_token_id": None,
    "forced_eos_token_id": 2,
}
# MarianConfig has ids of its own for what is left out, 58100 and 0; every file of a Marian model gives its own.
MARIAN_DEFAULTS = {**BART_DEFAULTS, **dict.fromkeys(IDS)}

# GPT-2's names for the tanh form of GELU; its "gelu" is the exact one, which our GPT has not.
GPT2_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "relu": "relu"}
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"}

HEADS = {
    "BertModel": "pooler",
    "BertForMaskedLM": "mlm",
    "BertForSequenceClassification": "classify",
    "BertForPreTraining": "mlm",  # without its second head, which tells whether two texts follow each other
}
CLASSIFIER = "ForSequenceClassification"
MOST_LABELS = 100_000  # of a classifier
SINGLE_LABEL = "single_label_classification"  # what a softmax over the classes is called
# What to take a folder for whose config.json names no class: that of its model_type which asks for the least.
PLAIN = {
    "gpt2": "GPT2LMHeadModel",
    "qwen3": "Qwen3ForCausalLM",
    "bert": "BertModel",
    "bart": "BartModel",
    "marian": "MarianMTModel",
}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_config(path: str | os.PathLike[str]) -> ModelConfig:
    """Our configuration, from the config.json of a stock model.

    Args:
        path: the file, or its folder.

    Raises:
        RunError: the file is missing or damaged, or does not say a size.
        ConfigError: a size is of the wrong type or out of range.
        JumokError: the model is another one, or has something that jumok has not; the message names it.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    return our_config(read_stock(file), str(file.parent))


def read_stock(path: Path) -> dict[str, Any]:
    """The settings of a config.json, with the ids that only the generation_config.json beside it knows."""
    stock = read_json(path)
    beside = path.parent / "generation_config.json"
    written = read_json(beside) if beside.is_file() else {}
    return stock | {name: written[name] for name in IDS if stock.get(name) is None and written.get(name) is not None}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        RunError: it is missing, damaged, or holds something else.
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
    """Our configuration of the model that a stock config.json describes; `where` is its folder, for messages.

    Raises:
        RunError, ConfigError, JumokError: see `read_config`.
    """
    try:
        return READERS[architecture(stock, where)](stock, where)
    except KeyError as error:
        raise RunError(
            "{where}/config.json does not say {name}; restore it from a copy.", where=where, name=error
        ) from None
    except (AttributeError, TypeError) as error:  # a list where a word belongs, a number where an object does
        raise RunError(
            "{where}/config.json has a value of a wrong type ({error}); restore it from a copy.",
            where=where,
            error=error,
        ) from None


def architecture(stock: Stock, where: str) -> str:
    """The stock class that a config.json names, or the plain one of its model_type.

    Raises:
        JumokError: jumok does not read it; the message lists those that it does.
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
    """What a GPT that classifies has besides; nothing for one that writes.

    The stock class has no output layer, and ours has one: it is tied to the embedding, so that it has no numbers.
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
    """The names of the classes, of which one and only one is the answer.

    The stock classes also give numbers (with one label, or when told so), and several labels for a text.
    """
    labels = _named_labels(stock, where)
    problem = stock.get("problem_type") or SINGLE_LABEL
    regression = len(labels) == 1
    _refuse(where, {f"problem_type {problem!r}": problem != SINGLE_LABEL, "num_labels 1 (regression)": regression})
    return labels


def _named_labels(stock: Stock, where: str) -> list[str]:
    named = stock.get("id2label")
    try:
        if named is None:  # then the stock class counts, from LABEL_0 on
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
        "normalize_before": stock.get("normalize_before", False),  # of the years in which one class did several models
        "add_final_layer_norm": stock.get("add_final_layer_norm", False),
    }


def _from_pair(stock: Stock, defaults: Stock) -> dict[str, Any]:
    activation = ACTIVATIONS[stock.get("activation_function", "gelu")]
    return {"activation": activation, **_ours(stock, ENCODER_DECODER, defaults)}


def _ours(stock: Stock, names: Mapping[str, str], defaults: Stock) -> dict[str, Any]:
    """Our fields from theirs; a KeyError names what has neither a value nor a default."""
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


# --- writing ----------------------------------------------------------------------------------------------------------


def stock_class(config: ModelConfig) -> str:
    """The stock class that a model of this shape is.

    Raises:
        JumokError: there is none.
    """
    if isinstance(config, BERTConfig):
        _refuse_pooling(config)
        return next((name for name, head in HEADS.items() if head == config.head), "BertModel")
    if isinstance(config, EncoderDecoderConfig):
        return "MarianMTModel" if config.family == "original" else "BartForConditionalGeneration"
    if type(config) is GPTConfig:
        _refuse_pooling(config)
        if config.labels:
            return ("GPT2" if config.family == "classic" else "Qwen3") + CLASSIFIER
        return "GPT2LMHeadModel" if config.family == "classic" else "Qwen3ForCausalLM"
    raise JumokError(
        "this is a rung of the ladder, a GPT with parts left out, and no stock class can express "
        "it; train a whole one with `jumok train` to export it to transformers."
    )


def pooling_obstacle(config: GPTConfig | BERTConfig) -> str | None:
    """Why a model cannot leave because of how it sums up a text, and what to do; None if it can, or sums up none."""
    if isinstance(config, BERTConfig):
        pools, stock = config.head in ("pooler", "classify"), "first"
    else:
        pools, stock = bool(config.labels), "last"
    if not pools or config.pooling == stock:
        return None
    return tr(
        "pooling={pooling!r} is in no stock class, so `jumok convert --to hf` cannot export this model to "
        "transformers; train a model for export with {--pooling {stock}}.",
        pooling=config.pooling,
        stock=stock,
    )


def _refuse_pooling(config: GPTConfig | BERTConfig) -> None:
    obstacle = pooling_obstacle(config)
    if obstacle is not None:
        raise JumokError("{obstacle}", obstacle=obstacle)


def their_config(config: ModelConfig) -> dict[str, Any]:
    """The config.json of the stock class for a model of this shape, without the type of its weights.

    Raises:
        JumokError: no stock class can express the model.
    """
    name = stock_class(config)
    return {"architectures": [name], **WRITERS[name](config)}


def their_generation_config(config: ModelConfig) -> dict[str, Any] | None:
    """The generation_config.json, or None for a model that does not write."""
    if isinstance(config, EncoderDecoderConfig):
        return _theirs(config, IDS)
    return dict(_NO_SPECIAL_IDS) if isinstance(config, GPTConfig) and not config.labels else None


# GPT-2's class would put its own end-of-text id, 50256, where these are left out.
_NO_SPECIAL_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def _to_gpt2(config: GPTConfig) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        **_theirs(config, GPT2),
        "activation_function": {"gelu": "gelu_new", "relu": "relu"}[config.activation],
        "embd_pdrop": config.dropout,
        **_NO_SPECIAL_IDS,
        "pad_token_id": config.pad_id,
        **_named_classes(config),
    }


def _to_qwen3(config: GPTConfig) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        **_theirs(config, QWEN3),
        "hidden_act": config.activation,
        "rope_theta": config.rope_theta,  # transformers 4 reads this one, 5 the next
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "attention_bias": False,
        "use_sliding_window": False,
        **_NO_SPECIAL_IDS,
        "pad_token_id": config.pad_id,
        **_named_classes(config),
    }


def _to_bert(config: BERTConfig) -> dict[str, Any]:
    return {
        "model_type": "bert",
        **_theirs(config, BERT),
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        **_named_classes(config),
    }


def _to_bart(config: EncoderDecoderConfig) -> dict[str, Any]:
    return {
        "model_type": "bart",
        **_theirs(config, ENCODER_DECODER),
        "activation_function": config.activation,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def _to_marian(config: EncoderDecoderConfig) -> dict[str, Any]:
    if config.decoder_start_id is None:
        raise JumokError(
            "MarianMTModel, the stock class of the Transformer of 2017, needs the id that its "
            "decoder begins with, and this model has decoder_start_id=None; give its configuration "
            "the id that it was trained with."
        )
    return {
        **_to_bart(config),
        "model_type": "marian",
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": True,
        "static_position_embeddings": True,
    }


def _named_classes(config: GPTConfig | BERTConfig) -> dict[str, Any]:
    if not config.labels:
        return {}
    return {"id2label": dict(enumerate(config.labels)), "label2id": {name: i for i, name in enumerate(config.labels)}}


def _theirs(config: ModelConfig, names: Mapping[str, str]) -> dict[str, Any]:
    return {their: getattr(config, our) for their, our in names.items()}


WRITERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Qwen3ForCausalLM": _to_qwen3,
    f"Qwen3{CLASSIFIER}": _to_qwen3,
    "GPT2LMHeadModel": _to_gpt2,
    f"GPT2{CLASSIFIER}": _to_gpt2,
    **dict.fromkeys(HEADS, _to_bert),
    "BartForConditionalGeneration": _to_bart,
    "MarianMTModel": _to_marian,
}
