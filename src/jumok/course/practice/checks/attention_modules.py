"""What the checks of attention modules have in common: their parameters, and where dropout stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Wrong,
    compare,
    hidden,
    require,
    require_shape,
    require_tensor,
    result_of,
    same,
)
from jumok.course.practice.parameters import copy_parameters, fill, require_gradients

RATE = 0.5
MANY = 64  # samples: the chance that all of them are dropped, or none, is 2^-64


def copy_all(source: nn.Module, target: nn.Module) -> None:
    """Give the production module hidden parameters, and copy them into the reader's, which has no others.

    Raises:
        Wrong: one is missing, has another shape, or there is another one.
    """
    fill(source)
    copy_parameters(source, target)
    theirs = dict(source.named_parameters())
    for name, _ in target.named_parameters():
        require(name in theirs, "bias" if name.endswith("_proj.bias") else "extra-parameter", name=name)


def compare_module(ours: nn.Module, right: Tensor, *inputs: Tensor) -> None:
    """Compare the output of the reader's module, made with dropout 0, with the right one.

    Raises:
        Wrong: it is another one, is random, or its gradient does not reach all parameters.
    """
    given, again = result_of(ours, *inputs), ours(*inputs)
    if isinstance(given, Tensor) and isinstance(again, Tensor) and not same(given, again):
        raise Wrong("random")
    compare(given, right)
    require_gradients(given, ours)


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
