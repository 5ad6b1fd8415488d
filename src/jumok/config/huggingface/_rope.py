"""Rotary positions and sliding windows in the config.json of a decoder, in both directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from jumok.config import GPTConfig, require_type
from jumok.config.huggingface._classes import Architecture

MOST_LAYERS = 10_000  # for which layer_types is read; the configuration refuses more
ORIGINAL = "original_max_position_embeddings"
SCALING = {  # what a kind has besides its factor
    "linear": (),
    "dynamic": (),
    "yarn": (ORIGINAL, "beta_fast", "beta_slow", "attention_factor", "truncate"),
    "llama3": (ORIGINAL, "low_freq_factor", "high_freq_factor"),
}


def rope_settings(stock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of rotary positions, with rope_type and rope_theta, from a file of any version."""
    given = stock.get("rope_scaling") or stock.get("rope_parameters") or {}
    require_type("rope_parameters", given, dict)
    rope = dict(given)
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta") or stock.get("rope_theta") or stock.get("rotary_emb_base") or 10_000.0
    return rope | {"rope_theta": theta}


def scaling_of(rope: Mapping[str, Any], stock: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a RopeScaling, with what `transformers` derives for those that are missing."""
    kind, most = rope["rope_type"], stock["max_position_embeddings"]
    if kind == "default":
        return None
    given = {name: value for name, value in rope.items() if value is not None}
    if ORIGINAL in SCALING[kind]:
        given[ORIGINAL] = stock.get(ORIGINAL) or given.get(ORIGINAL, most)
    if "factor" not in given and kind == "yarn":
        given["factor"] = max(1.0, most / given[ORIGINAL])
    parts = [given.get(name) for name in ("mscale", "mscale_all_dim")]
    if kind == "yarn" and "attention_factor" not in given and all(parts):
        upper, lower = (0.1 * part * math.log(max(1.0, given["factor"])) + 1 for part in parts if part)
        given["attention_factor"] = upper / lower
    return {"kind": kind, **{_ours(name): given[name] for name in ("factor", *SCALING[kind]) if name in given}}


def windows_of(kind: Architecture, stock: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the sliding window; {} if no layer has one."""
    width = stock.get("sliding_window", 4096 if kind.window else None)
    if not kind.window or width is None or (kind.window == "some" and not stock.get("use_sliding_window", False)):
        return {}
    layers = stock["num_hidden_layers"]
    if kind.window == "all" or not isinstance(layers, int) or layers > MOST_LAYERS:
        return {"sliding_window": width}
    types = stock.get("layer_types")
    if types is None:
        chosen = [i for i in range(layers) if i >= stock.get("max_window_layers", 28)]
    else:
        chosen = [i for i, each in enumerate(types) if each == "sliding_attention"]
    return {"sliding_window": width, "sliding_layers": tuple(chosen)} if chosen else {}


def rotated_width(stock: Mapping[str, Any], share: float) -> int:
    """Return how many dimensions of a head are rotated, if it is this share of them."""
    head_dim = stock.get("head_dim") or stock["hidden_size"] // stock["num_attention_heads"]
    return int(head_dim * share)


def written(kind: Architecture, config: GPTConfig) -> dict[str, Any]:
    """Return the settings of rotary positions and windows, for versions 4 and 5 of `transformers`."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    found: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_parameters": rope}
    scaling = config.frequency_scaling
    if scaling is not None:
        values = {name: getattr(scaling, _ours(name)) for name in ("factor", *SCALING[scaling.kind])}
        rope |= {"rope_type": scaling.kind, **{name: value for name, value in values.items() if value is not None}}
    if kind.partial:
        share = config.rotated / config.head_dim
        if int(config.head_dim * share) != config.rotated:  # transformers rounds down
            share = (config.rotated + 0.5) / config.head_dim
        rope["partial_rotary_factor"] = share
        found |= {"rotary_pct": share, "rotary_emb_base": config.rope_theta}
    if scaling is not None:
        found["rope_scaling"] = {name: value for name, value in rope.items() if name != "rope_theta"}
    windows = [config.window(i) for i in range(config.n_layer)]
    near = [i for i, window in enumerate(windows) if window is not None]
    if kind.window:
        found["sliding_window"] = windows[near[0]] if near else None
    if kind.window == "some":
        types = ["full_attention" if window is None else "sliding_attention" for window in windows]
        found |= {"use_sliding_window": bool(near), "layer_types": types}
        found["max_window_layers"] = near[0] if near else config.n_layer
    return found


def _ours(name: str) -> str:
    return "original_context" if name == ORIGINAL else name
