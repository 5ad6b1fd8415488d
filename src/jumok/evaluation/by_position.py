"""The loss by position: how well a token is predicted with how much of the text before it.

The text is cut into windows of context_length tokens that do not overlap, so each position of a window occurs equally
often and each token is predicted once, after 1, 2, ... context_length tokens. The windows of `evaluate_text` overlap by
half instead, so that few tokens have little context; its figures are therefore lower than the mean of these losses.

Tokens of different tokenizers are of different lengths, so both numbers are told in characters, by the characters per
token of the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jumok.data.rows import evenly_spread
from jumok.evaluation.language_model import encoded, hidden_states, require_whole, windows
from jumok.models.checks import require_finite_losses, require_tokenizer
from jumok.models.gpt import GPT, token_losses
from jumok.models.modes import eval_mode
from jumok.models.special_ids import start_ids
from jumok.text import Text
from jumok.text.hangul import nfc
from jumok.tokenizers import lost_text

MOST_TOKENS = 1 << 17  # that are predicted; of a longer text windows evenly spread over it
BINS = 2  # for each doubling of the context


@dataclass(frozen=True, kw_only=True)
class LossByPosition:
    """The mean loss after so much context, in bins that grow with the context.

    context_chars: mean number of characters before the predicted token, rising. nats_per_char: mean losses.
    tokens: that were predicted.
    """

    context_chars: tuple[float, ...]
    nats_per_char: tuple[float, ...]
    tokens: int


@torch.inference_mode()
def loss_by_position(
    model: GPT, text: str | Text, *, most_tokens: int = MOST_TOKENS, allow_lossy: bool = False
) -> LossByPosition:
    """Predict tokens of a text with 1, 2, ... context_length tokens before them.

    Args:
        model: with its tokenizer at `model.tokenizer`; it runs where it is, in eval mode meanwhile.
        text: the text itself, or one that `jumok.text.read` returned. The window at its beginning starts as
            `generate` without a prompt. most_tokens: predicted, about.
        allow_lossy: also where the tokenizer loses too much of the text, as lower bounds; see
            `jumok.evaluation.language_model`.

    Raises:
        TextError: the text is empty, or has no tokens.
        TokenizerError: the model has no tokenizer, one with other ids, or one that cannot encode the text or loses too
            much of it.
        JumokError: the losses are not finite.
    """
    tokenizer, context = require_tokenizer(model), model.config.context_length
    start = start_ids(model.config, tokenizer)[-1:]
    chars = text.chars if isinstance(text, Text) else len(nfc(text))
    with encoded(text, tokenizer) as ids:
        if not allow_lossy:
            require_whole(lost_text(tokenizer, text))
        count, width = len(ids), min(context, len(ids))
        whole = windows(count, context, context)[: max(1, count // width)]  # the last one may overlap the one before
        chosen = whole[evenly_spread(len(whole), min(len(whole), max(1, most_tokens // width)))]
        sums = np.zeros(width)
        with eval_mode(model):
            for _, tokens, hidden in hidden_states(model, ids, start, chosen, width):
                losses = token_losses(hidden, model.head.weight, tokens[:, 1:])  # (B, T)
                sums += losses.cpu().sum(dim=0, dtype=torch.float64).numpy()
    require_finite_losses(float(sums.sum()))
    means, edges, chars_per_token = sums / len(chosen), _edges(width), chars / count
    bins = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return LossByPosition(
        context_chars=tuple(chars_per_token * (start + 1 + stop) / 2 for start, stop in bins),
        nats_per_char=tuple(float(means[start:stop].mean()) / chars_per_token for start, stop in bins),
        tokens=width * len(chosen),
    )


def _edges(width: int) -> NDArray[np.int64]:
    """Return where bins of the positions 0 to width - 1 begin, and width: 0, 1, 2, 3, 5, 7, 10, ..."""
    edges = np.round(2 ** (np.arange(BINS * width.bit_length() + 1) / BINS)).astype(np.int64) - 1
    return np.unique(np.append(edges[edges < width], width))
