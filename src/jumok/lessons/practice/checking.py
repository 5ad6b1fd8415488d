"""The vocabulary of the checks: the reader's code, comparisons that explain a difference, and mistakes by name.

A check is a generator. It yields `Words` for each thing that is right and raises `Wrong` at the first that is not:

    def softmax(code: Code) -> Steps:
        function = code.function("softmax")
        scores = hidden(3, 5, 7)
        compare(function(scores.clone()), scores.softmax(-1), Mistake("dimension", scores.softmax(-2), Words(...)))
        yield Words("가중치가 맞습니다.", "The weights are right.")

A mistake is recognised by what it computes: the result of the reader's code equals the result of the mistake.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from jumok.lessons.practice.course import Words

Steps = Iterator[Words]
TOLERANCE = 1e-5


class Wrong(Exception):
    """Something is not right. mistake: its name if it is a known one."""

    def __init__(self, words: Words, *, mistake: str | None = None, **values: object) -> None:
        super().__init__(words.said("en", **values))
        self.words = Words(words.said("ko", **values), words.said("en", **values))
        self.mistake = mistake


@dataclass(frozen=True)
class Mistake:
    """A known mistake. value: what it computes, or a test of a result; words: why it is wrong."""

    name: str
    value: Tensor | Callable[[Tensor], bool]
    words: Words
    values: dict[str, object] = field(default_factory=dict)  # for the fields of the words


class Code:
    """The reader's module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def function(self, name: str) -> Callable[..., Any]:
        """The function of that name.

        Raises:
            Wrong: it is missing, or not a function.
        """
        found = getattr(self._module, name, None)
        if not callable(found):
            raise Wrong(
                Words(
                    "함수 {name}이(가) 없습니다. 파일에 있던 이름과 인자를 그대로 두세요.",
                    "The function {name} is missing. Keep the name and the arguments that the file came with.",
                ),
                name=name,
            )
        return found

    def module(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """An object of the reader's nn.Module class of that name, on hidden arguments.

        Raises:
            Wrong: the class is missing, not an nn.Module, or does not call super().__init__().
        """
        found = getattr(self._module, name, None)
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            raise Wrong(
                Words(
                    "nn.Module을 상속한 클래스 {name}이(가) 없습니다. 파일에 있던 이름을 그대로 두세요.",
                    "The class {name}(nn.Module) is missing. Keep the name that the file came with.",
                ),
                name=name,
            )
        made = found(*args, **kwargs)
        if "_parameters" not in vars(made):  # nn.Module.__init__ makes it
            raise Wrong(NO_SUPER_INIT, mistake="no-super-init")
        return made


NO_SUPER_INIT = Words(
    "__init__의 첫 줄에 super().__init__()이 있어야 합니다.",
    "super().__init__() must be the first line of __init__.",
)
OTHER_DEVICE = Words(
    "텐서 두 개가 서로 다른 장치에 있게 됩니다. torch.ones, torch.rand, torch.arange 등은 텐서를 CPU에 만들기 때문에 "
    "모델을 GPU로 옮기면 오류가 납니다. x의 장치로 옮기거나(.to(x.device)) 처음부터 그곳에 만드세요(device=x.device, "
    "torch.rand_like(x)).",
    "Two tensors are on different devices. torch.ones, torch.rand, torch.arange and the like make a tensor on the CPU, "
    "and a model on a GPU then fails. Move it to the device of x (.to(x.device)), or make it there (device=x.device, "
    "torch.rand_like(x)).",
)


def require_one_device(module: nn.Module, *inputs: Tensor) -> None:
    """Check that a module works where it and its inputs are not on the CPU: on the device "meta", without values.

    Raises:
        Wrong: it mixes devices, or its result is on another one.
    """
    away = [x.to("meta") for x in inputs]
    try:
        result = copy.deepcopy(module).to("meta")(*away)
    except (RuntimeError, NotImplementedError) as error:
        if "device" not in str(error):
            return  # an operation that "meta" does not have
        raise Wrong(OTHER_DEVICE, mistake="device") from error
    require(result.device == away[0].device, OTHER_DEVICE, mistake="device")


def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that must leave its arguments as they are.

    Raises:
        Wrong: it changed a tensor among the arguments.
    """
    before = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    result = function(*arguments)
    for old, new in zip(before, arguments, strict=True):
        if isinstance(old, Tensor) and not same(new, old):
            raise Wrong(
                Words(
                    "받은 텐서를 제자리에서 바꾸었습니다(+=, *=, 또는 이름이 _로 끝나는 메서드). 같은 텐서를 쓰는 다른 "
                    "코드의 값까지 달라집니다. x = x + y처럼 새 텐서를 만드세요.",
                    "The code changes its argument in place (+=, *=, or a method whose name ends in _). All other code "
                    "that uses this tensor then sees other values. Make a new tensor, as in x = x + y.",
                ),
                mistake="in-place",
            )
    return result


def hidden(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normally distributed numbers that the reader does not see."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def compare(given: object, right: Tensor, *mistakes: Mistake, tolerance: float = TOLERANCE, letters: str = "") -> None:
    """Compare a result with the right one. letters: what the dimensions mean, such as "(B, T, C)".

    Raises:
        Wrong: with the name of the mistake whose value equals `given`, or else with the first difference: no tensor,
            another shape, NaN, another type, or the entry that is furthest off.
    """
    tensor = require_tensor(given)
    for mistake in mistakes:
        made = same(tensor, mistake.value, tolerance) if isinstance(mistake.value, Tensor) else mistake.value(tensor)
        if made and not same(tensor, right, tolerance):
            raise Wrong(mistake.words, mistake=mistake.name, **mistake.values)
    require_shape(tensor, tuple(right.shape), letters)
    if tensor.isnan().any() and not right.isnan().any():
        raise Wrong(
            Words(
                "결과에 NaN이 있습니다. 0을 0으로 나누었거나, 무한대에 0을 곱했거나, 무한대에서 무한대를 뺐거나, exp가 "
                "넘쳤습니다.",
                "The result contains NaN: 0 / 0, 0 times infinity, infinity minus infinity, or an exp that overflowed.",
            )
        )
    if right.dtype is torch.bool and tensor.dtype is not torch.bool:
        raise Wrong(NOT_BOOLEAN, mistake="not-boolean")
    if tensor.is_floating_point() != right.is_floating_point():
        raise Wrong(
            Words(
                "결과의 자료형이 {given}입니다. 필요한 자료형은 {right}입니다.",
                "The result has type {given}; it should be {right}.",
            ),
            given=tensor.dtype,
            right=right.dtype,
        )
    if not same(tensor, right, tolerance):
        _explain_entries(tensor.double(), right.double(), tolerance, boolean=right.dtype is torch.bool)


def _explain_entries(given: Tensor, right: Tensor, tolerance: float, *, boolean: bool) -> None:
    """Raise Wrong: how many entries differ, in which indices if not everywhere, and the one that is furthest off."""
    gap = (given - right).abs().nan_to_num(float("inf"))
    gap[given == right] = 0  # infinity minus infinity is NaN
    if not gap.dim():
        words = Words(
            "결과가 {given:.4g}입니다. 맞는 값은 {right:.4g}입니다.",
            "The result is {given:.4g}; it should be {right:.4g}.",
        )
        raise Wrong(words, given=given.item(), right=right.item())
    place = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    wrong = ~torch.isclose(given, right, rtol=tolerance, atol=tolerance, equal_nan=True)
    ko = en = ""
    for dim in range(gap.dim()):
        found = wrong.movedim(dim, 0).flatten(1).any(1).nonzero().flatten().tolist()
        if len(found) < gap.shape[dim] and len(found) <= 3:
            listed = ", ".join(map(str, found))
            ko += f" 틀린 값은 모두 차원 {dim}의 {listed}번에 있습니다."
            en += f" All wrong entries are at index {listed} of dimension {dim}."
    raise Wrong(
        Words(
            "값 {total}개 중 {count}개가 틀립니다. 위치 {place}의 값이 {given}입니다. 맞는 값은 {right}입니다.{ko}",
            "{count} of {total} entries are wrong. The entry at {place} is {given}; it should be {right}.{en}",
        ),
        count=int(wrong.sum()),
        total=wrong.numel(),
        place=place,
        given=_entry(given[tuple(place)], boolean),
        right=_entry(right[tuple(place)], boolean),
        ko=ko,
        en=en,
    )


def _entry(value: Tensor, boolean: bool) -> str:
    return str(bool(value)) if boolean else f"{value.item():.4g}"


def any_of(*values: Tensor) -> Callable[[Tensor], bool]:
    """A test of a result, for `Mistake`: whether it equals one of these values."""
    return lambda result: any(same(result, value) for value in values)


NOT_BOOLEAN = Words(
    "마스크는 True와 False로 된 텐서(bool)여야 합니다. 1과 0으로 된 텐서는 mask == 1로 바꾸세요.",
    "A mask must be a tensor of True and False (bool). Turn a tensor of ones and zeros into one with mask == 1.",
)


def require_tensor(given: object) -> Tensor:
    """The result as a tensor.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if given is None:
        raise Wrong(
            Words(
                "함수가 None을 돌려줍니다. return이 빠졌습니다.", "The function returns None: the `return` is missing."
            ),
            mistake="no-return",
        )
    if isinstance(given, tuple | list):
        raise Wrong(
            Words(
                "값 {count}개를 {kind}(으)로 돌려줍니다. 텐서 하나만 돌려주세요.",
                "The function returns {count} values as a {kind}. Return one tensor.",
            ),
            mistake="several-values",
            count=len(given),
            kind=type(given).__name__,
        )
    if not isinstance(given, Tensor):
        raise Wrong(
            Words("결과가 {kind}입니다. 텐서여야 합니다.", "The result is of type {kind}; it should be a tensor."),
            kind=type(given).__name__,
        )
    return given


def require_shape(tensor: Tensor, shape: tuple[int, ...], letters: str = "") -> None:
    """Check a shape. letters: what the dimensions mean, such as "(B, T, C)".

    Raises:
        Wrong: the shape is another one.
    """
    if tuple(tensor.shape) != shape:
        raise Wrong(
            Words(
                "결과의 모양이 {given}입니다. {right}{letters}이어야 합니다.",
                "The result has the shape {given}; it should be {right}{letters}.",
            ),
            given=tuple(tensor.shape),
            right=shape,
            letters=f" = {letters}" if letters else "",
        )


def require(condition: bool, words: Words, *, mistake: str | None = None, **values: object) -> None:
    """Check a condition.

    Raises:
        Wrong: it is false.
    """
    if not condition:
        raise Wrong(words, mistake=mistake, **values)


def require_earlier(slug: str, given: object, right: Tensor) -> None:
    """Check a part that comes from an earlier exercise, which may be the reader's own.

    Raises:
        Wrong: its result is another one.
    """
    require(
        isinstance(given, Tensor) and same(given, right),
        Words(
            "{slug} 파일의 클래스가 다른 결과를 냅니다. `jumok learn check {slug}`로 그 파일을 먼저 확인하세요.",
            "The class of your file {slug} gives another result. Check that file first: `jumok learn check {slug}`.",
        ),
        mistake="earlier-exercise",
        slug=slug,
    )


def require_number(given: object) -> float:
    """The result as a number; a tensor with one entry counts as one.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if isinstance(given, int | float):
        return float(given)
    if isinstance(given, Tensor) and given.numel() == 1:
        return float(given)
    if given is None:
        require_tensor(given)
    raise Wrong(
        Words("결과가 {kind}입니다. 수 하나여야 합니다.", "The result is of type {kind}; it should be one number."),
        kind=type(given).__name__,
    )


def require_tensors(given: object, count: int) -> tuple[Tensor, ...]:
    """The result as a tuple of so many tensors.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if given is None:
        require_tensor(given)
    kind = type(given).__name__
    if not (isinstance(given, tuple | list) and len(given) == count and all(isinstance(one, Tensor) for one in given)):
        raise Wrong(
            Words(
                "결과가 {kind}입니다. 쉼표로 나눈 텐서 {count}개를 돌려주어야 합니다.",
                "The result is of type {kind}; return {count} tensors, with commas between them.",
            ),
            kind=f"{kind} ({', '.join(type(one).__name__ for one in given)})"
            if isinstance(given, tuple | list)
            else kind,
            count=count,
        )
    return tuple(given)


def raises(words: Words, call: Callable[[], Any], *, mistake: str, text: str | tuple[str, ...]) -> Any:
    """The result of a call, whose known exception is explained.

    Args:
        text: a part of "TypeOfTheException: its message", or several of which one must occur.

    Raises:
        Wrong: the call raised it. Other exceptions pass.
    """
    try:
        return call()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        if any(part in said for part in ([text] if isinstance(text, str) else text)):
            raise Wrong(words, mistake=mistake) from error
        raise


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
                    "결과는 맞지만 {name}에 그래디언트가 전달되지 않아 학습되지 않습니다. 계산 중에 detach(), .data, "
                    "item(), torch.no_grad()를 쓰지 마세요.",
                    "The result is right, but no gradient reaches {name}, so it is not trained. Do not use detach(), "
                    ".data, item() or torch.no_grad() in the computation.",
                ),
                mistake="no-gradient",
                name=name,
            )


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
            "{name}이(가) nn.Parameter입니다. 여기에서는 파라미터를 가진 층이어야 합니다. 클래스의 설명에 적힌 층을 "
            "만드세요.",
            "{name} is an nn.Parameter. Here it should be a layer, which has parameters: create the one that the "
            "docstring of the class names.",
        )
        return Wrong(words, mistake="no-layer", name=attribute)
    if isinstance(found, Tensor):
        words = Words(
            "{name}이(가) 보통의 텐서입니다. nn.Parameter로 감싸지 않으면 parameters()에 들어가지 않아 학습되지 "
            "않습니다.",
            "{name} is a plain tensor. Without nn.Parameter it is not in parameters(), and the optimizer does not "
            "train it.",
        )
        return Wrong(words, mistake="plain-tensor", name=attribute)
    if isinstance(found, list | tuple):
        words = Words(
            "{name}이(가) 파이썬 리스트입니다. 리스트 안의 모듈은 parameters()에 들어가지 않아 학습되지 않습니다. "
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
        "파라미터 {name}이(가) 없습니다. 층의 이름은 클래스의 설명에 적힌 대로 지으세요. {inside}에 있는 것: {found}.",
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


def same(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether two tensors have the same shape and, up to the tolerance, the same values. NaN equals NaN."""
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
