"""Texts of the course in both languages. They stand in TOML files beside what they describe, as `ko` and `en`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Language = Literal["ko", "en"]
LANGUAGES: tuple[Language, ...] = ("ko", "en")


@dataclass(frozen=True)
class Words:
    """A text in both languages. Both have the same fields of `str.format`."""

    ko: str
    en: str

    def said(self, language: Language, **values: object) -> str:
        """Return the text in one language with its fields filled in. Without values, braces are plain characters."""
        text = self.ko if language == "ko" else self.en
        given = {name: value.said(language) if isinstance(value, Words) else value for name, value in values.items()}
        return text.format(**given) if given else text

    def filled(self, **values: object) -> Words:
        """Return the text in both languages with its fields filled in."""
        return Words(self.said("ko", **values), self.said("en", **values))


def plain(text: str) -> str:
    """Return text from outside with the signs of Markdown and HTML escaped, so that it is shown as it is."""
    return re.sub(r"([\\`*_\[\]<>#|~&!])", r"\\\1", text)


@cache
def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, read once."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def words_in(path: Path, *tables: str) -> dict[str, Words]:
    """Return the texts of a table in a TOML file by name. tables: the way to the table, from the outermost."""
    found = read_toml(path)
    for table in tables:
        found = found.get(table, {})
    return {name: Words(entry["ko"], entry["en"]) for name, entry in found.items()}
