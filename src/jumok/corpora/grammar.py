"""A template grammar whose texts can be generated, enumerated and scored.

Templates are Korean text with slots in braces, in the syntax of `str.format`:

- `{hero}` is a *word*: it is chosen at its first occurrence in a tale and repeated at later ones;
- `{hero:은/는}` adds the particle that fits the word (`jumok.text.hangul.josa`);
- `{weather.wear}` is another form of a word that was chosen before: the clothes for that weather;
- `{closing}` is a *phrase*: it is replaced by one of its templates, chosen anew at each occurrence.

All options of a choice are equally likely. A derivation has the probability 1/ways, where `ways` is the product of the
numbers of options. If the grammar is unambiguous, the information content of a text is log(ways) nats.

The grammar is unambiguous if the options of each choice are a prefix-free code, because each choice then follows from
the text. The tests prove this for the grammar of the stories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import NamedTuple

from jumok.errors import CorpusError
from jumok.text.hangul import josa


@dataclass(frozen=True)
class Word:
    """An occurrence of a word: its text for each of the options."""

    slot: str
    texts: tuple[str, ...]
    recalled: bool  # another form of a word that was chosen before


@dataclass(frozen=True)
class Phrase:
    """An occurrence of a phrase, which is replaced by one of its templates."""

    slot: str


Token = str | Word | Phrase
Template = tuple[Token, ...]


class Derivation(NamedTuple):
    """A text, and the product of the numbers of options of its choices."""

    text: str
    ways: int


class Grammar:
    """A grammar of words and phrases.

    Args:
        words: from a slot and the names of its other forms to its options: `{"weather wear": "눈이 내리는 = 털모자를
            쓰고 | 비가 오는 = 우산을 쓰고"}`.
        phrases: from a slot to its templates, separated by `|`.
        start: the phrase of a whole text.

    Raises:
        CorpusError: a template has a slot that neither table contains.
    """

    def __init__(self, words: Mapping[str, str], phrases: Mapping[str, str], start: str) -> None:
        self._forms = {field: column for header, table in words.items() for field, column in _columns(header, table)}
        self.templates = {
            slot: [self._parse(text, phrases) for text in entries(table)] for slot, table in phrases.items()
        }
        self._start = start

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
                    "the template {template!r} has the slot {field!r}, which the grammar does not contain",
                    template=template,
                    field=field,
                )
        return tuple(tokens)

    def derive(self, choose: Callable[[int], Iterable[int]], observed: str | None = None) -> Iterator[Derivation]:
        """Yield derivations.

        Args:
            choose: returns the options to follow at a choice of n options, numbers from 0 to n - 1. `range` enumerates
                all derivations; a single random number generates a text.
            observed: yield only the derivations of this text.
        """
        return self._derive((Phrase(self._start),), Derivation("", 1), {}, choose, observed)

    def _derive(
        self,
        tokens: Template,
        begun: Derivation,
        chosen: Mapping[str, int],
        choose: Callable[[int], Iterable[int]],
        observed: str | None,
    ) -> Iterator[Derivation]:
        """Yield the derivations that begin as `begun` and go on with `tokens`; chosen: the options of its words."""
        text, ways = begun
        for at, token in enumerate(tokens, 1):
            if isinstance(token, Phrase):
                options = self.templates[token.slot]
                so_far = Derivation(text, ways * len(options))
                for option in choose(len(options)):
                    yield from self._derive(options[option] + tokens[at:], so_far, chosen, choose, observed)
                return
            if isinstance(token, Word) and token.slot not in chosen:
                if token.recalled:
                    raise CorpusError(
                        "another form of the word {slot!r} precedes its first occurrence", slot=token.slot
                    )
                for option in choose(len(token.texts)):
                    if observed is None or observed.startswith(token.texts[option], len(text)):
                        so_far = Derivation(text + token.texts[option], ways * len(token.texts))
                        now = {**chosen, token.slot: option}
                        yield from self._derive(tokens[at:], so_far, now, choose, observed)
                return
            written = token if isinstance(token, str) else token.texts[chosen[token.slot]]
            if observed is not None and not observed.startswith(written, len(text)):
                return
            text += written
        if observed in (None, text):
            yield Derivation(text, ways)


def entries(table: str) -> list[str]:
    """Return the entries of a table, which are separated by `|`; line breaks and indentation are ignored."""
    return [" ".join(entry.split()) for entry in table.split("|")]


def _columns(header: str, table: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the field of each form of a word, such as `weather` and `weather.wear`, with its options."""
    slot, *further = header.split()
    rows = [[form.strip() for form in row.split("=")] for row in entries(table)]
    fields = [slot, *(f"{slot}.{form}" for form in further)]
    if any(len(row) != len(fields) for row in rows):
        raise CorpusError("each option of the word {slot!r} must have {count} forms", slot=slot, count=len(fields))
    return zip(fields, zip(*rows, strict=True), strict=True)
