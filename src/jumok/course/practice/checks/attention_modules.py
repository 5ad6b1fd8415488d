"""What the checks of attention modules have in common: their parameters, and where dropout stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import Wrong, hidden, raises, require_shape, require_tensor, same

RATE = 0.5
MANY = 64  # samples: the chance that all of them are dropped, or none, is 2^-64


def require_no_bias(ours: nn.Module) -> None:
    """Check that q_proj, k_proj and v_proj have no bias.

    Raises:
        Wrong: one has.
    """
    for name, _ in ours.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias")):
            raise Wrong("bias", name=name)


def require_parameters(ours: nn.Module, names: Iterable[str]) -> None:
    """Check that there are these parameters and no others.

    Raises:
        Wrong: one is missing, or there is another one.
    """
    expected, found = list(names), [name for name, _ in ours.named_parameters()]
    for name in expected:
        if name not in found:
            raise Wrong("missing-parameter/attention_modules", name=name, found=", ".join(found) or "-")
    for name in found:
        if name not in expected:
            raise Wrong("extra-parameter", name=name)


def run_with_heads(call: Callable[[], Any]) -> Any:
    """Return the result of code that splits tensors into heads, in shapes of which T, H and D differ.

    Raises:
        Wrong: dimensions are confused, so that the keys do not fit the queries, or the mask the scores.
    """

    def swapped() -> Any:
        return raises("transposed-heads", call, text="at non-singleton dimension 1")

    return raises("mask-size", swapped, text="at non-singleton dimension 3")


def require_repeatable(ours: Callable[[Tensor], Any], x: Tensor) -> None:
    """Check that a module made with dropout 0 is not random.

    Raises:
        Wrong: two calls differ.
    """
    first, second = ours(x), ours(x)
    if isinstance(first, Tensor) and isinstance(second, Tensor) and not same(first, second):
        raise Wrong("random")


def check_dropout(
    make: Callable[[float], Any], values: Callable[[Any, Tensor], list[Tensor]], width: int, after: str = ""
) -> None:
    """Check where dropout stands, with sequences of one token: the only weight is 1, or dropped.

    Args:
        make: the reader's module for a rate.
        values: the module's values of each head for (B, 1, C), (B, 1, D) each, in the order of the output.
        width: C.
        after: the name of a linear layer after the concatenated heads, which the check replaces by the identity.

    Raises:
        Wrong: there is no dropout, or it is used in evaluation, or it is not on the weights.
    """
    ours, x = make(RATE), hidden(MANY, 1, width, scale=3)
    if after:
        setattr(ours, after, nn.Identity())
    value = torch.stack(values(ours, x), dim=-2)  # (B, 1, H, D)
    with torch.no_grad():
        ours.eval()
        quiet = require_tensor(ours(x))
        require_shape(quiet, (MANY, 1, value.shape[-2] * value.shape[-1]))
        if not same(quiet.view(value.shape), value):
            raise Wrong("dropout-in-eval")
        ours.train()
        noisy = require_tensor(ours(x)).view(value.shape)
    dropped = noisy == 0  # (B, 1, H, D)
    if not dropped.any():
        raise Wrong("no-dropout")
    if not same(dropped.float().amin(-1), dropped.float().amax(-1)):
        raise Wrong("dropout-on-output")
