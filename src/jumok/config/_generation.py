"""Rules of a published model about the ids that it generates, from its generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from jumok.config._checks import require_id, require_range, require_type
from jumok.config._fields import from_dict


@dataclass(frozen=True, kw_only=True)
class GenerationRules:
    """Which ids a model does not generate, named as in `transformers`.

    Attributes:
        bad_words_ids: sequences of ids, none of which is ever completed.
        suppress_tokens: ids that are never generated.
        begin_suppress_tokens: ids that are not generated first.
        min_length: the fewest ids of a text, those that it begins with included, before an id may end it.
        min_new_tokens: the fewest generated ids before an id may end a text.

    Raises:
        ConfigError: a value has a wrong type, or is negative.
    """

    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    min_length: int = 0
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):  # JSON has lists instead of tuples
            object.__setattr__(self, field.name, _as_tuple(getattr(self, field.name)))
        require_type("bad_words_ids", self.bad_words_ids, tuple)
        for name in ("suppress_tokens", "begin_suppress_tokens"):
            _require_ids(name, getattr(self, name))
        for word in self.bad_words_ids:
            _require_ids("bad_words_ids", word)
            require_range("the length of a sequence in bad_words_ids", len(word), 1)
        for name in ("min_length", "min_new_tokens"):
            require_type(name, getattr(self, name), int)
            require_range(name, getattr(self, name), 0)

    @classmethod
    def of(cls, value: object, vocab_size: int | None) -> GenerationRules | None:
        """Return the rules that a configuration was given, perhaps as plain values of JSON; None if there are none.

        Raises:
            ConfigError: a value has a wrong type, or an id is not in the vocabulary.
        """
        rules = from_dict(cls, value) if isinstance(value, Mapping) else value
        if rules is None or rules == cls():
            return None
        require_type("generation", rules, cls)
        assert isinstance(rules, cls)
        rules._require_vocabulary(vocab_size)
        return rules

    def _require_vocabulary(self, vocab_size: int | None) -> None:
        """Raise ConfigError for an id that is not in the vocabulary."""
        for one in {*self.suppress_tokens, *self.begin_suppress_tokens, *(i for w in self.bad_words_ids for i in w)}:
            require_id("an id in generation", one, vocab_size)


def _as_tuple(value: object) -> object:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def _require_ids(name: str, ids: Sequence[int]) -> None:
    require_type(name, ids, tuple)
    for one in ids:
        require_type(f"an id in {name}", one, int)
        require_range(f"an id in {name}", one, 0)
