"""A small grammar whose sentences can be written, listed and scored, all by one interpreter.

Templates are Korean with slots in braces, in the syntax of `str.format`:

- `{hero}` is a *word*: chosen at its first mention in a tale, recalled at every later one;
- `{hero:은/는}` adds the particle that fits the word chosen (`jumok.text.hangul.josa`);
- `{weather.wear}` recalls another form of a word already chosen: what one wears in that weather;
- `{closing}`, if it is a *phrase*, is replaced by one of its own templates, chosen anew at each mention.

All options of a choice are equally likely. A derivation therefore has probability 1/ways for an integer `ways`, the
product of the sizes of its choices, and if the grammar is unambiguous its text carries exactly log(ways) nats.

A sufficient condition for that, which keeps decoding local: the options of each choice form a prefix-free code. Then
the text read so far settles each choice in turn. The tests prove it for the grammar of the stories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import NamedTuple

from jumok.errors import CorpusError
from jumok.text.hangul import josa


@dataclass(frozen=True)
class Word:
    """A mention of a word: what is written there for each of its options."""

    slot: str
    texts: tuple[str, ...]
    recalled: bool  # a further form: the word must have been chosen before


@dataclass(frozen=True)
class Phrase:
    """A mention of a phrase, to be replaced by one of the templates of that name."""

    slot: str


Token = str | Word | Phrase
Template = tuple[Token, ...]


class _Place(NamedTuple):
    """Where the interpreter is: before `token` of `template`, and where it goes on after that one's end."""

    template: Template
    token: int
    back: _Place | None


class Derivation(NamedTuple):
    """A text and the product of the sizes of the choices that led to it."""

    text: str
    ways: int


class Grammar:
    """Words and phrases, read from two tables.

    `words` maps a slot, and after a space the names of its further forms, to its options: `{"weather wear":
    "눈이 내리는 = 털모자를 쓰고 | 비가 오는 = 우산을 쓰고"}`. `phrases` maps a slot to its templates, separated by `|`.
    The phrase `start` is a whole text. A slot that neither table has is a `CorpusError`.
    """

    def __init__(self, words: Mapping[str, str], phrases: Mapping[str, str], start: str) -> None:
        self._forms = {field: column for header, table in words.items() for field, column in _columns(header, table)}
        self.templates = {
            slot: [self._parse(text, phrases) for text in entries(table)] for slot, table in phrases.items()
        }
        self._start = _Place((Phrase(start),), 0, None)

    def _parse(self, template: str, phrases: Mapping[str, str]) -> Template:
        tokens: list[Token] = []
        for literal, field, pair, _ in Formatter().parse(template):
            if literal:
                tokens.append(literal)
            if field is None:
                continue
            if field in phrases and not pair:
                tokens.append(Phrase(field))
            elif field in self._forms:
                texts = self._forms[field]
                slot, dot, _form = field.partition(".")
                tokens.append(Word(slot, tuple(josa(t, pair) for t in texts) if pair else texts, bool(dot)))
            else:
                raise CorpusError(
                    "the template {template!r} has the slot {field!r}, which the grammar does not know",
                    template=template,
                    field=field,
                )
        return tuple(tokens)

    def derive(self, choose: Callable[[int], Iterable[int]], observed: str | None = None) -> Iterator[Derivation]:
        """Run the grammar; `choose(n)` gives the options, of 0 to n - 1, to follow at each choice.

        `range` follows all of them and so lists every derivation; one random number writes a text. With `observed`,
        only the derivations of exactly that text are given, and a branch ends where it departs from it.
        """
        for derivation in self._run(self._start, "", {}, 1, choose, observed):
            if observed is None or derivation.text == observed:
                yield derivation

    def _run(
        self,
        place: _Place,
        text: str,
        chosen: dict[str, int],
        ways: int,
        choose: Callable[[int], Iterable[int]],
        observed: str | None,
    ) -> Iterator[Derivation]:
        template, index, back = place
        while True:
            while index == len(template):
                if back is None:
                    yield Derivation(text, ways)
                    return
                template, index, back = back
            token = template[index]
            index += 1
            if isinstance(token, str):
                written = token
            elif isinstance(token, Phrase):
                options = self.templates[token.slot]
                after = _Place(template, index, back)
                for option in choose(len(options)):
                    inside = _Place(options[option], 0, after)
                    yield from self._run(inside, text, chosen, ways * len(options), choose, observed)
                return
            elif token.slot in chosen:
                written = token.texts[chosen[token.slot]]
            else:
                size = len(token.texts)
                after = _Place(template, index, back)
                for option in choose(size):
                    written = token.texts[option]
                    if observed is None or observed.startswith(written, len(text)):
                        known = {**chosen, token.slot: option}
                        yield from self._run(after, text + written, known, ways * size, choose, observed)
                return
            if observed is not None and not observed.startswith(written, len(text)):
                return
            text += written

    def measure(self) -> tuple[int, float]:
        """The exact number of derivations and their entropy in nats, the mean of log(ways).

        Raises `CorpusError` if anywhere in the grammar a further form of a word precedes the word itself: then a text
        might not tell which option was chosen.
        """

        @cache
        def rest(place: _Place, chosen: frozenset[str]) -> tuple[int, float]:
            template, index, back = place
            if index == len(template):
                return (1, 0.0) if back is None else rest(back, chosen)
            token = template[index]
            after = _Place(template, index + 1, back)
            if isinstance(token, Phrase):
                options = [rest(_Place(option, 0, after), chosen) for option in self.templates[token.slot]]
                mean = math.fsum(nats for _, nats in options) / len(options)
                return sum(count for count, _ in options), math.log(len(options)) + mean
            if isinstance(token, str) or token.slot in chosen:
                return rest(after, chosen)
            if token.recalled:
                raise CorpusError(
                    "a further form of the word {slot!r} precedes its first mention: {template}",
                    slot=token.slot,
                    template=template,
                )
            count, nats = rest(after, chosen | {token.slot})
            return count * len(token.texts), nats + math.log(len(token.texts))

        return rest(self._start, frozenset())


def entries(table: str) -> list[str]:
    """The entries of a table: separated by `|`, line breaks and indentation for the eye only."""
    return [" ".join(entry.split()) for entry in table.split("|")]


def _columns(header: str, table: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The forms of a word, each with the field that writes it: `weather`, then `weather.wear`."""
    slot, *further = header.split()
    rows = [[form.strip() for form in row.split("=")] for row in entries(table)]
    fields = [slot, *(f"{slot}.{form}" for form in further)]
    if any(len(row) != len(fields) for row in rows):
        raise CorpusError("each option of the word {slot!r} must have {count} forms", slot=slot, count=len(fields))
    return zip(fields, zip(*rows, strict=True), strict=True)
