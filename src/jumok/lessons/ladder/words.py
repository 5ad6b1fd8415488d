"""What the ladder says, in Korean and English; the sentences are in ladder.toml beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jumok.lessons.chapters import Language


@cache
def words() -> Mapping[str, Mapping[str, Any]]:
    """Everything: {language: {key: sentence, "columns": list, "reasons": {rung: {"helps", "hurts"}}}}."""
    return tomllib.loads(resources.files("jumok.lessons.ladder").joinpath("words.toml").read_text(encoding="utf-8"))


def say(key: str, language: Language, **values: object) -> str:
    """A sentence, its braces filled in."""
    sentence: str = words()[language][key]
    return sentence.format(**values)
