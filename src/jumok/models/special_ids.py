"""The form of a text as input of a model: special ids before and after it, truncation, and padding.

The ids are the `frame` of the model's configuration: those that it was trained with. All that reads texts and all
exports take them from `frame_of`. They are decided once:

- by `frame_of_file`, when a folder of another program is read: its own tokenizer puts them around a text.
- by `frame_to_train`, when a run starts: those of the model or the tokenizer that it starts with, or

    BERT               [CLS] text [SEP]
    GPT (classifier)   text [SEP], or text and a newline if the tokenizer has no [SEP]
    encoder–decoder    text [EOS]

A GPT attends only to the past, so only the last id attends to the whole text. For a GPT that was trained as a language
model this is a newline, which it has learned as the end of a line. A GPT trained from the start as a classifier has
[SEP].

A language model continues a text that has not ended, so a prompt has only the ids before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jumok.config import BERTConfig, EncoderDecoderConfig, Frame, GPTConfig, ModelConfig
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
    def of(cls, config: ModelConfig, tokenizer: Tokenizer) -> Framing:
        """Return the framing for a model and its tokenizer.

        Raises:
            ConfigError: the context is too short for any text.
        """
        frame = frame_of(config, tokenizer)
        room = config.context_length - len(frame.ids)
        if room < 1:
            raise ConfigError(
                "context_length={context_length} has no room for a text and the {count} ids around it; "
                "use a longer one.",
                context_length=config.context_length,
                count=len(frame.ids),
            )
        pad = getattr(config, "pad_id", None)
        return cls(frame.before, frame.after, pad_id(tokenizer) if pad is None else pad, room)

    def frame(self, ids: Ids) -> Framed:
        """Return the ids of a text with those before and after it; a text that is too long is truncated."""
        before, after = (np.array(around, ids.dtype) for around in (self.before, self.after))
        return Framed(np.concatenate((before, ids[: self.room], after)), len(ids) > self.room)

    def inside(self, ids: Ids) -> Ids:
        """Return the ids of the text without those before and after it."""
        return ids[len(self.before) : len(ids) - len(self.after)]


def frame_of(config: ModelConfig, tokenizer: Tokenizer) -> Frame:
    """Return the ids around each text that a model reads.

    A configuration without a frame is one of a run of an earlier version, or was made in Python. Its model was trained
    with the ids of the tokenizer's file, unless it is a GPT that classifies.
    """
    if config.frame is not None:
        return config.frame
    if any(tokenizer.around) and not (isinstance(config, GPTConfig) and config.labels):
        return Frame(before=tokenizer.around[0], after=tokenizer.around[1])
    return _usual_frame(config, tokenizer)


def frame_of_file(tokenizer: Tokenizer) -> Frame:
    """Return the ids that the file of a tokenizer puts around each text, even if these are none."""
    return Frame(before=tokenizer.around[0], after=tokenizer.around[1])


def frame_to_train(config: ModelConfig, tokenizer: Tokenizer, init: ModelConfig | None) -> Frame:
    """Return the frame of a new run.

    Args:
        config: of its model. init: of the model that it starts with.
    """
    known = None if init is None else frame_of(init, tokenizer)
    if isinstance(config, GPTConfig) and not config.labels:  # it learns from a whole text, which no id ends
        return Frame() if known is None else Frame(before=known.before)
    was_language_model = isinstance(init, GPTConfig) and not init.labels
    if known is not None and (known.ids or not was_language_model):
        return known
    return frame_of_file(tokenizer) if any(tokenizer.around) else _usual_frame(config, tokenizer)


def _usual_frame(config: ModelConfig, tokenizer: Tokenizer) -> Frame:
    """Return the ids that jumok puts around a text where nothing else says so."""
    special = tokenizer.special_tokens
    before, after = (tuple(special[name] for name in (role,) if name in special) for role in ("[CLS]", "[SEP]"))
    if isinstance(config, BERTConfig):
        return Frame(before=before, after=after)
    if isinstance(config, EncoderDecoderConfig):
        return Frame(after=() if config.eos_id is None else (config.eos_id,))
    if isinstance(config, GPTConfig) and config.labels:
        return Frame(after=after or tuple(int(i) for i in tokenizer.encode("\n")[-1:]))
    return Frame()


def pad_id(tokenizer: Tokenizer) -> int:
    """Return the id of the padding: that of [PAD] or <pad>, or of a character that texts do not contain."""
    for token in PADS:
        if token in tokenizer.special_tokens:
            return tokenizer.special_tokens[token]
    return int(next(iter(tokenizer.encode("\0")), 0))  # U+0000, or id 0 if the tokenizer drops it


def prompt_ids(config: GPTConfig, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids that a GPT continues: those of the text, after the ids before each text.

    The text may be a chat that a template has written; see `Tokenizer.encode_prompt`.

    Raises:
        TokenizerError: the text is empty, and there is no id to begin with.
    """
    ids = [*frame_of(config, tokenizer).before, *tokenizer.encode_prompt(text).tolist()]
    return ids or list(start_ids(config, tokenizer))


def start_ids(config: ModelConfig, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids before the first token of a text, at least one.

    They are those of the frame, or `bos_id`. Other models begin after a newline, which precedes most lines. For
    tokenizers that drop newlines, such as those of BERT, it is a full stop.

    Raises:
        TokenizerError: the tokenizer drops both.
    """
    if isinstance(config, GPTConfig):
        known = frame_of(config, tokenizer).before or (() if config.bos_id is None else (config.bos_id,))
        if known:
            return known
    for mark in ("\n", "."):
        ids = tokenizer.encode(mark)
        if len(ids):
            return (int(ids[-1]),)
    raise TokenizerError(
        "a text without a prompt begins after a newline (or a full stop), and this tokenizer "
        "encodes neither; give a prompt, or a tokenizer of kind char, jamo or bpe."
    )
