"""The texts of the ladder in Korean and English, read from words.toml in this folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jumok.course.words import Language


@cache
def words() -> Mapping[str, Mapping[str, Any]]:
    """All texts: {language: {key: text, "columns": list, "reasons": {rung: {"helps", "hurts"}}}}."""
    return tomllib.loads(resources.files("jumok.course.ladder").joinpath("words.toml").read_text(encoding="utf-8"))


def say(key: str, language: Language, **values: object) -> str:
    """The text of a key, with its braces filled in."""
    sentence: str = words()[language][key]
    return sentence.format(**values)
