"""The parameters of a reader's module: copied from the production module, or filled with hidden values; gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import Wrong, hidden, require
from jumok.course.practice.course import Words


def copy_parameters(source: nn.Module, target: nn.Module, names: dict[str, str]) -> None:
    """Copy parameters of the production module into the reader's. names: production name -> reader's name.

    Raises:
        Wrong: the reader's module lacks one, or it has another shape.
    """
    theirs = dict(target.named_parameters())
    for name, other in names.items():
        value = source.get_parameter(name)
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
    """Why a parameter is missing."""
    attribute, last = name.split(".")[0], name.rsplit(".", 1)[-1]
    found, parameters = getattr(module, attribute, None), dict(module.named_parameters())
    if isinstance(found, nn.Parameter):
        words = Words(
            "{name} 속성이 nn.Parameter입니다. 여기에서는 파라미터를 가진 층이어야 합니다. 클래스의 설명에 적힌 층을 "
            "만드세요.",
            "{name} is an nn.Parameter. Here it should be a layer, which has parameters: create the one that the "
            "docstring of the class names.",
        )
        return Wrong(words, mistake="no-layer", name=attribute)
    if isinstance(found, Tensor):
        words = Words(
            "{name} 속성이 보통의 텐서입니다. nn.Parameter로 감싸지 않으면 parameters()에 들어가지 않아 학습되지 "
            "않습니다.",
            "{name} is a plain tensor. Without nn.Parameter it is not in parameters(), and the optimizer does not "
            "train it.",
        )
        return Wrong(words, mistake="plain-tensor", name=attribute)
    if isinstance(found, list | tuple):
        words = Words(
            "{name} 속성이 파이썬 리스트입니다. 리스트 안의 모듈은 parameters()에 들어가지 않아 학습되지 않습니다. "
            "nn.ModuleList로 감싸세요.",
            "{name} is a Python list. The parameters of modules in a list are not in parameters(), and the optimizer "
            "does not train them. Use nn.ModuleList.",
        )
        return Wrong(words, mistake="plain-list", name=attribute)
    if not parameters:
        words = Words(
            "클래스에 파라미터가 하나도 없습니다. 층은 __init__에서 self.{name} = ...처럼 self에 대입해야 등록됩니다.",
            "The class has no parameters. Assign layers to self in __init__, as in self.{name} = ...: only then are "
            "they registered.",
        )
        return Wrong(words, mistake="nothing-registered", name=attribute)
    if last == "bias" and name.removesuffix("bias") + "weight" in parameters:
        words = Words(
            "{name}에 편향이 없습니다. 이 층에는 편향이 있어야 합니다. 층을 만들 때의 bias 인자를 확인하세요.",
            "{name} has no bias, and this layer needs one. Check the argument for the bias where the layer is created.",
        )
        return Wrong(words, mistake="no-bias", name=name.removesuffix(".bias"))
    owner, inside = module, ""
    for part in name.split(".")[:-1]:
        if part not in dict(owner.named_children()):
            break
        owner, inside = owner.get_submodule(part), f"{inside}.{part}".strip(".")
    has = [child for child, _ in owner.named_children()] + [one for one, _ in owner.named_parameters(recurse=False)]
    words = Words(
        "{name} 파라미터가 없습니다. 층의 이름은 클래스의 설명에 적힌 대로 지으세요. {inside}에 있는 것: {found}.",
        "The parameter {name} is missing. Give the layers the names in the docstring of the class. {inside} has: "
        "{found}.",
    )
    inside = inside or type(module).__name__
    return Wrong(words, mistake="missing-parameter", name=name, inside=inside, found=", ".join(has) or "-")


def _require_parameter_shape(name: str, given: tuple[int, ...], right: tuple[int, ...]) -> None:
    if len(set(right)) > 1 and given == right[::-1]:
        raise Wrong(
            Words(
                "{name}의 모양이 {given}입니다. {right}이어야 합니다. 두 크기가 바뀌었습니다. nn.Linear(입력, "
                "출력)의 weight는 (출력, 입력) 모양이고, nn.Embedding(행, 폭)의 weight는 (행, 폭) 모양입니다.",
                "{name} has the shape {given}; it should be {right}: the two sizes are exchanged. nn.Linear(inputs, "
                "outputs) has a weight of (outputs, inputs), and nn.Embedding(rows, width) one of (rows, width).",
            ),
            mistake="sizes-exchanged",
            name=name,
            given=given,
            right=right,
        )
    require(
        given == right,
        Words(
            "{name}의 모양이 {given}입니다. {right}이어야 합니다.",
            "{name} has the shape {given}; it should be {right}.",
        ),
        mistake="parameter-shape",
        name=name,
        given=given,
        right=right,
    )


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
            raise Wrong(
                Words(
                    "결과는 맞지만 {name}에 기울기가 전달되지 않아 학습되지 않습니다. 계산 중에 detach(), .data, "
                    "item(), torch.no_grad()를 쓰지 마세요.",
                    "The result is right, but no gradient reaches {name}, so it is not trained. Do not use detach(), "
                    ".data, item() or torch.no_grad() in the computation.",
                ),
                mistake="no-gradient",
                name=name,
            )
