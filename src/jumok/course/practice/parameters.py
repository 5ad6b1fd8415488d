"""The parameters of a reader's module: copied from the production module, or filled with hidden values; gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import Wrong, hidden, require


def copy_parameters(source: nn.Module, target: nn.Module, renamed: Mapping[str, str] | None = None) -> None:
    """Copy the parameters of the production module into the reader's. renamed: production name -> reader's name.

    Raises:
        Wrong: the reader's module lacks one, or it has another shape.
    """
    theirs = dict(target.named_parameters())
    for name, value in source.named_parameters():
        other = (renamed or {}).get(name, name)
        if other not in theirs:
            raise _missing(target, other)
        _require_parameter_shape(other, tuple(theirs[other].shape), tuple(value.shape))
        with torch.no_grad():
            theirs[other].copy_(value)


def fill(module: nn.Module, *, seed: int = 0, scale: float = 0.4) -> None:
    """Give all parameters hidden values, also those that are initialised with zeros or ones."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(hidden(*parameter.shape, seed=1000 * seed + number, scale=scale))


def _missing(module: nn.Module, name: str) -> Wrong:
    """Return why a parameter is missing."""
    attribute, last = name.split(".")[0], name.rsplit(".", 1)[-1]
    found, parameters = getattr(module, attribute, None), dict(module.named_parameters())
    if isinstance(found, nn.Parameter):
        return Wrong("no-layer", name=attribute)
    if isinstance(found, Tensor):
        return Wrong("plain-tensor", name=attribute)
    if isinstance(found, list | tuple):
        return Wrong("plain-list", name=attribute)
    if not parameters:
        return Wrong("nothing-registered", name=attribute)
    if last == "bias" and name.removesuffix("bias") + "weight" in parameters:
        return Wrong("no-bias", name=name.removesuffix(".bias"))
    owner, inside = module, ""
    for part in name.split(".")[:-1]:
        if part not in dict(owner.named_children()):
            break
        owner, inside = owner.get_submodule(part), f"{inside}.{part}".strip(".")
    has = [child for child, _ in owner.named_children()] + [one for one, _ in owner.named_parameters(recurse=False)]
    inside = inside or type(module).__name__
    return Wrong("missing-parameter", name=name, inside=inside, found=", ".join(has) or "-")


def _require_parameter_shape(name: str, given: tuple[int, ...], right: tuple[int, ...]) -> None:
    if len(set(right)) > 1 and given == right[::-1]:
        raise Wrong("sizes-exchanged", name=name, given=given, right=right)
    require(given == right, "parameter-shape", name=name, given=given, right=right)


def require_gradients(result: Tensor, module: nn.Module) -> None:
    """Check that the gradient of a result reaches all parameters of a module.

    Raises:
        Wrong: it does not.
    """
    parameters = dict(module.named_parameters())
    found: list[Tensor | None] = [None] * len(parameters)
    if result.requires_grad:
        found = list(torch.autograd.grad(result.sum(), list(parameters.values()), allow_unused=True))
    for name, gradient in zip(parameters, found, strict=True):
        if gradient is None:
            raise Wrong("no-gradient", name=name)
