"""Embeddings: one vector for a text, the mean of the last hidden states of its tokens.

The model reads a text with the special tokens that it was trained with. The mean leaves these and padding out. It is
the usual pooling of a model that was not trained to embed (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084). Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jumok.config import BERTConfig, GPTConfig
from jumok.errors import ConfigError, TextError
from jumok.inference.native.parameters import NativeModel, not_finite_is_told
from jumok.inference.native.whole_texts import Numbers, hidden_states
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.special_ids import Framing
from jumok.tokenizers import Ids

if TYPE_CHECKING:
    from jumok.models import Model


def embed(model: Model | NativeModel, texts: Sequence[str]) -> Numbers:
    """Return the embedding of each text: (N, C), float32; not normalized.

    A text does not depend on the others, up to rounding. The model is in eval mode meanwhile.

    Args:
        model: a BERT or a GPT with its tokenizer, with whatever head.
        texts: each of at least one token and at most as many as the model reads at once. A longer one is an error,
            because the mean of a part would pass for that of the whole; divide it.

    Raises:
        ConfigError: the model is an encoder–decoder.
        TextError: a text is empty or too long.
        TokenizerError: the model has no tokenizer, or it cannot encode a text.
        JumokError: the hidden states are not finite.
    """
    tokenizer = require_tokenizer(model)
    return embed_ids(model, [tokenizer.encode(text) for text in texts])


@not_finite_is_told()
def embed_ids(model: Model | NativeModel, texts: Sequence[Ids]) -> Numbers:
    """As `embed`, for texts that are ids already, without special tokens around them: (T,) each."""
    if not isinstance(model.config, BERTConfig | GPTConfig):
        raise ConfigError(
            "embeddings are computed with a BERT or a GPT, and this model is of the kind {kind}.",
            kind=type(model).__name__,
        )
    framing = Framing.of(model.config, require_tokenizer(model))
    before, room = framing.before, framing.room
    after: tuple[int, ...] = framing.after
    if isinstance(model.config, GPTConfig):  # no token of a text attends to those after it
        after, room = (), room + len(after)
    for number, text in enumerate(texts, 1):
        if not 1 <= len(text) <= room:
            raise TextError(
                "text {number:,} has {count:,} tokens; a text to embed has 1 to {room:,} tokens.",
                number=number,
                count=len(text),
                room=room,
            )
    rows = [np.array([*before, *text, *after], np.int64) for text in texts]
    found = np.empty((len(rows), model.config.n_embd), np.float32)
    if isinstance(model, NativeModel):  # nothing comes after the text
        for number, hidden in enumerate(hidden_states(model, rows)):  # (T, C)
            found[number] = hidden[len(before) :].mean(axis=0)
    elif rows:
        from jumok.inference.torch_rows import mean_states

        found = mean_states(model, rows, len(before), len(after))
    if not np.isfinite(found).all():
        raise not_finite()
    return found
