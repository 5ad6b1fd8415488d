"""Templates of what is said: one notation writes a sentence and makes the regular expression that accepts it.

- `[해요|해]` is the polite and the casual form.
- `(가장|제일)` are alternatives. A writer chooses one; `(|아직 )` may be empty. A pattern accepts all.
- `{word}` is a value; `{word:은/는}` adds the particle that fits it (`jumok.text.hangul.josa`), and `{word:is}` the
  copula: 사과예요, 사과야. A pattern also accepts 사과입니다 and the word alone. `{word:past}` is the stem of
  the past of a verb in its form 해: 먹어, 먹었.
- A full stop or an exclamation mark is written as it stands. A pattern accepts either or none, and a comma or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jumok.text.hangul import join, josa, split

Values = Mapping[str, str | Sequence[str]]
"""Texts by the names of slots. A pattern accepts each text of a sequence; the first is written."""

COPULAS = (("이에요/예요", "입니다/입니다", "/"), ("이야/야", "/"))  # polite, casual; the first is written
PUNCTUATION = {".": "[.!]?", "!": "[.!]?", ",": ",?", "?": "[?]?", "+": "[+]"}


@dataclass(frozen=True)
class Slot:
    """A place for a value; the first of `pairs` is the particle that is written, all of them are accepted."""

    name: str
    pairs: tuple[str, ...]


Choice = tuple["Parsed", ...]
Parsed = tuple["str | Slot | Choice", ...]


@cache
def parse(template: str, casual: bool) -> Parsed:
    """Return the parts of a template in one register."""
    parsed, rest = _sequence(template, casual)
    assert not rest, template
    return parsed


def say(template: str, casual: bool, values: Values, choose: Callable[[int], int]) -> str:
    """Return a sentence. choose: returns the number of the alternative to write, of so many."""
    return _say(parse(template, casual), values, choose)


def pattern(templates: Iterable[str], casual: bool, values: Values) -> str:
    """Return a regular expression for all sentences of the templates."""
    return "|".join(_pattern(parse(template, casual), values) for template in templates)


def _sequence(text: str, casual: bool) -> tuple[Parsed, str]:
    """Parse `text` up to a bar or a closing bracket; return the parts and the rest."""
    parts: list[str | Slot | Choice] = []
    while text and text[0] not in "|])":
        opening, text = text[0], text[1:]
        if opening == "{":
            field, _, text = text.partition("}")
            name, colon, pair = field.partition(":")
            pairs = COPULAS[casual] if pair == "is" else (pair,) if colon else ()
            parts.append(Slot(name, pairs))
        elif opening in "[(":
            options, bar = [], "|"
            while bar == "|":
                option, text = _sequence(text, casual)
                options.append(option)
                bar, text = text[0], text[1:]
            parts += options[casual] if opening == "[" else [tuple(options)]
        else:
            literal = re.match(r"[^\[\](){}|]*", text)
            assert literal is not None
            parts.append(opening + literal[0])
            text = text[literal.end() :]
    return tuple(parts), text


def _say(parsed: Parsed, values: Values, choose: Callable[[int], int]) -> str:
    text = ""
    for part in parsed:
        if isinstance(part, str):
            text += part
        elif isinstance(part, Slot):
            value = values[part.name]
            word = value if isinstance(value, str) else value[0]
            text += _inflected(word, part.pairs[0]) if part.pairs else word
        else:
            text += _say(part[choose(len(part))], values, choose)
    return text


def _pattern(parsed: Parsed, values: Values) -> str:
    found = ""
    for part in parsed:
        if isinstance(part, str):
            found += "".join(PUNCTUATION.get(char, char) for char in part)
        elif isinstance(part, Slot):
            value = values[part.name]
            words = (value,) if isinstance(value, str) else value
            texts = [_inflected(word, pair) for word in words for pair in part.pairs or ("/",)]
            found += _either(texts)
        else:
            found += _either([_pattern(option, values) for option in part])
    return found


def _inflected(word: str, pair: str) -> str:
    """Return a word with its particle, or the stem of the past of a verb: 먹어, 먹었."""
    return word[:-1] + join(*split(word[-1])[:2], "ㅆ") if pair == "past" else josa(word, pair)


def _either(patterns: Sequence[str]) -> str:
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"
