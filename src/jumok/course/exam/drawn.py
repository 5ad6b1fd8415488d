"""A question with its numbers drawn, and how numbers are written in questions and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

from torch import Tensor

from jumok.course.words import Words

LARGEST_DENOMINATOR = 10_000
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Drawn:
    """A question with its numbers.

    Fields:
        question, answer: Markdown.
        given: the numbers of the question, by name.
        value: the answer as exact numbers: integers, fractions, strings, and lists of these.
    """

    question: Words
    answer: Words
    given: Mapping[str, Any]
    value: Any


@dataclass(frozen=True)
class Kind:
    """A kind of question. chapter: the chapter that explains it. draw: draws the numbers and computes the answer."""

    title: Words
    chapter: int
    draw: Callable[[Random], Drawn]


def exact(numbers: Tensor) -> Any:
    """The fractions that float64 numbers stand for, in nested lists of the same shape.

    Raises:
        ValueError: a number is not close to a fraction with a denominator of at most 10,000.
    """
    if numbers.dim():
        return [exact(row) for row in numbers]
    number = float(numbers)
    fraction = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    if abs(number - float(fraction)) > 1e-9 * max(1.0, abs(number)):
        raise ValueError(f"{number!r} is not a simple fraction")
    return fraction


def vector(numbers: Sequence[object]) -> str:
    """(1, 5/2, -3)."""
    return f"({', '.join(str(number) for number in numbers)})"


def rows(name: str, vectors: Sequence[Sequence[object]]) -> str:
    """A Markdown list: x₀ = (1, 2), x₁ = (3, 4)."""
    return "\n".join(f"- {name}{subscript(i)} = {vector(numbers)}" for i, numbers in enumerate(vectors))


def table(cells: Sequence[Sequence[object]]) -> str:
    """A matrix in a fence, in columns."""
    texts = [[str(cell) for cell in row] for row in cells]
    width = max(len(text) for row in texts for text in row)
    return "```text\n" + "\n".join("  ".join(text.rjust(width) for text in row) for row in texts) + "\n```"


def subscript(number: int) -> str:
    """10 -> "₁₀"."""
    return str(number).translate(_SUBSCRIPTS)


def integers(rng: Random, count: int, low: int, high: int) -> list[int]:
    """Integers from low to high, both included; not all zero."""
    while True:
        numbers = [rng.randint(low, high) for _ in range(count)]
        if any(numbers):
            return numbers


def logs(numbers: Sequence[int]) -> str:
    """(ln 2, ln 1, ln 5)."""
    return vector([f"ln {number}" for number in numbers])


def same(text: str) -> Words:
    """A text that is the same in both languages."""
    return Words(text, text)
