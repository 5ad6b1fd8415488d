"""Embeddings: one vector for a text, the mean of the last hidden states of its tokens.

The model reads a text with the special tokens that it was trained with. The mean leaves these and padding out. It is
the usual pooling of a model that was not trained to embed (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084). Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from jumok.data.rows import Rows
from jumok.errors import ConfigError, TextError
from jumok.inference.classify import batches_by_length, length_mask
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framing
from jumok.tokenizers import Ids


def embed(model: Model, texts: Sequence[str]) -> Tensor:
    """Return the embedding of each text: (N, C), float32, on the CPU; not normalized.

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


@torch.inference_mode()
def embed_ids(model: Model, texts: Sequence[Ids]) -> Tensor:
    """As `embed`, for texts that are ids already, without special tokens around them: (T,) each."""
    if not isinstance(model, BERT | GPT):
        raise ConfigError(
            "embeddings are computed with a BERT or a GPT, and this model is of the kind {kind}.",
            kind=type(model).__name__,
        )
    framing = Framing.of(model.config, require_tokenizer(model))
    before, room = framing.before, framing.room
    after: tuple[int, ...] = framing.after
    if isinstance(model, GPT):  # no token of a text attends to those after it
        after, room = (), room + len(after)
    for number, text in enumerate(texts, 1):
        if not 1 <= len(text) <= room:
            raise TextError(
                "text {number:,} has {count:,} tokens; a text to embed has 1 to {room:,} tokens.",
                number=number,
                count=len(text),
                room=room,
            )
    found = torch.empty(len(texts), model.config.n_embd)
    if not texts:
        return found
    rows = Rows.of([np.concatenate((before, np.asarray(text, np.int64), after)) for text in texts])
    with eval_mode(model):
        for places, ids, lengths in batches_by_length(model, rows, np.arange(len(rows))):
            mask = length_mask(ids, lengths)  # (B, T)
            hidden = model.hidden(ids, mask) if isinstance(model, BERT) else model.hidden(ids)  # (B, T, C)
            counted = length_mask(ids, lengths - len(after))  # (B, T)
            counted[:, : len(before)] = False
            means = hidden.float().masked_fill(~counted[..., None], 0).sum(dim=1) / counted.sum(dim=1, keepdim=True)
            found[places] = means.cpu()  # (B, C)
    require_finite(found)
    return found
