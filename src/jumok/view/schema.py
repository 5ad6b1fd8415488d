"""A trace as one versioned JSON object, "jumok-trace" (`docs/viewer.md`), small enough for a page.

Weights have 16 bits if they leave room for the queries and keys of all layers, else 8 bits and as many levels as fit,
the same for all heads. Queries and keys take the room that is left, in 16 bits if all layers fit, else 8. The rounding
errors are measured and written beside the numbers; from them the page derives how many digits it prints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from jumok.messages import in_each_language
from jumok.version import __version__
from jumok.view.predictions import short
from jumok.view.trace import Trace
from jumok.view.traced_attention import Attention, head_statistics
from jumok.view.weight_encoding import (
    BYTE_LEVELS,
    FINEST,
    decode_weights,
    encode_vectors,
    encode_weights,
    rounded_vectors,
)

FORMAT, VERSION = "jumok-trace", 3
LEVELS = (BYTE_LEVELS, 180, 128, 101, 80, 64, 50, 40, 32, 25, 20, 16)  # of a weight's root in 8 bits, the finest first
RELATIVE_FROM = 0.001  # weights whose relative error is measured; of smaller ones the absolute error tells more
TRIED = 24  # heads from which it is estimated what the others take

Coded = list[list[str]]  # by layer and head


def to_json(
    trace: Trace,
    probes: dict[str, Any] | None = None,
    *,
    block: str | None = None,
    layer: int | None = None,
    exact: bool = False,
) -> dict[str, Any]:
    """Return the JSON object of a trace.

    Args:
        probes: what `docs/viewer.md` has under "probes". block, layer: with which the page opens; None: `opened_layer`.
        exact: write weights, queries and keys in 16 bits, also beyond the budget.

    Queries and keys are written of as many layers as have room within the budget, `layer` first, then those beside it;
    a note says which.
    """
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "generator": f"jumok {__version__}",
        "model": dict(trace.model),
        "sequences": trace.sequences,
        "attentions": [_attention(one) for one in trace.attentions],
        "predictions": trace.predictions,
        "lens": trace.lens,
        "classes": trace.classes and [[label, short(p)] for label, p in trace.classes],
        "probes": probes,
        "notes": list(trace.notes),
    }
    room = budget(max(max(one.t, one.s) for one in trace.attentions)) - _size(found)
    opened = opened_layer(found, block) if layer is None else layer
    kept = {one for attention in trace.attentions for one in attention.layers}
    wanted = sorted(kept, key=lambda one: (abs(one - opened), one))
    vectors = _size(_vectors_by_block(trace, wanted[0], 8))  # of a layer
    levels = (
        FINEST if exact or _fit(trace, FINEST, room - vectors * len(wanted)) else _affordable(trace, room - vectors)
    )
    room -= _write_weights(found, trace, levels)
    bits, stored = 16, _fitting_vectors(trace, wanted, 16, room)
    if len(stored) < len(wanted) and not exact:
        bits, stored = 8, _fitting_vectors(trace, wanted, 8, room)
    if len(stored) < len(wanted):
        found["notes"].append(
            in_each_language(
                "To keep the file small, q and k are there for layer {listed} only; {--layer N} chooses another.",
                listed=", ".join(map(str, sorted(stored))),
            )
        )
    by_block: dict[str, dict[str, Any]] = {}
    for one, blocks in sorted(stored.items()):
        for name, coded in blocks.items():
            by_block.setdefault(name, {})[str(one)] = coded
    width = trace.model["head_dim"]
    found["neurons"] = {"layers": by_block, "bits": bits, "head_dim": width, "scale": width**-0.5}
    return found


def budget(tokens: int) -> int:
    """Return the most bytes of JSON for so many tokens; with the page around it 2 MB at 256, 8 at 512, 25 at 1,024."""
    if tokens <= 512:
        return 1_700_000 + round(6_000_000 * max(0.0, (tokens**2 - 256**2) / (512**2 - 256**2)))
    return 7_700_000 + 33_000 * (tokens - 512)


def opened_layer(found: Mapping[str, Any], block: str | None = None) -> int:
    """Return the layer at which a page opens by default.

    Its three best heads have the lowest entropy, and attend neither to the first token only nor to the token itself.

    Args:
        block: of the layer; None: the last, of an encoder–decoder the cross-attention.
    """
    attentions = {entry["block"]: entry for entry in found["attentions"]}
    entry = attentions[block] if block in attentions else found["attentions"][-1]
    stats = entry["stats"]

    def interest(place: int) -> float:
        interests = np.exp(np.negative(stats["entropy"][place]))  # (H,)
        if entry["queries"] == entry["keys"]:
            interests *= 1 - np.add(stats["first"][place], stats["self"][place]).clip(max=1)
        return float(np.sort(interests)[-3:].sum())

    best = max(range(len(entry["layers"])), key=interest)
    return int(entry["layers"][best])


def _size(found: object) -> int:
    return len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())


# --- weights ----------------------------------------------------------------------------------------------------------


def _attention(one: Attention) -> dict[str, Any]:
    statistics = [
        head_statistics(one.weights(layer), causal=one.causal, crossing=one.block == "cross") for layer in one.layers
    ]
    return {
        "block": one.block,
        "queries": one.queries,
        "keys": one.keys,
        "causal": one.causal,
        "layers": list(one.layers),
        "heads": list(one.heads),
        "n_head": len(one.heads),
        "n_head_model": one.n_head,
        "n_kv_head": one.n_kv_head,
        "t": one.t,
        "s": one.s,
        "encoding": "sqrt",
        "stats": {name: [[short(x) for x in layer[name]] for layer in statistics] for name in statistics[0]},
    }


def _write_weights(found: dict[str, Any], trace: Trace, levels: int) -> int:
    """Add the weights of all heads and their errors, and return the bytes that they take."""
    coded = [
        [
            [encode_weights(head, causal=one.causal, levels=levels) for head in one.weights(layer)]
            for layer in one.layers
        ]
        for one in trace.attentions
    ]
    for one, entry, layers in zip(trace.attentions, found["attentions"], coded, strict=True):
        entry |= {"bits": 16 if levels > BYTE_LEVELS else 8, "levels": levels, "weights": layers}
        entry["error"] = _error(one, layers, levels)
    return _length(coded)


def _affordable(trace: Trace, room: int) -> int:
    """Return the most levels of 8 bits with which the heads are estimated to fit."""
    return next((levels for levels in LEVELS if _fit(trace, levels, room)), LEVELS[-1])


def _fit(trace: Trace, levels: int, room: int) -> bool:
    """Estimate from some heads whether all have room with so many levels."""
    heads = [(one, layer, i) for one in trace.attentions for layer in one.layers for i in range(len(one.heads))]
    tried = heads[:: -(-len(heads) // TRIED)]
    coded = (encode_weights(one.head_weights(layer, i), causal=one.causal, levels=levels) for one, layer, i in tried)
    return sum(len(head) + 3 for head in coded) * len(heads) <= room * len(tried)


def _length(coded: list[Coded]) -> int:
    return sum(len(head) + 3 for one in coded for layer in one for head in layer)


def _error(one: Attention, coded: Coded, levels: int) -> dict[str, float]:
    """Measure the error of the encoded weights.

    Returns:
        "max": the largest difference. "relative": the largest one as a share of the weight, for weights from
        `RELATIVE_FROM`. "mean": the mean misplaced share of a row.
    """
    most, relative, total, count = 0.0, 0.0, 0.0, 0
    for layer, heads in zip(one.layers, coded, strict=True):
        for weights, head in zip(one.weights(layer), heads, strict=True):
            off = np.abs(decode_weights(head, one.t, one.s, causal=one.causal, levels=levels) - weights)
            most = max(most, float(off.max()))
            large = weights >= RELATIVE_FROM
            relative = max(relative, float((off[large] / weights[large]).max(initial=0)))
            total += float(off.sum()) / 2
            count += one.t
    return {"max": short(most, 2), "relative": short(relative, 2), "mean": short(total / count, 2)}


# --- queries and keys -------------------------------------------------------------------------------------------------


def _fitting_vectors(trace: Trace, layers: list[int], bits: int, room: int) -> dict[int, dict[str, Any]]:
    """Return the queries and keys of the first of these layers, and of the next ones while they have room."""
    stored: dict[int, dict[str, Any]] = {}
    for layer in layers:
        vectors = _vectors_by_block(trace, layer, bits)
        room -= _size(vectors)
        if stored and room < 0:
            break
        stored[layer] = vectors
    return stored


def _vectors_by_block(trace: Trace, layer: int, bits: int) -> dict[str, Any]:
    """Return the queries and keys of a layer, by the block that has it."""
    return {one.block: _neurons(one, layer, bits) for one in trace.attentions if layer in one.layers}


def _neurons(one: Attention, layer: int, bits: int) -> dict[str, Any]:
    queries, keys = one.queries_of(layer), one.keys_of(layer)
    found: dict[str, Any] = {"head_dim": one.head_dim, "score_error": []}
    for name, vectors in (("q", queries), ("k", keys)):
        scales, coded = zip(*(encode_vectors(head, bits=bits) for head in vectors), strict=True)
        found |= {f"{name}_scale": list(scales), name: list(coded)}
    for head, q in enumerate(queries):
        k = keys[head * len(keys) // len(queries)]
        off = rounded_vectors(q, bits=bits) @ rounded_vectors(k, bits=bits).T - q @ k.T  # (T, S)
        found["score_error"].append(short(1.01 * float(np.abs(off).max()) * one.head_dim**-0.5, 3))
    return found
