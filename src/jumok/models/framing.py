"""How a text stands before a model that reads it whole: between which ids, cut to which length, filled up with what.

    BERT               [CLS] text [SEP]
    GPT                text [SEP], or text and a newline where the tokenizer has no [SEP]
    encoder–decoder    text [EOS], or what the tokenizer of a published model says: <s> text </s>

A GPT sees the past alone, so the id that ends the text is where it knows all of it. A GPT that was trained on running
text knows a newline as the end of a line; one that begins as a classifier has [SEP] for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, TokenizerError
from jumok.tokenizers import Ids, Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")  # of a tokenizer that is trained for such a model
PADS = ("[PAD]", "<pad>")


class Framed(NamedTuple):
    """A text as ids, and whether it was too long and lost its end."""

    ids: Ids
    cut: bool


@dataclass(frozen=True)
class Framing:
    """The ids before and after each text, the one that fills up a batch, and how many a text may have without them."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    room: int

    @classmethod
    def of(cls, config: GPTConfig | BERTConfig, tokenizer: Tokenizer) -> Framing:
        """That of a model and its tokenizer.

        Raises:
            ConfigError: the context has no room for a text.
        """
        special = tokenizer.special_tokens
        before = [special["[CLS]"]] if isinstance(config, BERTConfig) and "[CLS]" in special else []
        after = [special["[SEP]"]] if "[SEP]" in special else []
        if not after and not isinstance(config, BERTConfig):
            after = [int(i) for i in tokenizer.encode("\n")[-1:]]
        room = config.context_length - len(before) - len(after)
        if room < 1:
            raise ConfigError(
                "context_length={context_length} has no room for a text and the {count} ids around it; "
                "use a longer one.",
                context_length=config.context_length,
                count=len(before) + len(after),
            )
        pad = pad_id(tokenizer) if config.pad_id is None else config.pad_id
        return cls(tuple(before), tuple(after), pad, room)

    def frame(self, ids: Ids) -> Framed:
        """The ids of a text between those that belong around it; a text that is too long loses its end."""
        before, after = (np.array(around, ids.dtype) for around in (self.before, self.after))
        return Framed(np.concatenate((before, ids[: self.room], after)), len(ids) > self.room)

    def inside(self, ids: Ids) -> Ids:
        """The text of a framed one."""
        return ids[len(self.before) : len(ids) - len(self.after)]


def source_frame(config: EncoderDecoderConfig, tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a source: those that stock code puts there, and [EOS] alone where it puts none."""
    if any(tokenizer.around):
        return tokenizer.around
    return (), () if config.eos_id is None else (config.eos_id,)


def pad_id(tokenizer: Tokenizer) -> int:
    """What fills up the shorter texts of a batch: a token made for it, or else one that no text ends with."""
    for token in PADS:
        if token in tokenizer.special_tokens:
            return tokenizer.special_tokens[token]
    return int(next(iter(tokenizer.encode("\0")), 0))  # U+0000, or the first id where a tokenizer drops that


def start_id(tokenizer: Tokenizer) -> int:
    """The id that stands before a text which begins from nothing: a newline, which is what stood before most lines.

    A tokenizer that drops newlines, as those of BERT do, has a full stop there.

    Raises:
        TokenizerError: it drops both.
    """
    for mark in ("\n", "."):
        ids = tokenizer.encode(mark)
        if len(ids):
            return int(ids[-1])
    raise TokenizerError(
        "a text without a prompt begins after a newline (or a full stop), and this tokenizer "
        "encodes neither; give a prompt, or a tokenizer of kind char, jamo or bpe."
    )
