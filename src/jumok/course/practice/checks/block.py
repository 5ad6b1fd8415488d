"""Checks of the exercises on the block and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BlockConfig
from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    any_of,
    compare,
    hidden,
    passed,
    require,
    require_earlier,
    require_one_device,
    require_shape,
    require_tensor,
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
    copy_parameters(right, norm, {"weight": "weight", "bias": "bias"})
    require(all(same(start[name], value) for name, value in started.items()), "initial-values")
    yield passed("norm-parameters")
    x = hidden(3, 5, 8) + 1
    kept = x.clone()
    with torch.no_grad():
        compare(norm(kept), right(x), *_norm_mistakes(x, right), letters="(B, T, C)")
        _require_unchanged(kept, x)
        yield passed("normalised")
        usual = code.module("LayerNorm", 8)
        flat = usual(torch.full((1, 1, 8), 3.0))
        compare(flat, torch.zeros(1, 1, 8))
    yield passed("equal-values")


def _norm_mistakes(x: Tensor, norm: nn.LayerNorm) -> list[Mistake]:
    def made(centred: Tensor, deviation: Tensor) -> Tensor:
        return centred / deviation * norm.weight + norm.bias

    def over(*dimensions: int) -> Tensor:
        mean = x.mean(dimensions, keepdim=True)
        return made(x - mean, (x.var(dimensions, unbiased=False, keepdim=True) + norm.eps).sqrt())

    centred = x - x.mean(-1, keepdim=True)
    variance, unbiased = (x.var(-1, unbiased=choice, keepdim=True) for choice in (False, True))
    plain = centred / (variance + norm.eps).sqrt()
    return [
        Mistake("batch-norm", over(0, 1)),
        Mistake("over-positions", over(1)),
        Mistake("whole-tensor", any_of(over(0, 1, 2), over(1, 2))),
        Mistake(
            "unbiased",
            any_of(
                made(centred, (unbiased + norm.eps).sqrt()),
                made(centred, unbiased.sqrt() + norm.eps),
                made(centred, unbiased.sqrt()),
            ),
        ),
        Mistake("eps-outside", made(centred, variance.sqrt() + norm.eps)),
        Mistake("no-eps", any_of(*(made(centred, (variance + other).sqrt()) for other in (0.0, 1e-5, 1e-6)))),
        Mistake("not-divided/block", made(centred, (centred.square().sum(-1, keepdim=True) + norm.eps).sqrt())),
        Mistake("bias-scaled", (plain + norm.bias) * norm.weight),
        Mistake("no-root/block", made(centred, variance + norm.eps)),
        Mistake(
            "mean-kept",
            any_of(
                made(x, (variance + norm.eps).sqrt()), made(x, (x.square().mean(-1, keepdim=True) + norm.eps).sqrt())
            ),
        ),
        Mistake("no-parameters", any_of(plain, plain * norm.weight, plain + norm.bias)),
    ]


def mlp(code: Code) -> Steps:
    """Two linear layers with GELU or ReLU between them."""
    own = code.module("MLP", 6)
    right = MLP(6, 24, "gelu_tanh")
    fill(right)
    copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
    yield passed("two-layers")
    x = hidden(3, 5, 6)
    with torch.no_grad():
        up, down = right.up_proj(x), right.down_proj
        chosen = _activation_of(own, right)
        compare(
            own(x.clone()),
            chosen(x),
            Mistake("no-activation", down(up)),
            Mistake(
                "activation-last",
                any_of(
                    *(
                        after(down(inner))
                        for after in _allowed()
                        for inner in (up, F.gelu(up), F.gelu(up, approximate="tanh"), F.relu(up))
                    )
                ),
            ),
            Mistake(
                "other-activation",
                any_of(*(down(other(up)) for other in (F.silu, torch.tanh, torch.sigmoid, F.leaky_relu, F.elu))),
            ),
            Mistake("softmax/block", any_of(*(down(up.softmax(dimension)) for dimension in (-1, -2, 0)))),
            Mistake("residual-inside", any_of(*(x + down(activation(up)) for activation in _allowed()))),
        )
    yield passed("block-part-right")


def _allowed() -> list[Callable[[Tensor], Tensor]]:
    return [ACTIVATION[name] for name in ACTIVATIONS]


def _with(right: MLP, name: str) -> MLP:
    right.activation = ACTIVATION[name]
    return right


def _activation_of(own: Any, right: MLP) -> MLP:
    """Return the production MLP with the activation that the reader's MLP, which has the same parameters, uses."""
    x = hidden(2, 3, right.up_proj.in_features, seed=7)
    with torch.no_grad():
        result = own(x.clone())
        found = (n for n in ACTIVATIONS if isinstance(result, Tensor) and same(result, _with(right, n)(x)))
        return _with(right, next(found, ACTIVATIONS[0]))


def residual(code: Code) -> Steps:
    """x + f(x), layer after layer, without changing the argument."""
    function = code.function("apply_residual")
    x = hidden(2, 5, 7)
    first, second, third = layers = [nn.Linear(7, 7) for _ in range(3)]
    for seed, layer in enumerate(layers):
        fill(layer, seed=seed)

    def apply(step: Callable[[Tensor, nn.Module], Tensor]) -> Tensor:
        result = x
        for layer in layers:
            result = step(result, layer)
        return result

    one = x + first(x)
    right = one + second(one)
    right = right + third(right)
    kept = x.clone()
    result = function(kept, layers)
    compare(
        result,
        right,
        Mistake("x-lost", any_of(apply(lambda y, layer: layer(y)), apply(lambda y, layer: layer(y) + layer(layer(y))))),
        Mistake("first-x", x + first(x) + second(x) + third(x)),
        Mistake("adds-first-x", apply(lambda y, layer: x + layer(y))),
        Mistake("once-around", x + third(second(first(x)))),
        Mistake("last-layer-only", x + third(x)),
        Mistake("first-layer-only", one),
    )
    _require_unchanged(kept, x)
    yield passed("layers-add")
    _require_gradient(function, x, layers)
    yield passed("gradient-passes")


def _require_gradient(function: Callable[..., Any], x: Tensor, layers: list[nn.Linear]) -> None:
    """Check that the gradient passes layers that add nothing, and that those of the layers can be computed."""
    start = x.clone().requires_grad_()
    result = require_tensor(function(start, [lambda y: 0.0 * y] * 12))
    gradient = torch.autograd.grad(result.sum(), start)[0] if result.requires_grad else torch.zeros_like(x)
    require(same(gradient, torch.ones_like(x)), "no-gradient/block")
    learning = function(x.clone().requires_grad_(), layers)
    learning.sum().backward()


def _require_unchanged(kept: Tensor, x: Tensor) -> None:
    require(torch.equal(kept, x), "in-place/block")


def dropout(code: Code) -> Steps:
    """Zeros with probability p in training, the others scaled by 1 / (1 - p), and the identity in evaluation."""
    p = 0.3
    layer = code.module("Dropout", p)
    x = hidden(4, 30, 50) + 3
    kept = x.clone()
    evaluated = layer.eval()(kept)
    compare(
        evaluated,
        x,
        Mistake("scaled-in-eval", any_of(x * (1 - p), x / (1 - p))),
        Mistake("active-in-eval", lambda result: bool((result == 0).any())),
    )
    yield passed("identity-in-eval")
    first, second = (require_tensor(layer.train()(kept)) for _ in range(2))
    require_shape(first, tuple(x.shape))
    _require_unchanged(kept, x)
    _require_random(layer, x, first, second, p)
    survived = first != 0
    wanted = torch.where(survived, x / (1 - p), 0.0)
    compare(
        first,
        wanted,
        Mistake("no-scale/block", torch.where(survived, x, 0.0)),
        Mistake(
            "wrong-scale", any_of(*(torch.where(survived, x * factor, 0.0) for factor in (1 - p, 1 / p, p, 1 + p)))
        ),
    )
    compare(code.module("Dropout", 0.0).train()(kept), x)
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
    copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
    yield passed("all-layers")
    x = hidden(2, 5, 12)
    with torch.no_grad():
        right.mlp = _activation_of(own.mlp, right.mlp)  # type: ignore[arg-type]
        own.eval()
        require_earlier("output_projection", own.attention(x, causal=True), right.attention(x, causal=True))
        require_earlier("layer_norm", own.attention_norm(x), right.attention_norm(x))
        require_earlier("mlp", own.mlp(x), right.mlp(x))
        kept = x.clone()
        result = require_tensor(own(kept))
        try:
            compare(result, right(x), *_block_mistakes(right, x), letters="(B, T, C)")
        except Wrong as wrong:
            if wrong.mistake:
                raise
            _name_the_line(own, right, x)
            raise
        _require_unchanged(kept, x)
        yield passed("equals-production-block")
        _require_dropout(code.module("Block", 12, 3, 0.5))
    yield passed("three-dropouts")


def _name_the_line(own: Any, right: Block, x: Tensor) -> None:
    """Explain a result that is no known mistake: say which of the two lines makes it, with the other part silent."""
    for silent, line, mistake in (
        ("mlp.down_proj", "x = x + drop(attention(attention_norm(x)))", "attention-line"),
        ("attention.o_proj", "x = x + drop(mlp(mlp_norm(x)))", "mlp-line"),
    ):
        fill(right)
        for parameter in right.get_submodule(silent).parameters():
            parameter.zero_()
        copy_parameters(right, own, {name: name for name, _ in right.named_parameters()})
        require(same(require_tensor(own(x.clone())), right(x)), mistake, line=line)


def _production_block() -> Block:
    return Block(
        BlockConfig(width=12, n_head=3, n_kv_head=3, head_dim=4, mlp_width=48, activation="gelu_tanh"), causal=True
    )


def _block_mistakes(right: Block, x: Tensor) -> list[Mistake]:
    assert right.mlp is not None
    assert right.mlp_norm is not None
    norm, mlp_norm, feed = right.attention_norm, right.mlp_norm, right.mlp

    def attention(y: Tensor) -> Tensor:
        return right.attention(y, causal=True)

    def finish(y: Tensor) -> Tensor:
        return y + feed(mlp_norm(y))

    middle = x + attention(norm(x))
    seeing = x + right.attention(norm(x))
    post = norm(x + attention(x))
    normed, lost = norm(x), attention(norm(x))
    swapped = x + attention(mlp_norm(x))
    from_norm = normed + attention(normed)
    return [
        Mistake("not-causal/block", finish(seeing)),
        Mistake(
            "post-norm", any_of(mlp_norm(post + feed(post)), mlp_norm(middle + feed(middle)), norm(finish(middle)))
        ),
        Mistake("no-residual", any_of(finish(lost), feed(mlp_norm(middle)), feed(mlp_norm(lost)))),
        Mistake("one-norm", any_of(middle + feed(norm(middle)), finish(swapped), swapped + feed(norm(swapped)))),
        Mistake(
            "adds-normed",
            any_of(
                finish(from_norm),
                mlp_norm(middle) + feed(mlp_norm(middle)),
                mlp_norm(from_norm) + feed(mlp_norm(from_norm)),
            ),
        ),
        Mistake("no-norm", any_of(finish(x + attention(x)), middle + feed(middle), (y := x + attention(x)) + feed(y))),
        Mistake("norm-of-result", (w := x + norm(attention(x))) + mlp_norm(feed(w))),
        Mistake("mlp-without-x", x + lost + feed(mlp_norm(lost))),
        Mistake("parallel", middle + feed(mlp_norm(x))),
        Mistake("mlp-first", (z := x + feed(mlp_norm(x))) + attention(norm(z))),
    ]


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
