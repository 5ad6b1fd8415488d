"""The form of a text as input of a model: special ids before and after it, truncation, and padding.

    BERT               [CLS] text [SEP], or as the tokenizer of a published model specifies: <s> text </s>
    GPT (classifier)   text [SEP], or text and a newline if the tokenizer has no [SEP]
    encoder–decoder    text [EOS], or as the tokenizer of a published model specifies: <s> text </s>

A GPT attends only to the past, so only the last id attends to the whole text. For a GPT that was trained as a language
model this is a newline, which it has learned as the end of a line. A GPT trained from the start as a classifier has
[SEP].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig
from jumok.errors import ConfigError, TokenizerError
from jumok.tokenizers import Ids, Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")  # of tokenizers trained for these models
PADS = ("[PAD]", "<pad>")


class Framed(NamedTuple):
    """The ids of a text, and whether it was truncated."""

    ids: Ids
    cut: bool


@dataclass(frozen=True)
class Framing:
    """The form of a text for a model.

    Attributes:
        before, after: ids before and after the text.
        pad: id of the padding.
        room: largest number of ids of the text itself.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    room: int

    @classmethod
    def of(cls, config: GPTConfig | BERTConfig, tokenizer: Tokenizer) -> Framing:
        """Return the framing for a model and its tokenizer.

        Raises:
            ConfigError: the context is too short for any text.
        """
        before, after = _bert_frame(tokenizer) if isinstance(config, BERTConfig) else _gpt_frame(tokenizer)
        room = config.context_length - len(before) - len(after)
        if room < 1:
            raise ConfigError(
                "context_length={context_length} has no room for a text and the {count} ids around it; "
                "use a longer one.",
                context_length=config.context_length,
                count=len(before) + len(after),
            )
        pad = pad_id(tokenizer) if config.pad_id is None else config.pad_id
        return cls(before, after, pad, room)

    def frame(self, ids: Ids) -> Framed:
        """Return the ids of a text with those before and after it; a text that is too long is truncated."""
        before, after = (np.array(around, ids.dtype) for around in (self.before, self.after))
        return Framed(np.concatenate((before, ids[: self.room], after)), len(ids) > self.room)

    def inside(self, ids: Ids) -> Ids:
        """Return the ids of the text without those before and after it."""
        return ids[len(self.before) : len(ids) - len(self.after)]


def _bert_frame(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if any(tokenizer.around):
        return tokenizer.around
    special = tokenizer.special_tokens
    return tuple(special[name] for name in ("[CLS]",) if name in special), _separator(tokenizer)


def _gpt_frame(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (), _separator(tokenizer) or tuple(int(i) for i in tokenizer.encode("\n")[-1:])


def _separator(tokenizer: Tokenizer) -> tuple[int, ...]:
    special = tokenizer.special_tokens
    return (special["[SEP]"],) if "[SEP]" in special else ()


def source_frame(config: EncoderDecoderConfig, tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids before and after a source: those that the tokenizer file specifies, or [EOS] after it."""
    if any(tokenizer.around):
        return tokenizer.around
    return (), () if config.eos_id is None else (config.eos_id,)


def pad_id(tokenizer: Tokenizer) -> int:
    """Return the id of the padding: that of [PAD] or <pad>, or of a character that texts do not contain."""
    for token in PADS:
        if token in tokenizer.special_tokens:
            return tokenizer.special_tokens[token]
    return int(next(iter(tokenizer.encode("\0")), 0))  # U+0000, or id 0 if the tokenizer drops it


def prompt_ids(config: GPTConfig, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids that a GPT continues: those of the text, after the ids that a published tokenizer puts before it.

    Raises:
        TokenizerError: the text is empty, and there is no id to begin with.
    """
    return [*tokenizer.around[0], *tokenizer.encode(text).tolist()] or [start_id(config, tokenizer)]


def start_id(config: ModelConfig, tokenizer: Tokenizer) -> int:
    """Return the id before the first token of a text.

    It is the one that a published tokenizer puts there, or `bos_id`. Other models begin after a newline, which precedes
    most lines. For tokenizers that drop newlines, such as those of BERT, it is a full stop.

    Raises:
        TokenizerError: the tokenizer drops both.
    """
    if isinstance(config, GPTConfig):
        known = tokenizer.around[0][-1:] or (() if config.bos_id is None else (config.bos_id,))
        if known:
            return known[0]
    for mark in ("\n", "."):
        ids = tokenizer.encode(mark)
        if len(ids):
            return int(ids[-1])
    raise TokenizerError(
        "a text without a prompt begins after a newline (or a full stop), and this tokenizer "
        "encodes neither; give a prompt, or a tokenizer of kind char, jamo or bpe."
    )
