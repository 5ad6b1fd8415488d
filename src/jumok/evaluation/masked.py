"""How well a BERT predicts masked tokens of a text.

Of each window of W tokens some are chosen by a random number that depends on nothing but where the window begins, so
the same tokens of a text are always masked. There are two figures:

    nats_per_hidden_token   the mean of -ln p(x_i | the window with [MASK] at all chosen places); windows do not
                            overlap, except the last one, which ends with the text
    accuracy                the share of these tokens for which the likeliest token is the right one

They are per token, so they do not compare across tokenizers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.random_streams import Purpose, random_for
from jumok.errors import TextError
from jumok.evaluation.language_model import LARGEST_BATCH, encoded, windows
from jumok.evaluation.masking import NOTHING, Masking
from jumok.inference.fill_mask import require_masked_model
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.losses import IGNORED, cross_entropies
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framing
from jumok.text import Text
from jumok.tokenizers import Ids

USUAL_RATE = 0.15  # share of the tokens that the paper of BERT hides


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """How well a model predicts masked tokens of a text; the head of this module defines the first two numbers.

    hidden_tokens: how many were masked; 0 if none is an ordinary token, and then the others are 0. tokens: that were
    read.
    """

    nats_per_hidden_token: float
    accuracy: float
    hidden_tokens: int
    tokens: int


def evaluate_masked(model: Model, text: str | Text) -> MaskedEvaluation:
    """Mask 15% of the tokens of a whole text, and measure how well they are predicted.

    Args:
        model: a BERT with head="mlm" and its tokenizer, as `jumok.load` returns it; a stock BertForMaskedLM too.
        text: the text itself, or one that `jumok.text.read` returned, which may be larger than memory.

    Raises:
        JumokError: the model predicts no masked tokens; or its losses are not finite.
        TokenizerError: it has no tokenizer, or one without a mask token, or one that cannot encode the text.
        TextError: the text is empty, or has no tokens, or none of them is known to the tokenizer.
    """
    bert = require_masked_model(model)
    tokenizer = require_tokenizer(bert)
    masking, framing = Masking(tokenizer, USUAL_RATE), Framing.of(bert.config, tokenizer)
    with encoded(text, tokenizer) as ids:
        found = evaluate_masked_ids(bert, ids, masking, framing)
    if not found.hidden_tokens:
        raise TextError(
            "the tokenizer of this model knows none of the {count:,} tokens of the text, so there is "
            "nothing to hide; give a text in the language and the script that it was trained on.",
            count=found.tokens,
        )
    return found


@torch.inference_mode()
def evaluate_masked_ids(
    model: BERT, ids: Ids, masking: Masking, framing: Framing, max_windows: int | None = None
) -> MaskedEvaluation:
    """Mask what `masking` chooses of each window of a text, or of so many evenly spread ones.

    Args:
        ids: (n,), may be mapped from a file.

    Raises:
        JumokError: the losses are not finite.
    """
    starts = windows(len(ids), framing.room, framing.room, max_windows)[:, 0]
    width, device = min(framing.room, len(ids)), model.token_embedding.weight.device
    nats, right, masked = 0.0, 0, 0
    with eval_mode(model):
        for some in np.split(starts, range(LARGEST_BATCH, len(starts), LARGEST_BATCH)):
            block = np.stack([ids[start : start + width].astype(np.int64) for start in some.tolist()])  # (B, W)
            randoms = [random_for(Purpose.VALIDATION_MASKS, 0, start) for start in some.tolist()]
            chosen = [masking.choose(row[None], random)[0] for row, random in zip(block, randoms, strict=True)]
            places = np.stack(chosen)  # (B, M)
            batch = masked_batch(framing, block, masking.masked(block, places), places)
            shown, where, targets = (part.to(device) for part in batch)
            logits = model.mlm_logits(at_places(model(shown), where))  # (B, M, V)
            losses = cross_entropies(logits, targets)  # (B, M)
            nats += float(losses.cpu().sum(dtype=torch.float64))  # some devices have no float64
            right += int((logits.argmax(dim=-1) == targets).sum())
            masked += int((places != NOTHING).sum())
    require_finite(nats)
    return MaskedEvaluation(
        nats_per_hidden_token=nats / max(1, masked),
        accuracy=right / max(1, masked),
        hidden_tokens=masked,
        tokens=min(len(ids), width * len(starts)),
    )


def masked_batch(
    framing: Framing, block: NDArray[np.int64], shown: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input of a model, the places to predict, and the targets.

    Args:
        block: (B, W), windows of ids. shown: (B, W), the same with masks. places: (B, M), of masked tokens, or NOTHING.

    Returns:
        ids (B, T), shown, with [CLS] and [SEP]; places (B, M) in them; targets (B, M), or IGNORED.
    """
    ids = np.stack([framing.frame(row).ids for row in shown])  # (B, T)
    somewhere = np.maximum(places, 0)
    targets = np.where(places == NOTHING, IGNORED, np.take_along_axis(block, somewhere, axis=1))
    return torch.from_numpy(ids), torch.from_numpy(somewhere + len(framing.before)), torch.from_numpy(targets)


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """Return the hidden states at some places of each row: (B, T, C), (B, M) -> (B, M, C)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def token_losses(model: BERT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each target in nats, 0 where it is IGNORED: (B, M, C), (B, M) -> (B, M), float32 or better."""
    return cross_entropies(model.mlm_logits(hidden), targets)
