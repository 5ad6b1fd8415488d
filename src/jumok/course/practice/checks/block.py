"""Checks of the exercises on the block and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.config import BlockConfig
from jumok.course.practice.checking import (
    Code,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    require,
    require_earlier,
    require_one_device,
    require_shape,
    require_tensor,
    result_of,
    same,
)
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import MLP, Block
from jumok.nn.blocks import ACTIVATION

ACTIVATIONS = ("gelu_tanh", "gelu", "relu")  # those that a reader may choose


def layer_norm(code: Code) -> Steps:
    """Normalisation over the last dimension, with epsilon inside the root."""
    eps = 0.5  # so large that its place shows
    norm = code.module("LayerNorm", 8, eps)
    start = {name: value.clone() for name, value in norm.named_parameters()}
    right = nn.LayerNorm(8, eps=eps)
    started = {name: value.detach().clone() for name, value in right.named_parameters()}
    fill(right, scale=1.0)
    copy_parameters(right, norm)
    require(all(same(start[name], value) for name, value in started.items()), "initial-values")
    yield passed("norm-parameters")
    x = hidden(3, 5, 8) + 1
    with torch.no_grad():
        compare(result_of(norm, x), right(x), letters="(B, T, C)")
        yield passed("normalised")
        compare(code.module("LayerNorm", 8)(torch.full((1, 1, 8), 3.0)), torch.zeros(1, 1, 8))
    yield passed("equal-values")


def mlp(code: Code) -> Steps:
    """Two linear layers with GELU or ReLU between them."""
    own = code.module("MLP", 6)
    right = MLP(6, 24, "gelu_tanh")
    fill(right)
    copy_parameters(right, own)
    yield passed("two-layers")
    x = hidden(3, 5, 6)
    with torch.no_grad():
        right = activated_like(own, right)
        compare(result_of(own, x), right(x))
    yield passed("block-part-right")


def activated_like(own: Any, right: MLP) -> MLP:
    """Return the production MLP with the activation that the reader's MLP, which has the same parameters, uses."""
    x = hidden(2, 3, right.up_proj.in_features, seed=7)
    with torch.no_grad():
        result = own(x.clone())
        for name in ACTIVATIONS:
            right.activation = ACTIVATION[name]
            if isinstance(result, Tensor) and same(result, right(x)):
                return right
    right.activation = ACTIVATION[ACTIVATIONS[0]]
    return right


def residual(code: Code) -> Steps:
    """x + f(x), layer after layer, without changing the argument."""
    function = code.function("apply_residual")
    x = hidden(2, 5, 7)
    layers = [nn.Linear(7, 7) for _ in range(3)]
    for seed, layer in enumerate(layers):
        fill(layer, seed=seed)
    right = x
    for layer in layers:
        right = right + layer(right)
    compare(result_of(function, x, layers), right)
    yield passed("layers-add")
    _require_gradient(function, x, layers)
    yield passed("gradient-passes")


def _require_gradient(function: Callable[..., Any], x: Tensor, layers: list[nn.Linear]) -> None:
    """Check that the gradient passes layers that add nothing, and that those of the layers can be computed."""
    start = x.clone().requires_grad_()
    result = require_tensor(function(start, [lambda y: 0.0 * y] * 12))
    gradient = torch.autograd.grad(result.sum(), start)[0] if result.requires_grad else torch.zeros_like(x)
    require(same(gradient, torch.ones_like(x)), "no-gradient/graph")
    learning = function(x.clone().requires_grad_(), layers)
    learning.sum().backward()


def dropout(code: Code) -> Steps:
    """Zeros with probability p in training, the others scaled by 1 / (1 - p), and the identity in evaluation."""
    p = 0.3
    layer = code.module("Dropout", p)
    x = hidden(4, 30, 50) + 3
    evaluated = require_tensor(layer.eval()(x.clone()))
    require(not bool((evaluated == 0).any()), "active-in-eval")
    compare(evaluated, x)
    yield passed("identity-in-eval")
    first, second = (require_tensor(result_of(layer.train(), x)) for _ in range(2))
    require_shape(first, tuple(x.shape))
    _require_random(layer, x, first, second, p)
    survived = first != 0
    compare((first / x)[survived].mean(), torch.tensor(1 / (1 - p)))
    compare(first, torch.where(survived, x / (1 - p), 0.0))
    compare(code.module("Dropout", 0.0).train()(x.clone()), x)
    require_one_device(layer, x)
    yield passed("dropout-right")


def _require_random(layer: Any, x: Tensor, first: Tensor, second: Tensor, p: float) -> None:
    zero = first == 0
    share = zero.float().mean().item()
    if share in (0, 1):
        require(not any((layer(x) == 0).float().mean().item() == 1 - share for _ in range(12)), "one-choice")
    require(share > 0, "inactive")
    require(not torch.equal(zero, second == 0), "fixed-mask")
    require(not torch.equal(zero, zero[:1].expand_as(zero)), "same-mask")
    require(
        not torch.equal(zero, zero[:, :1].expand_as(zero)) and not torch.equal(zero, zero[..., :1].expand_as(zero)),
        "shared-mask",
    )
    require(abs(share - (1 - p)) > 0.05, "p-reversed", p=p, share=share)
    require(abs(share - p) < 0.05, "share", p=p, share=share)


def block(code: Code) -> Steps:
    """A pre-norm block, equal to the production block, with dropout in three places."""
    own = code.module("Block", 12, 3, 0.0)
    right = _production_block()
    fill(right)
    require(
        getattr(own, "attention_norm", None) is None or own.attention_norm is not getattr(own, "mlp_norm", None),
        "shared-norm",
    )
    copy_parameters(right, own)
    yield passed("all-layers")
    x = hidden(2, 5, 12)
    with torch.no_grad():
        right.mlp = activated_like(own.mlp, right.mlp)  # type: ignore[arg-type]
        own.eval()
        require_earlier("output_projection", own.attention(x, causal=True), right.attention(x, causal=True))
        require_earlier("layer_norm", own.attention_norm(x), right.attention_norm(x))
        require_earlier("mlp", own.mlp(x), right.mlp(x))
        try:
            compare(result_of(own, x), right(x), letters="(B, T, C)")
        except Wrong as wrong:
            if wrong.is_value and (line := _wrong_line(own, right, x)):
                raise Wrong("line", wrong.result, wrong.expected, line=line) from None
            raise
        yield passed("equals-production-block")
        _require_dropout(code.module("Block", 12, 3, 0.5))
    yield passed("three-dropouts")


def _wrong_line(own: Any, right: Block, x: Tensor) -> str | None:
    """Return which of the two lines computes something else, with the other part silent."""
    for silent, line in (
        ("mlp.down_proj", "x = x + drop(attention(attention_norm(x)))"),
        ("attention.o_proj", "x = x + drop(mlp(mlp_norm(x)))"),
    ):
        fill(right)
        for parameter in right.get_submodule(silent).parameters():
            parameter.zero_()
        copy_parameters(right, own)
        if not same(own(x.clone()), right(x)):
            return line
    return None


def _production_block() -> Block:
    return Block(
        BlockConfig(width=12, n_head=3, n_kv_head=3, head_dim=4, mlp_width=48, activation="gelu_tanh"), causal=True
    )


def _require_dropout(own: Any) -> None:
    """Check the three places of dropout, each with the other parts set to zero."""
    own.train()
    x = hidden(4, 10, 12)
    fill(own, scale=0.5)
    for silent, mistake in ((own.mlp.down_proj, "no-attention-dropout"), (own.attention.o_proj, "no-mlp-dropout")):
        fill(own, scale=0.5)
        for parameter in silent.parameters():
            parameter.zero_()
        result = require_tensor(own(x.clone()))
        require(bool((result != 0).float().mean() > 0.9), "dropout-on-sum")
        require(bool(((result - x).abs() < 1e-6).float().mean() > 0.3), mistake)
    fill(own, scale=0.5)
    for layer in (own.mlp.down_proj, own.attention.v_proj):
        layer.weight.zero_()
    own.mlp.down_proj.bias.zero_()
    added = own(x.clone()) - x  # all values are equal: without dropout the weighted mean is the same at each position
    columns = [c[c.abs() > 1e-5] for c in added.flatten(0, 1).T]
    require(any(len(c) and (c.max() - c.min()).item() > 1e-4 for c in columns), "no-weight-dropout")
