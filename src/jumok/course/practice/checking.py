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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.course import Words

Steps = Iterator[Words]
Checks = Mapping[str, Callable[["Code"], Steps]]
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
                    "{name} 함수가 없습니다. 파일에 있던 이름과 인자를 그대로 두세요.",
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
                    "nn.Module을 상속한 {name} 클래스가 없습니다. 파일에 있던 이름을 그대로 두세요.",
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
                "값 {count}개가 든 {kind}입니다. 텐서 하나만 돌려주세요.",
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


def same(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether two tensors have the same shape and, up to the tolerance, the same values. NaN equals NaN."""
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
