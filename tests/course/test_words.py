"""The texts of the course: both languages say them, with the same fields."""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jumok
from jumok.course.words import Words

COURSE = Path(jumok.__file__).parent / "course"


def texts(value: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """The name of each text in a table, its Korean and its English."""
    if {"ko", "en"} <= value.keys():
        pairs = (value["ko"], value["en"])
        if isinstance(pairs[0], dict):  # the commands under the list of chapters
            assert all(pairs), name
            return
        lists = [pair if isinstance(pair, list) else [pair] for pair in pairs]
        yield from ((name, *pair) for pair in zip(*lists, strict=True))
        return
    for key, inner in value.items():
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, dict):
                yield from texts(each, f"{name}.{key}")


def fields(text: str) -> set[tuple[str, str]]:
    return {(name, form or "") for _, name, form, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize(
    "path", [path for path in COURSE.rglob("*.toml") if path.parent.name != "hints"], ids=lambda path: path.name
)
def test_both_languages_say_the_same(path: Path) -> None:
    """Hints are code in part, and have no fields."""
    found = list(texts(tomllib.loads(path.read_text(encoding="utf-8")), path.stem))
    assert found
    for name, ko, en in found:
        assert fields(ko) == fields(en), name
        assert not re.search("[가-힣]", en), name
        assert ko.strip(), name


def test_fields_are_filled_in_both_languages() -> None:
    words = Words("{name}: {n:.1f}개", "{n:.1f} of {name}")
    assert words.filled(name=Words("개", "dog"), n=1) == Words("개: 1.0개", "1.0 of dog")
    assert Words("{}", "{}").said("ko") == "{}"
