"""How the tokens of an answer are chosen, and the answers that they become.

The decoder begins with `decoder_start_id` and continues until it writes [EOS], or until the tokens are used up. The
score of an answer is the sum of the log-probabilities of its tokens, in nats, divided by tokens**length_penalty; [EOS]
is a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jumok.config import EncoderDecoderConfig, require_count, require_range
from jumok.errors import ConfigError
from jumok.inference.sampling import Sampling, SamplingSettings
from jumok.tokenizers import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A target that a model wrote for a source.

    Fields:
        text: without special tokens.
        score: see the head of this module; 0 is the highest.
        ids: every id that was written, [EOS] included. tokens: their number.
        finish: "stop" at [EOS], or where the rules of the model allow no token; "length" when the tokens were used up;
            a last character whose bytes are not complete by then is left out of the text. "not finite" where the
            model's logits were not finite after these ids, while other answers went on; the score is then -inf.
    """

    text: str
    score: float
    ids: tuple[int, ...]
    tokens: int
    finish: Literal["stop", "length", "not finite"]


@dataclass(frozen=True, kw_only=True)
class Search(Sampling):
    """How the tokens of an answer are chosen: greedily, by beam search, or drawn where the temperature is above 0.

    Fields:
        temperature, top_k, top_p, min_p: as in `Sampling`, but the temperature is 0 unless given.
        beam: beams that are kept; 1 is greedy, or sampling.
        n_best: answers for each source.
        length_penalty: power of the length by which a score is divided; more favours longer answers.
        no_repeat_ngram: no sequence of so many tokens occurs twice in an answer; 0 is off.
        max_tokens: the most tokens of an answer, [EOS] included; None: as many as the model has positions.

    Raises:
        ConfigError: a value is out of range, or two of them do not fit together.
    """

    temperature: float = 0.0
    beam: int = 1
    n_best: int = 1
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("beam", self.beam, 1)
        require_count("n_best", self.n_best, 1)
        require_range("length_penalty", self.length_penalty, -100, 100)
        require_count("no_repeat_ngram", self.no_repeat_ngram, 0)
        draws = self.temperature > 0
        if draws and self.beam > 1:
            raise ConfigError(
                "beam={beam} and temperature={temperature:g} were both given: beam search looks for the "
                "likeliest answer, while a temperature above 0 draws answers at random; use "
                "temperature=0, or beam=1.",
                beam=self.beam,
                temperature=self.temperature,
            )
        if self.repetition_penalty != 1:
            raise ConfigError(
                "repetition_penalty={penalty:g} is for a GPT that continues a text; for an answer use no_repeat_ngram.",
                penalty=self.repetition_penalty,
            )
        if not draws and self.n_best > self.beam:
            raise ConfigError(
                "n_best={n_best} is more than beam={beam}: beam search finds as many answers as it has "
                "beams; use beam={n_best}, or a temperature above 0 to draw several answers.",
                n_best=self.n_best,
                beam=self.beam,
            )

    def limit(self, config: EncoderDecoderConfig) -> int:
        """Return the most tokens of an answer of a model.

        Raises:
            ConfigError: max_tokens is more than the model has positions for.
        """
        if self.max_tokens is None:
            return config.context_length
        require_count("max_tokens", self.max_tokens, 1, config.context_length)
        return self.max_tokens

    def score(self, total: float, tokens: int) -> float:
        """Return the score of an answer whose log-probabilities have the sum `total`."""
        return float(total / max(1, tokens) ** self.length_penalty)


class SearchSettings(SamplingSettings, total=False):
    """The fields of `Search` as keywords of a call: `Search(**settings)`."""

    beam: int
    n_best: int
    length_penalty: float
    no_repeat_ngram: int
    max_tokens: int | None


def make_answer(
    tokenizer: Tokenizer,
    config: EncoderDecoderConfig,
    ids: Sequence[int],
    score: float,
    finish: Literal["stop", "length", "not finite"],
) -> Answer:
    """Return the answer that consists of these ids."""
    special = special_ids(tokenizer, config)
    text = tokenizer.decode([token for token in ids if token not in special])
    whole = text if finish == "stop" else text.rstrip("\ufffd")
    return Answer(text=whole, score=score, ids=tuple(ids), tokens=len(ids), finish=finish)


def special_ids(tokenizer: Tokenizer, config: EncoderDecoderConfig) -> frozenset[int]:
    """Return the ids that are no text."""
    ids = (config.decoder_start_id, config.eos_id, config.pad_id)
    return frozenset((*tokenizer.special_tokens.values(), *(one for one in ids if one is not None)))
