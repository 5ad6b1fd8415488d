"""The config.json of decoders with rotary positions: Llama, Qwen2, Qwen3, Mistral, GPT-NeoX.

Each class is one entry of DECODERS: the names of its settings, their defaults, and what all its models have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jumok.config import GPTConfig, RopeScaling, require_range, require_type
from jumok.config.huggingface._names import QWEN3, QWEN3_DEFAULTS, SIZES
from jumok.config.huggingface._settings import Stock, ours, refuse, theirs

LARGEST = 10**9  # in calculations with settings; the configuration refuses smaller numbers
MOST_LAYERS = 10_000  # for which layer_types is read; the configuration refuses more

GATES = {"silu": "silu", "swish": "silu"}  # activations of an MLP with a gate, and of one without
ACTIVATIONS = {
    "gelu": "gelu",
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh"),
    "relu": "relu",
}

SCALING = {  # from their names to ours
    "factor": "factor",
    "original_max_position_embeddings": "original_context",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
    "truncate": "truncate",
    "short_factor": "short_factor",
    "long_factor": "long_factor",
}
SCALING_OF = {  # what a kind has besides its factor
    "linear": (),
    "dynamic": (),
    "yarn": ("original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "truncate"),
    "longrope": ("original_max_position_embeddings", "short_factor", "long_factor", "attention_factor"),
    "llama3": ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}


@dataclass(frozen=True)
class Decoder:
    """The settings of a stock class.

    Attributes:
        model_type: its name in config.json.
        names: from their settings to fields.
        defaults: of the class, for settings that a file omits.
        fixed: fields that all its models have.
        attention_bias: default of its setting with this name; None: it has none.
        window: which layers have a sliding window: "all", "some" (with use_sliding_window), or "" for none.
        partial: whether only a part of each head is rotated.
    """

    model_type: str
    names: Mapping[str, str]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    attention_bias: bool | None = None
    window: str = ""
    partial: bool = False


_PLAIN = {their: our for their, our in QWEN3.items() if their != "head_dim"}
_NEOX = {
    **SIZES,
    "attention_dropout": "attention_dropout",
    "hidden_dropout": "dropout",
    "tie_word_embeddings": "tie_embeddings",
    "layer_norm_eps": "norm_eps",
    "use_parallel_residual": "parallel",
}
_NEOX_DEFAULTS = {
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "tie_word_embeddings": False,
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
}
_WITHOUT_WIDTH = {name: value for name, value in QWEN3_DEFAULTS.items() if name != "head_dim"}
_OF_WIDTH = {**_WITHOUT_WIDTH, "head_dim": None}

DECODERS: dict[str, Decoder] = {
    "Llama": Decoder(
        "llama", {**QWEN3, "mlp_bias": "mlp_bias"}, {**_OF_WIDTH, "mlp_bias": False}, {}, attention_bias=False
    ),
    "Qwen2": Decoder("qwen2", _PLAIN, _WITHOUT_WIDTH, {"qkv_bias": True}, window="some"),
    "Qwen3": Decoder("qwen3", QWEN3, QWEN3_DEFAULTS, {"qk_norm": True}, attention_bias=False, window="some"),
    "Mistral": Decoder("mistral", QWEN3, {**_OF_WIDTH, "num_key_value_heads": 8}, {}, window="all"),
    "GPTNeoX": Decoder(
        "gpt_neox",
        _NEOX,
        _NEOX_DEFAULTS,
        {"norm": "layer", "gated": False, "mlp_bias": True},
        attention_bias=True,
        partial=True,
    ),
}


# --- reading ----------------------------------------------------------------------------------------------------------


def decoder_fields(name: str, stock: Stock, where: str) -> dict[str, Any]:
    """Return the fields of a GPTVariantConfig, without those of a classifier.

    Raises:
        JumokError: the file has a setting that jumok does not support; the message names it.
        KeyError: a size is missing.
    """
    kind = DECODERS[name]
    rope = rope_settings(stock)
    head_dim = stock.get("head_dim") or _quotient(stock["hidden_size"], stock["num_attention_heads"])
    shares = (rope.get("partial_rotary_factor"), stock.get("partial_rotary_factor"), stock.get("rotary_pct"))
    share = next((share for share in shares if share is not None), 0.25 if kind.partial else 1.0)
    known = GATES if kind.fixed.get("gated", True) else ACTIVATIONS
    activation = stock.get("hidden_act", next(iter(known)))
    layers = stock.get("layer_types") or []
    others = sorted({*map(str, layers)} - {"full_attention", "sliding_attention"})
    refuse(
        where,
        {
            f"hidden_act {activation!r}": activation not in known,
            f"rope_type {rope['rope_type']!r}": rope["rope_type"] not in ("default", *SCALING_OF),
            f"partial_rotary_factor {share}": share != 1 and not kind.partial,
            "rope_parameters by layer": any(isinstance(value, Mapping) for value in rope.values()),
            f"layer_types {', '.join(others)}": bool(others) or (bool(layers) and kind.window != "some"),
        },
    )
    fields = {**ours(stock, kind.names, kind.defaults), **kind.fixed, "architecture": name}
    fields |= {"activation": known[activation], "rope_theta": rope["rope_theta"]}
    if kind.attention_bias is not None:
        fields["qkv_bias"] = fields["out_bias"] = stock.get("attention_bias", kind.attention_bias)
    if kind.partial:
        require_type("rotary_pct", share, float)
        require_range("rotary_pct", share, 0, 1)
        require_type("head_dim", head_dim, int)
        require_range("head_dim", head_dim, 1, LARGEST)
        fields["rotary_dim"] = int(head_dim * share)
    return {**fields, "rope_scaling": _scaling(rope, stock), **_windows(kind, stock)}


def rope_settings(stock: Stock) -> dict[str, Any]:
    """Return the settings of rotary positions, with rope_type and rope_theta, from a file of any version."""
    given = stock.get("rope_scaling") or stock.get("rope_parameters") or {}
    require_type("rope_parameters", given, dict)
    rope = dict(given)
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta") or stock.get("rope_theta") or stock.get("rotary_emb_base") or 10_000.0
    return rope | {"rope_theta": theta}


def _quotient(width: Any, heads: Any) -> int:
    require_type("hidden_size", width, int)
    require_type("num_attention_heads", heads, int)
    require_range("num_attention_heads", heads, 1)
    return int(width // heads)


def _scaling(rope: Mapping[str, Any], stock: Stock) -> dict[str, Any] | None:
    kind, most, original = rope["rope_type"], stock["max_position_embeddings"], "original_max_position_embeddings"
    if kind == "default":
        return None
    given = {name: value for name, value in rope.items() if value is not None}
    if original in SCALING_OF[kind]:
        given[original] = stock.get(original) or given.get(original, most)
        require_type(original, given[original], int)
        require_range(original, given[original], 1, LARGEST)
    if "factor" not in given and kind in ("yarn", "longrope"):
        require_type("max_position_embeddings", most, int)
        require_range("max_position_embeddings", most, 1, LARGEST)
        given["factor"] = max(1.0, most / given[original])
    parts = [given.get(name) for name in ("mscale", "mscale_all_dim")]
    if kind == "yarn" and "attention_factor" not in given and all(parts):
        for name, value in zip(("factor", "mscale", "mscale_all_dim"), (given["factor"], *parts), strict=True):
            require_type(name, value, float)
            require_range(name, value, 0, LARGEST)
        upper, lower = (0.1 * part * math.log(max(1.0, given["factor"])) + 1 for part in parts if part)
        given["attention_factor"] = upper / lower
    return {"kind": kind, **{SCALING[name]: given[name] for name in ("factor", *SCALING_OF[kind]) if name in given}}


def _windows(kind: Decoder, stock: Stock) -> dict[str, Any]:
    width = stock.get("sliding_window", 4096 if kind.window else None)
    if not kind.window or width is None or (kind.window == "some" and not stock.get("use_sliding_window", False)):
        return {}
    layers = stock["num_hidden_layers"]
    if kind.window == "all" or not isinstance(layers, int) or layers > MOST_LAYERS:
        return {"sliding_window": width}
    types = stock.get("layer_types")
    first = stock.get("max_window_layers", 28)
    if types is None:
        chosen = [i for i in range(layers) if i >= first]
    else:
        chosen = [i for i, each in enumerate(types) if each == "sliding_attention"]
    return {"sliding_window": width, "sliding_layers": tuple(chosen)} if chosen else {}


# --- writing ----------------------------------------------------------------------------------------------------------


def decoder_config(stock_class: str, config: GPTConfig) -> dict[str, Any]:
    """Return the config.json of a GPT with rotary positions, without special ids and the names of classes."""
    kind = next(kind for name, kind in DECODERS.items() if stock_class.startswith(name))
    rope = {"rope_type": "default", "rope_theta": config.rope_theta, **_their_scaling(config.frequency_scaling)}
    activation = {"gelu_tanh": "gelu_new"}.get(config.block().activation, config.activation)
    written = theirs(config, kind.names)
    written |= {"model_type": kind.model_type, "hidden_act": activation, "rope_theta": config.rope_theta}
    if kind.attention_bias is not None:
        written["attention_bias"] = config.block().qkv_bias
    if kind.partial:
        share = config.rotated / config.head_dim
        if int(config.head_dim * share) != config.rotated:  # transformers rounds down
            share = (config.rotated + 0.5) / config.head_dim
        rope["partial_rotary_factor"] = share
        written |= {"rotary_pct": share, "rotary_emb_base": config.rope_theta}
    written["rope_parameters"] = rope
    if config.frequency_scaling is not None:
        written["rope_scaling"] = {name: value for name, value in rope.items() if name != "rope_theta"}
    windows = [config.window(i) for i in range(config.n_layer)]
    near = [i for i, window in enumerate(windows) if window is not None]
    if kind.window:
        written["sliding_window"] = windows[near[0]] if near else None
    if kind.window == "some":
        types = ["full_attention" if window is None else "sliding_attention" for window in windows]
        written |= {"use_sliding_window": bool(near), "layer_types": types}
        written["max_window_layers"] = near[0] if near else config.n_layer
    return written


def _their_scaling(scaling: RopeScaling | None) -> dict[str, Any]:
    if scaling is None:
        return {}
    values = {their: getattr(scaling, SCALING[their]) for their in ("factor", *SCALING_OF[scaling.kind])}
    return {"rope_type": scaling.kind, **{name: value for name, value in values.items() if value is not None}}
