"""Rules of a published model about the ids that it generates, from its generation_config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumok.config._checks import require_id, require_range
from jumok.config._fields import setting, validate

if TYPE_CHECKING:
    from jumok.config._model import ModelConfig


@dataclass(frozen=True, kw_only=True)
class GenerationRules:
    """Which ids a model does not generate, named as in `transformers`.

    Raises:
        ConfigError: a value has a wrong type, or is negative.
    """

    bad_words_ids: tuple[tuple[int, ...], ...] = setting((), "sequences of ids, none of which is ever completed", 0)
    suppress_tokens: tuple[int, ...] = setting((), "ids that are never generated", 0)
    begin_suppress_tokens: tuple[int, ...] = setting((), "ids that are not generated first", 0)
    min_length: int = setting(0, "fewest ids of a text, its beginning included, before an id may end it", 0)
    min_new_tokens: int = setting(0, "fewest generated ids before an id may end a text", 0)

    def __post_init__(self) -> None:
        validate(self)
        for word in self.bad_words_ids:
            require_range("the length of a sequence in bad_words_ids", len(word), 1)


def read_rules(config: ModelConfig, rules: GenerationRules | None) -> None:
    """Check the rules of a model against its vocabulary; rules that forbid nothing become None.

    Raises:
        ConfigError: an id is not in the vocabulary.
    """
    if rules is None:
        return
    words = (one for word in rules.bad_words_ids for one in word)
    for one in {*rules.suppress_tokens, *rules.begin_suppress_tokens, *words}:
        require_id("an id in generation", one, config.vocab_size)
    if rules == GenerationRules():
        object.__setattr__(config, "generation", None)
