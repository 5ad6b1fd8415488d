"""Chapter 4, queries, keys and values: three learned matrices, and why the scores are divided by sqrt(D).

The functions take a production `MultiHeadAttention` with one head and compute its steps one by one. The rest of the
module measures how the softmax behaves if the scores grow with the width.

Shapes use the legend of `jumok.nn.attention`. `scores` are before the softmax, `weights` after it.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2.1 and its footnote 4.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.course.chapters.dot_product import attend_by_loop, entropy, softmax, softmax_jacobian
from jumok.nn import MultiHeadAttention


def scores_by_product(q: Tensor, k: Tensor) -> Tensor:
    """Return q kᵀ."""
    return q @ k.transpose(-2, -1)


class Steps(NamedTuple):
    """Every step between the input and the output of one head. The shapes have no B if x has none."""

    q: Tensor  # (B, T, D): what each position is looking for
    k: Tensor  # (B, T, D): what queries are compared with
    v: Tensor  # (B, T, D): what each position contributes
    scores: Tensor  # (B, T, T): q·k
    scaled: Tensor  # (B, T, T): scores / sqrt(D)
    weights: Tensor  # (B, T, T): each row with sum one
    context: Tensor  # (B, T, D): weighted sum of the values
    output: Tensor  # (B, T, d_out): context after the output projection, if the layer has one


class Spread(NamedTuple):
    """The spread of scores, and its effect on the softmax."""

    variance: float  # of the scores, all pairs together
    entropy: float  # of the weights, in nats; mean over queries
    largest: float  # the largest weight of each query; mean over queries
    gradient: float  # `gradient_of_queries`; median over queries, because a few large ones dominate the mean


def project(projection: nn.Linear, x: Tensor) -> Tensor:
    """The computation of `nn.Linear`: each output number is the dot product of x with one row of W.

    PyTorch stores W as (d_out, d_in), the transpose of the W in books, which write x W.

    Args:
        projection: d_in -> d_out. x: (..., d_in).

    Returns:
        (..., d_out).
    """
    projected = x @ projection.weight.T  # (..., d_out)
    return projected if projection.bias is None else projected + projection.bias


def step_by_step(attention: MultiHeadAttention, x: Tensor) -> Steps:
    """One head, with the intermediate results that a fused kernel does not return.

    Args:
        attention: a layer with one head. x: (B, T, d_in), or (T, d_in).

    Returns:
        All steps; `output` is equal to `attention(x)` without dropout.

    Raises:
        ValueError: the layer has several heads, or norms on q and k.
    """
    _require_one_plain_head(attention)
    q = project(attention.q_proj, x)  # (B, T, D)
    k = project(attention.k_proj, x)  # (B, T, D)
    v = project(attention.v_proj, x)  # (B, T, D)
    scores = scores_by_product(q, k)  # (B, T, T)
    scaled = scores / math.sqrt(attention.head_dim)  # (B, T, T)
    weights = softmax(scaled)  # (B, T, T)
    context = weights @ v  # (B, T, D)
    output = context if attention.o_proj is None else project(attention.o_proj, context)  # (B, T, d_out)
    return Steps(q, k, v, scores, scaled, weights, context, output)


def attend_pair_by_pair(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """One head by the loops of chapter 3, applied to the queries, keys and values of x.

    Args:
        attention: a layer with one head. x: (B, T, d_in), or (T, d_in).

    Returns:
        (B, T, d_out), or (T, d_out); equal to `attention(x)` without dropout.

    Raises:
        ValueError: the layer has several heads, or norms on q and k.
    """
    _require_one_plain_head(attention)
    q = project(attention.q_proj, x) / math.sqrt(attention.head_dim)  # (B, T, D)
    context = attend_by_loop(q, project(attention.k_proj, x), project(attention.v_proj, x))  # (B, T, D)
    return context if attention.o_proj is None else project(attention.o_proj, context)  # (B, T, d_out)


def layer_of(w_query: Tensor, w_key: Tensor, w_value: Tensor) -> MultiHeadAttention:
    """A production layer with these three matrices, in the layout of books: x W.

    It draws no random numbers, so it does not change a table printed after `torch.manual_seed(n)`.

    Args:
        w_query, w_key, w_value: (d_in, D) each.

    Returns:
        A layer with one head and no output projection; its parameters are copies, of the type of the matrices.

    Raises:
        ValueError: the matrices are not of one shape.
    """
    matrices = {"q_proj": w_query, "k_proj": w_key, "v_proj": w_value}
    shapes = [tuple(matrix.shape) for matrix in matrices.values()]
    if w_query.dim() != 2 or len(set(shapes)) > 1:
        raise ValueError(f"the shapes are {shapes}; give three matrices (d_in, D) of one shape")
    d_in, head_dim = w_query.shape
    with torch.device("meta"):  # parameters without memory need no random numbers
        layer = MultiHeadAttention(d_in, head_dim, 1, project=False)
    copies = {f"{name}.weight": matrix.detach().T.clone() for name, matrix in matrices.items()}  # (D, d_in) each
    layer.load_state_dict(copies, assign=True)
    return layer


def random_queries_and_keys(head_dim: int, *, queries: int, keys: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Queries and keys whose numbers are independent, with mean 0 and variance 1, as in the paper's footnote 4.

    Args:
        head_dim: D. queries: number of queries. keys: S, number of keys for each query. seed: random seed.

    Returns:
        q: (queries, 1, D). k: (queries, S, D); every query has its own keys, so that the scores are independent.
    """
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(queries, 1, head_dim, generator=generator)
    k = torch.randn(queries, keys, head_dim, generator=generator)
    return q, k


def gradient_of_queries(weights: Tensor, k: Tensor, scale: float) -> Tensor:
    """How much the weights of a query change with the query: the Frobenius norm of d weights / d q.

    The derivative is scale · J K, where J is the Jacobian of the softmax and K are the keys. In backpropagation the
    gradient of the weights is multiplied by it. Where it is nearly zero, the query receives no gradient.

    Args:
        weights: (..., T, S), each row with sum one. k: (..., S, D). scale: the factor on q·k before the softmax.

    Returns:
        (..., T), at least 0; it is 0 if one key has all the weight.
    """
    moved = scale * softmax_jacobian(weights) @ k.unsqueeze(-3)  # (..., T, S, D)
    return moved.flatten(-2).norm(dim=-1)


def spread(q: Tensor, k: Tensor, scale: float) -> Spread:
    """Measure the scores scale · q·k and the softmax over them, in float64 because gradients may be tiny.

    Args:
        q: (B, T, D), or (T, D). k: (B, S, D), or (S, D). scale: factor on the scores: 1 for none, D**-0.5 as in
            production.

    Returns:
        Four numbers over all queries.
    """
    scores = scores_by_product(q.double(), k.double()) * scale  # (B, T, S)
    weights = softmax(scores)  # (B, T, S)
    return Spread(
        variance=float(scores.var(correction=0)),
        entropy=float(entropy(weights).mean()),
        largest=float(weights.max(dim=-1).values.mean()),
        gradient=float(gradient_of_queries(weights, k.double(), scale).median()),
    )


def _require_one_plain_head(attention: MultiHeadAttention) -> None:
    if attention.n_head != 1:
        raise ValueError(
            f"this lesson is about one head, and the layer has n_head={attention.n_head}; "
            "jumok.course.chapters.heads takes any number"
        )
    if attention.q_norm is not None:
        raise ValueError("this lesson has no norms on q and k; make the layer without qk_norm")
