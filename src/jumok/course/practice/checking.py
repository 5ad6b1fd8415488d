"""The vocabulary of the checks: the reader's code, comparisons that explain a difference, and texts by name.

A check is a generator. It yields what is right and raises `Wrong` at the first that is not:

    def softmax(code: Code) -> Steps:
        scores = hidden(3, 5, 7)
        compare(result_of(code.function("softmax"), scores), scores.softmax(-1))
        yield passed("rows-sum-to-one")

A check knows no mistakes. A known mistake is a change of our solution, and `child` recognises it: the check of the
changed solution ends at the same place with the same result as that of the reader's file. The changes and all texts
stand in TOML files, checks/PART.toml beside checks/PART.py, and checking.toml for what all parts use: [right.KEY],
[mistake.KEY] for known mistakes, [difference.KEY] for what is wrong in another way, and for each exercise
[change.SLUG] with KEY = [{"what stands in the solution" = "what the mistake puts there"}]. The key of a mistake is its
name; where two parts explain a mistake differently, the key is NAME/PART.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.differences import Finding, places, relation
from jumok.course.words import Words, words_in

HERE = Path(__file__).parent
TOLERANCE = 1e-5
FORMS = {"no-function", "no-class", "no-tensor", "no-tensors", "no-number", "dtype"}  # differences that say all


@cache
def texts(kind: str) -> dict[str, Words]:
    """Return all texts of a kind by key. kind: "right", "mistake" or "difference"."""
    found: dict[str, Words] = {}
    for path in (HERE / "checking.toml", *sorted((HERE / "checks").glob("*.toml"))):
        found |= words_in(path, kind)
    return found


def passed(key: str, **values: object) -> Words:
    """Return what is said about something that is right."""
    return texts("right")[key].filled(**values)


class Wrong(Exception):
    """Something is not right.

    Attributes:
        mistake: its name if it is a known one.
        is_value: whether values are wrong, and not a form.
        result, expected: of the reader's code, where that is wrong.
    """

    def __init__(self, key: str, result: object = None, expected: object = None, **values: object) -> None:
        super().__init__(key)
        self.key, self.values, self.result, self.expected = key, values, result, expected
        self.mistake = key.split("/")[0] if key in texts("mistake") else None
        self.is_value = self.mistake is None and key not in FORMS

    @property
    def words(self) -> Words:
        """What is said about it."""
        return (texts("mistake") | texts("difference"))[self.key].filled(**self.values)


class Different(Wrong):
    """Entries of a tensor differ from the right ones."""

    def __init__(self, given: Tensor, right: Tensor, tolerance: float) -> None:
        super().__init__("entries", given, right)
        self._tolerance = tolerance

    @property
    def words(self) -> Words:
        """What is said about it: it is computed when it is asked for."""
        assert isinstance(self.result, Tensor)
        assert isinstance(self.expected, Tensor)
        return _explain_entries(self.result.double(), self.expected.double(), self._tolerance, self.expected.dtype)


Steps = Iterator[Words]
Check = Callable[["Code"], Steps]
Checks = Mapping[str, Check]


def alike(one: BaseException, other: BaseException) -> bool:
    """Return whether two checks ended in the same way: with the same result in the same place, or the same error."""
    if isinstance(one, Wrong) and isinstance(other, Wrong):
        if one.result is None:
            return (one.key, one.values) == (other.key, other.values)
        return _equal(one.result, other.result) and _equal(one.expected, other.expected)
    return (type(one), str(one)) == (type(other), str(other))


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and same(a, b, 1e-4)
    try:
        return bool(a == b)
    except (ValueError, RuntimeError):  # of arrays and of lists of tensors, whose comparison is no bool
        return False


class Code:
    """The reader's module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function of that name.

        Raises:
            Wrong: it is missing, or not a function.
        """
        found = getattr(self._module, name, None)
        if not callable(found):
            raise Wrong("no-function", name=name)
        return found

    def module(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return an object of the reader's nn.Module class of that name, on hidden arguments.

        Raises:
            Wrong: the class is missing, not an nn.Module, or does not call super().__init__().
        """
        found = getattr(self._module, name, None)
        if not (isinstance(found, type) and issubclass(found, nn.Module)):
            raise Wrong("no-class", name=name)
        made = found(*args, **kwargs)
        if "_parameters" not in vars(made):  # nn.Module.__init__ makes it
            raise Wrong("no-super-init")
        return made


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
        raise Wrong("device") from error
    require(result.device == away[0].device, "device")


def results(
    name: str,
    right: Callable[..., Tensor],
    cases: Mapping[str, Iterable[tuple[Any, ...]]],
    *,
    letters: str = "",
    tolerance: float = TOLERANCE,
) -> Check:
    """Return a check that compares the results of a function with the right ones.

    Args:
        name: of the reader's function.
        right: the right function of the same arguments.
        cases: what is said after its arguments have given the right results -> these arguments.
        letters: what the dimensions of a result mean, such as "(B, T, C)".
    """

    def check(code: Code) -> Steps:
        for key, arguments in cases.items():
            for each in arguments:
                given = result_of(code.function(name), *each)
                compare(given, right(*each), letters=letters, tolerance=tolerance)
            yield passed(key)

    return check


def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call that must leave its arguments as they are.

    Raises:
        Wrong: it changed a tensor among the arguments.
    """
    given = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    result = function(*given)
    for old, new in zip(arguments, given, strict=True):
        if isinstance(old, Tensor) and not same(new, old):
            raise Wrong("in-place")
    return result


def hidden(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normally distributed numbers that the reader does not see."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def compare(given: object, right: Tensor, *, tolerance: float = TOLERANCE, letters: str = "") -> None:
    """Compare a result with the right one. letters: what the dimensions mean, such as "(B, T, C)".

    Raises:
        Wrong: with the first difference: no tensor, another shape, NaN, another type, or the entry furthest off.
    """
    try:
        tensor = require_tensor(given)
        require_shape(tensor, tuple(right.shape), letters)
        if tensor.isnan().any() and not right.isnan().any():
            raise Wrong("nan")
        if right.dtype is torch.bool and tensor.dtype is not torch.bool:
            raise Wrong("not-boolean")
        is_coarser = tensor.is_floating_point() and tensor.dtype.itemsize < right.dtype.itemsize
        if tensor.is_floating_point() != right.is_floating_point() or is_coarser:
            raise Wrong("dtype", given=tensor.dtype, right=right.dtype)
        if not same(tensor, right, tolerance):
            raise Different(tensor, right, tolerance)
    except Wrong as wrong:
        wrong.result, wrong.expected = given, right
        raise


def _explain_entries(given: Tensor, right: Tensor, tolerance: float, dtype: torch.dtype) -> Words:
    """Return how many entries differ, where, how they relate to the right ones, and the one furthest off."""
    gap = (given - right).abs().nan_to_num(float("inf"))
    gap[given == right] = 0  # infinity minus infinity is NaN
    is_boolean = dtype is torch.bool
    if not gap.dim():
        found = relation(given, right, tolerance)
        values = {"given": given.item(), "right": right.item(), "relation": _said([found] if found else [])}
        return texts("difference")["only-value"].filled(**values)
    place = (gap == gap.max()).nonzero()[0].tolist()  # torch.unravel_index imports sympy, which takes seconds
    wrong = ~torch.isclose(given, right, rtol=tolerance, atol=tolerance, equal_nan=True)
    findings = places(wrong)
    if not is_boolean and (found := relation(given, right, tolerance)) is not None:
        findings.append(found)
    return texts("difference")["entries"].filled(
        count=int(wrong.sum()),
        total=wrong.numel(),
        place=place,
        given=_entry(given[tuple(place)], is_boolean),
        right=_entry(right[tuple(place)], is_boolean),
        places=_said(findings),
    )


def _said(findings: list[Finding]) -> Words:
    """Return the sentences on a difference, each after a space."""
    said = [texts("difference")[key].filled(**values) for key, values in findings]
    return Words("".join(f" {each.ko}" for each in said), "".join(f" {each.en}" for each in said))


def _entry(value: Tensor, boolean: bool) -> str:
    return str(bool(value)) if boolean else f"{value.item():.4g}"


def require_tensor(given: object) -> Tensor:
    """Return the result as a tensor.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if given is None:
        raise Wrong("no-return")
    if isinstance(given, tuple | list):
        raise Wrong("several-values", count=len(given), kind=type(given).__name__)
    if not isinstance(given, Tensor):
        raise Wrong("no-tensor", kind=type(given).__name__)
    return given


def require_shape(tensor: Tensor, shape: tuple[int, ...], letters: str = "") -> None:
    """Check a shape. letters: what the dimensions mean, such as "(B, T, C)".

    Raises:
        Wrong: the shape is another one.
    """
    if tuple(tensor.shape) != shape:
        raise Wrong("shape", given=tuple(tensor.shape), right=shape, letters=f" = {letters}" if letters else "")


def require(condition: bool, key: str, **values: object) -> None:
    """Check a condition. key: of what is said if it is false.

    Raises:
        Wrong: it is false.
    """
    if not condition:
        raise Wrong(key, **values)


def require_equal(result: object, expected: object, key: str, **values: object) -> None:
    """Compare a result that is no tensor with the right one. key: of what is said, with `given` and `right` in it.

    Raises:
        Wrong: they differ.
    """
    if result != expected:
        raise Wrong(key, result, expected, **({"given": result, "right": expected} | values))


def require_earlier(slug: str, given: object, right: Tensor) -> None:
    """Check a part that comes from an earlier exercise, which may be the reader's own.

    Raises:
        Wrong: its result is another one.
    """
    require(isinstance(given, Tensor) and same(given, right), "earlier-exercise", slug=slug)


def require_number(given: object) -> float:
    """Return the result as a number; a tensor with one entry counts as one.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if isinstance(given, int | float):
        return float(given)
    if isinstance(given, Tensor) and given.numel() == 1:
        return float(given)
    if given is None:
        require_tensor(given)
    raise Wrong("no-number", kind=type(given).__name__)


def require_tensors(given: object, count: int) -> tuple[Tensor, ...]:
    """Return the result as a tuple of so many tensors.

    Raises:
        Wrong: it is none; None usually means that `return` is missing.
    """
    if given is None:
        require_tensor(given)
    kind = type(given).__name__
    if not (isinstance(given, tuple | list) and len(given) == count and all(isinstance(one, Tensor) for one in given)):
        raise Wrong(
            "no-tensors",
            kind=f"{kind} ({', '.join(type(one).__name__ for one in given)})"
            if isinstance(given, tuple | list)
            else kind,
            count=count,
        )
    return tuple(given)


def raises(key: str, call: Callable[[], Any], *, text: str | tuple[str, ...]) -> Any:
    """Return the result of a call, whose known exception is explained.

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
            raise Wrong(key) from error
        raise


def same(a: Tensor, b: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether two tensors have the same shape and, up to the tolerance, the same values. NaN equals NaN."""
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
