"""The models as graphs of ONNX. Shapes use the legend of `jumok.nn.attention`."""

from __future__ import annotations

from onnx import TensorProto

from jumok.config import GPTConfig
from jumok.interop.onnx.graph import Graph
from jumok.interop.onnx.layers import (
    Angles,
    KeysAndValues,
    activation,
    block,
    causal,
    linear,
    masked,
    norm,
    pool,
    product,
)
from jumok.models.bert import BERT
from jumok.models.gpt import GPT
from jumok.nn.blocks import Block
from jumok.nn.positions import scaled_frequencies

TOKENS = ("batch", "tokens")
SIDES = ("key", "value")


def language_model(g: Graph, model: GPT) -> None:
    """Add a GPT: whole texts, or tokens after others whose keys and values are given."""
    c = model.config
    ids = g.input("input_ids", TOKENS, ids=True)
    past = [
        KeysAndValues(*(g.input(_past(i, side), ("batch", c.n_kv_head, "past", c.head_dim)) for side in SIDES))
        for i in range(c.n_layer)
    ]
    start = g.size(past[0].keys, 2)  # (1,)
    hidden = _hidden(g, model, ids, start, past)
    logits = product(g, hidden, model.head.weight, model.head.bias)
    g.output("logits", logits, (*TOKENS, c.vocab_size))
    for i, layer in enumerate(past):
        for side, value in zip(SIDES, (layer.keys, layer.values), strict=True):
            g.output(f"present.{i}.{side}", value, ("batch", c.n_kv_head, "past + tokens", c.head_dim))


def text_classifier(g: Graph, model: GPT) -> None:
    """Add a GPT with labels. Padding comes after the text, so no token attends to it."""
    ids, mask = (g.input(name, TOKENS, ids=True) for name in ("input_ids", "attention_mask"))
    hidden = _hidden(g, model, ids, g.constant([0]), [])
    assert model.pooling is not None
    assert model.classifier is not None
    logits = linear(g, model.classifier, pool(g, model.pooling, hidden, mask))
    g.output("logits", logits, ("batch", len(model.config.labels)))


def bert(g: Graph, model: BERT) -> None:
    """Add a BERT with its head."""
    ids, mask, types = (g.input(name, TOKENS, ids=True) for name in ("input_ids", "attention_mask", "token_type_ids"))
    c = model.config
    tables = {
        model.token_embedding: ids,
        model.position_embedding: _positions(g, c.position_offset, ids),
        model.type_embedding: types,
    }
    first, second, third = (g.add("Gather", g.parameter(table.weight), where) for table, where in tables.items())
    x = norm(g, model.embedding_norm, g.add("Add", g.add("Add", first, second), third))  # (B, T, E)
    if model.embedding_projection is not None:
        x = linear(g, model.embedding_projection, x)  # (B, T, C)
    allowed = g.add("Unsqueeze", masked(g, g.cast(mask, TensorProto.BOOL)), g.constant([1, 2]))  # (B, 1, 1, T)
    for layer in model.blocks:
        assert isinstance(layer, Block)
        x = block(g, layer, x, allowed)
    if model.mlm_head is not None:
        head = model.mlm_head
        y = norm(g, head.norm, activation(g, "gelu", linear(g, head.dense, x)))
        g.output("logits", product(g, y, model.token_embedding.weight, head.bias), (*TOKENS, c.vocab_size))
        return
    if model.pooling is None or model.pooler is None:
        g.output("last_hidden_state", x, (*TOKENS, c.n_embd))
        return
    pooled = linear(g, model.pooler, pool(g, model.pooling, x, mask))  # (B, C)
    pooled = activation(g, "gelu", pooled) if c.family == "electra" else g.add("Tanh", pooled)
    if model.classifier is not None:
        g.output("logits", linear(g, model.classifier, pooled), ("batch", len(c.labels)))
        return
    g.output("last_hidden_state", x, (*TOKENS, c.n_embd))
    g.output("pooler_output", pooled, ("batch", c.n_embd))


def _positions(g: Graph, offset: int, ids: str) -> str:
    """Return the rows of the table of positions: (B, T) -> (T,), or (B, T) of a RoBERTa, which counts only tokens."""
    if not offset:
        return g.span(g.constant([0]), g.size(ids, 1))
    is_token = g.cast(g.add("Not", g.add("Equal", ids, g.constant([offset - 1]))), TensorProto.INT64)
    count = g.add("CumSum", is_token, g.scalar(g.constant([1])))
    return g.add("Add", g.add("Mul", count, is_token), g.constant([offset - 1]))


def _past(layer: int, side: str) -> str:
    return f"past_key_values.{layer}.{side}"


def _hidden(g: Graph, model: GPT, ids: str, start: str, cache: list[KeysAndValues]) -> str:
    """Return the last hidden states: ids (B, T), start (1,), the number of tokens before them -> (B, T, C)."""
    c = model.config
    stop = g.add("Add", start, g.size(ids, 1))  # (1,)
    positions, keys = g.span(start, stop), g.span(g.constant([0]), stop)  # (T,), (S,)
    x = g.add("Gather", g.parameter(model.token_embedding.weight), ids)  # (B, T, C)
    if model.position_embedding is not None:
        x = g.add("Add", x, g.add("Gather", g.parameter(model.position_embedding.weight), positions))
    angles = None if model.cos is None else _angles(g, c, positions)
    windows = {window: causal(g, positions, keys, window) for window in {c.window(i) for i in range(c.n_layer)}}
    for i, layer in enumerate(model.blocks):
        assert isinstance(layer, Block)
        x = block(g, layer, x, windows[c.window(i)], angles, cache[i] if cache else None)
    return norm(g, model.norm, x)


def _angles(g: Graph, c: GPTConfig, positions: str) -> Angles:
    """Return cosines and sines of positions, (T,)."""
    frequencies, factor = scaled_frequencies(c.rotated, c.rope_theta, c.frequency_scaling)  # (R/2,)
    at = g.add("Unsqueeze", g.cast(positions, TensorProto.FLOAT), g.constant([1]))  # (T, 1)
    angles = g.add("Mul", at, g.constant(frequencies.numpy()))  # (T, R/2)
    cos, sin = (g.add("Mul", g.add(kind, angles), g.constant(factor)) for kind in ("Cos", "Sin"))
    return Angles(cos, sin, c.rotated // 2)
