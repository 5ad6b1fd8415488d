"""The modules of `jumok.nn` as operations of ONNX. Shapes use the legend of `jumok.nn.attention`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto
from torch import Tensor, nn

from jumok.interop.onnx.graph import Graph
from jumok.models.pooling import Pooling
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import ACTIVATION, MLP, Block, SwiGLU
from jumok.nn.layers import RMSNorm

MASKED = -1e9  # added to the score of a key that a query may not attend to; e^-1e9 is 0


@dataclass(frozen=True)
class Angles:
    """Cosines and sines of T positions, (T, R/2) each, and R/2: of each head the first R dimensions are rotated."""

    cos: str
    sin: str
    half: int


@dataclass
class KeysAndValues:
    """The keys and values of one layer, (B, G, P, D) each; `attention` appends those of the text."""

    keys: str
    values: str


def linear(g: Graph, layer: nn.Linear, x: str) -> str:
    """(..., in) -> (..., out)."""
    return product(g, x, layer.weight, layer.bias)


def product(g: Graph, x: str, matrix: Tensor, bias: Tensor | None) -> str:
    """X (..., in), matrix (out, in), bias (out,) -> (..., out)."""
    y = g.add("MatMul", x, g.add("Transpose", g.parameter(matrix), perm=[1, 0]))
    return y if bias is None else g.add("Add", y, g.parameter(bias))


def norm(g: Graph, layer: nn.Module, x: str) -> str:
    """LayerNorm, RMSNorm or the identity: (..., C) -> (..., C)."""
    if isinstance(layer, nn.LayerNorm):
        weights = g.parameter(layer.weight), g.parameter(layer.bias)
        return g.add("LayerNormalization", x, *weights, axis=-1, epsilon=layer.eps)
    if isinstance(layer, RMSNorm):
        mean = g.add("ReduceMean", g.add("Mul", x, x), g.constant([-1]), keepdims=1)  # (..., 1)
        scale = g.add("Sqrt", g.add("Add", mean, g.constant(layer.eps)))
        return g.add("Mul", g.add("Div", x, scale), g.parameter(layer.weight))
    assert isinstance(layer, nn.Identity), layer
    return x


def activation(g: Graph, name: str, x: str) -> str:
    """Apply an activation, given by its name in `jumok.nn.blocks.ACTIVATION`."""
    if name == "silu":
        return g.add("Mul", x, g.add("Sigmoid", x))
    if name == "relu":
        return g.add("Relu", x)
    return g.add("Gelu", x, approximate={"gelu": "none", "gelu_tanh": "tanh"}[name])


def mlp(g: Graph, layer: nn.Module, x: str) -> str:
    """(B, T, C) -> (B, T, C)."""
    if isinstance(layer, SwiGLU):
        gate = activation(g, "silu", linear(g, layer.gate_proj, x))
        return linear(g, layer.down_proj, g.add("Mul", gate, linear(g, layer.up_proj, x)))
    assert isinstance(layer, MLP), layer
    [name] = [name for name, function in ACTIVATION.items() if function is layer.activation]
    return linear(g, layer.down_proj, activation(g, name, linear(g, layer.up_proj, x)))


def block(
    g: Graph,
    layer: Block,
    x: str,
    allowed: str,
    angles: Angles | None = None,
    cache: KeysAndValues | None = None,
) -> str:
    """(B, T, C) -> (B, T, C). `allowed`, `angles` and `cache` are as in `attention`."""
    before = x
    y = attention(g, layer.attention, _pre(g, layer, layer.attention_norm, x), allowed, angles, cache)
    x = _joined(g, layer, layer.attention_norm, x, y)
    if layer.mlp is None:
        return x
    assert layer.mlp_norm is not None
    if layer.parallel:
        return g.add("Add", x, mlp(g, layer.mlp, _pre(g, layer, layer.mlp_norm, before)))
    return _joined(g, layer, layer.mlp_norm, x, mlp(g, layer.mlp, _pre(g, layer, layer.mlp_norm, x)))


def _pre(g: Graph, layer: Block, part: nn.Module, x: str) -> str:
    return norm(g, part, x) if layer.pre_norm else x


def _joined(g: Graph, layer: Block, part: nn.Module, x: str, y: str) -> str:
    y = g.add("Add", x, y) if layer.residual else y
    return y if layer.pre_norm else norm(g, part, y)


def attention(
    g: Graph,
    layer: MultiHeadAttention,
    x: str,
    allowed: str,
    angles: Angles | None,
    cache: KeysAndValues | None,
) -> str:
    """Self-attention: (B, T, C) -> (B, T, C).

    Args:
        allowed: added to the scores, (T, S) or (B, 1, 1, S): 0 or MASKED. With grouped heads only (T, S).
        angles: of the queries and of the new keys; None: the positions are learned.
        cache: extended.
    """
    q = _heads(g, layer, layer.q_proj, layer.q_norm, x, layer.n_head, angles)  # (B, H, T, D)
    k = _heads(g, layer, layer.k_proj, layer.k_norm, x, layer.n_kv_head, angles)  # (B, G, T, D)
    v = _heads(g, layer, layer.v_proj, None, x, layer.n_kv_head, None)  # (B, G, T, D)
    if cache is not None:
        cache.keys = k = g.add("Concat", cache.keys, k, axis=2)  # (B, G, S, D)
        cache.values = v = g.add("Concat", cache.values, v, axis=2)
    q = g.add("Mul", q, g.constant(layer.head_dim**-0.5))
    group = layer.n_head // layer.n_kv_head
    if group > 1:  # (B, G, H/G, T, D), and (B, G, 1, S, D) for the heads of a group
        q = g.add("Reshape", q, g.constant([0, layer.n_kv_head, group, -1, layer.head_dim]))
        k, v = (g.add("Unsqueeze", one, g.constant([2])) for one in (k, v))
    axes = [*range(3 if group > 1 else 2)]
    transposed = g.add("Transpose", k, perm=[*axes, len(axes) + 1, len(axes)])
    weights = g.add("Softmax", g.add("Add", g.add("MatMul", q, transposed), allowed), axis=-1)
    heads = g.add("MatMul", weights, v)
    if group > 1:
        heads = g.add("Reshape", heads, g.constant([0, layer.n_head, -1, layer.head_dim]))  # (B, H, T, D)
    merged = g.add("Transpose", heads, perm=[0, 2, 1, 3])
    merged = g.add("Reshape", merged, g.constant([0, 0, layer.n_head * layer.head_dim]))  # (B, T, H*D)
    assert layer.o_proj is not None
    return linear(g, layer.o_proj, merged)


def _heads(
    g: Graph,
    layer: MultiHeadAttention,
    projection: nn.Linear,
    its_norm: nn.Module | None,
    x: str,
    heads: int,
    angles: Angles | None,
) -> str:
    """Project, split, norm and rotate: (B, T, C) -> (B, heads, T, D)."""
    y = g.add("Reshape", linear(g, projection, x), g.constant([0, 0, heads, layer.head_dim]))
    y = g.add("Transpose", y, perm=[0, 2, 1, 3])  # (B, heads, T, D)
    if its_norm is not None:
        y = norm(g, its_norm, y)
    return y if angles is None else rotated(g, y, layer.head_dim, angles)


def rotated(g: Graph, x: str, width: int, angles: Angles) -> str:
    """Rotate each pair (x_i, x_{i+R/2}); the dimensions from R on pass: (B, H, T, D) -> (B, H, T, D)."""
    sizes = [angles.half, angles.half, *([width - 2 * angles.half] if 2 * angles.half < width else [])]
    left, right, *rest = g.several("Split", len(sizes), x, g.constant(sizes), axis=-1)
    one = g.add("Sub", g.add("Mul", left, angles.cos), g.add("Mul", right, angles.sin))  # (B, H, T, R/2)
    other = g.add("Add", g.add("Mul", right, angles.cos), g.add("Mul", left, angles.sin))
    return g.add("Concat", one, other, *rest, axis=-1)


def pool(g: Graph, pooling: Pooling, hidden: str, mask: str) -> str:
    """Hidden (B, T, C), mask (B, T), 1 for tokens -> (B, C)."""
    if pooling.kind == "first":
        return g.add("Gather", hidden, g.scalar(g.constant([0])), axis=1)
    if pooling.kind == "last":
        places = g.add("Mul", mask, g.span(g.constant([0]), g.size(mask, 1)))  # (B, T)
        last = g.add("ReduceMax", places, g.constant([1]), keepdims=1)  # (B, 1)
        return g.add("GatherND", hidden, last, batch_dims=1)
    allowed = masked(g, g.cast(mask, TensorProto.BOOL))  # (B, T)
    weights = g.add("Unsqueeze", g.add("Softmax", allowed, axis=-1), g.constant([1]))  # (B, 1, T)
    return g.add("Squeeze", g.add("MatMul", weights, hidden), g.constant([1]))


def masked(g: Graph, allowed: str) -> str:
    """Return 0 where a query may attend, and MASKED elsewhere."""
    return g.add("Where", allowed, g.constant(0.0), g.constant(MASKED))


def causal(g: Graph, positions: str, keys: str, window: int | None) -> str:
    """Return the causal mask, (T, S), as in `masked`.

    Args:
        positions: (T,), of the queries. keys: (S,), of the keys.
        window: number of tokens that a token sees; None: all.
    """
    queries = g.add("Unsqueeze", positions, g.constant([1]))  # (T, 1)
    allowed = g.add("LessOrEqual", keys, queries)  # (T, S)
    if window is not None:
        near = g.add("Greater", keys, g.add("Sub", queries, g.constant(np.array(window))))
        allowed = g.add("And", allowed, near)
    return masked(g, allowed)
