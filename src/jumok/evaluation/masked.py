"""How well a BERT predicts masked tokens of a text.

Of each window of W tokens some are chosen by a random number that depends on nothing but where the window begins, so
the same tokens of a text are always masked. There are three figures:

    nats_per_hidden_token   the mean of -ln p(x_i | the window with [MASK] at all chosen places); windows do not
                            overlap, except the last one, which ends with the text
    accuracy                the share of these tokens for which the likeliest token is the right one
    pseudo_perplexity       exp of the mean of -ln p(x_i | all other tokens around it): each token is masked alone, in
                            the middle of a window (https://arxiv.org/abs/1910.14659, equation 4). Of a short text that
                            is each of its tokens, of a longer one evenly spread ones

They are per token, so they do not compare across tokenizers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

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
ALL_ALONE = 256  # tokens of a text, up to which each of them is masked alone
ALONE = 3  # times as many tokens as a longer text has are read for the pseudo-perplexity


class MaskedScore(NamedTuple):
    """Nats of all masked tokens, how many predictions are right, how many tokens were masked, and how many read."""

    nats: float
    right: int
    masked: int
    tokens: int

    @property
    def nats_per_token(self) -> float:
        """The mean, 0 where nothing was masked."""
        return self.nats / max(1, self.masked)

    @property
    def accuracy(self) -> float:
        """Share of right ones, 0 where nothing was masked."""
        return self.right / max(1, self.masked)

    @property
    def perplexity(self) -> float:
        """exp of the mean, and no more than a float can hold."""
        return math.exp(min(self.nats_per_token, 700.0))


Window = tuple[NDArray[np.int64], NDArray[np.int64]]  # its ids (W,), and places (M,) or NOTHING


class MaskedScorer:
    """Scores how a model predicts masked tokens of a text, given as ids, (n,), which may be mapped from a file."""

    def __init__(self, masking: Masking, framing: Framing) -> None:
        self.masking, self.framing = masking, framing

    def score_together(self, model: BERT, ids: Ids, max_windows: int | None = None) -> MaskedScore:
        """Mask what `masking` chooses of each window, or of so many evenly spread ones, all at once.

        Raises:
            JumokError: the losses are not finite.
        """
        return self._score(model, self._chosen(ids, max_windows))

    def score_alone(self, model: BERT, ids: Ids, count: int) -> MaskedScore:
        """Mask about so many evenly spread tokens, each alone in the middle of a window. Special ones are left out.

        Raises:
            JumokError: the losses are not finite.
        """
        return self._score(model, self._spread(ids, count))

    def usual_count(self, size: int) -> int:
        """Return how many tokens of a text of so many `score_alone` should mask: all of a short one."""
        return min(size, max(ALL_ALONE, ALONE * size // self.width(size)))

    def width(self, size: int) -> int:
        """W, the tokens of a window in a text of so many."""
        return min(self.framing.room, size)

    def batch(
        self, block: NDArray[np.int64], shown: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the input of a model, the places to predict, and the targets.

        Args:
            block: (B, W), windows of ids. shown: (B, W), the same with masks. places: (B, M), of masked tokens, or
                NOTHING.

        Returns:
            ids (B, T), shown, with [CLS] and [SEP]; places (B, M) in them; targets (B, M), or IGNORED.
        """
        ids = np.stack([self.framing.frame(row).ids for row in shown])  # (B, T)
        somewhere = np.maximum(places, 0)
        targets = np.where(places == NOTHING, IGNORED, np.take_along_axis(block, somewhere, axis=1))
        return torch.from_numpy(ids), torch.from_numpy(somewhere + len(self.framing.before)), torch.from_numpy(targets)

    def _chosen(self, ids: Ids, max_windows: int | None) -> Iterator[Window]:
        width = self.width(len(ids))
        for start in windows(len(ids), self.framing.room, self.framing.room, max_windows)[:, 0].tolist():
            window = ids[start : start + width].astype(np.int64)
            yield window, self.masking.choose(window[None], random_for(Purpose.VALIDATION_MASKS, 0, start))[0]

    def _spread(self, ids: Ids, count: int) -> Iterator[Window]:
        width = self.width(len(ids))
        spread = np.unique(np.linspace(0, len(ids) - 1, max(1, count)).astype(np.int64))
        starts = np.clip(spread - width // 2, 0, len(ids) - width)
        for place, start in zip(spread.tolist(), starts.tolist(), strict=True):
            window = ids[start : start + width].astype(np.int64)
            masked = place - start if self.masking.ordinary[window[place - start]] else NOTHING
            yield window, np.array([masked])

    @torch.inference_mode()
    def _score(self, model: BERT, chosen: Iterable[Window]) -> MaskedScore:
        device = model.token_embedding.weight.device
        nats, right, masked, read = 0.0, 0, 0, 0
        left = iter(chosen)
        with eval_mode(model):
            while rows := list(islice(left, LARGEST_BATCH)):
                block, places = (np.stack(column) for column in zip(*rows, strict=True))  # (B, W) and (B, M)
                batch = self.batch(block, self.masking.masked(block, places), places)
                ids, where, targets = (part.to(device) for part in batch)
                logits = model.mlm_logits(at_places(model(ids), where))  # (B, M, V)
                losses = cross_entropies(logits, targets)  # (B, M)
                nats += float(losses.cpu().sum(dtype=torch.float64))  # some devices have no float64
                right += int((logits.argmax(dim=-1) == targets).sum())
                masked += int((places != NOTHING).sum())
                read += block.size
        require_finite(nats)
        return MaskedScore(nats, right, masked, read)


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """How well a model predicts masked tokens of a text; the head of this module defines each number.

    pseudo_perplexity: None where none of the tokens it asks for is an ordinary one. tokens: of the text.
    """

    nats_per_hidden_token: float
    accuracy: float
    pseudo_perplexity: float | None
    hidden_tokens: int
    tokens: int


def evaluate_masked(model: Model, text: str | Text) -> MaskedEvaluation:
    """Mask 15% of the tokens of a whole text, and measure how well they are predicted.

    Single tokens are masked, however the model was trained, so that models with the same tokenizer compare.

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
    scorer = MaskedScorer(Masking(tokenizer, USUAL_RATE, whole_words=False), Framing.of(bert.config, tokenizer))
    with encoded(text, tokenizer) as ids:
        together = scorer.score_together(bert, ids)
        if not together.masked:
            raise TextError(
                "the tokenizer of this model knows none of the {count:,} tokens of the text, so there is "
                "nothing to hide; give a text in the language and the script that it was trained on.",
                count=len(ids),
            )
        alone = scorer.score_alone(bert, ids, scorer.usual_count(len(ids)))
        return MaskedEvaluation(
            nats_per_hidden_token=together.nats_per_token,
            accuracy=together.accuracy,
            pseudo_perplexity=alone.perplexity if alone.masked else None,
            hidden_tokens=together.masked,
            tokens=len(ids),
        )


# --- parts ------------------------------------------------------------------------------------------------------------


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """Return the hidden states at some places of each row: (B, T, C), (B, M) -> (B, M, C)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def token_losses(model: BERT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each target in nats, 0 where it is IGNORED: (B, M, C), (B, M) -> (B, M), float32 or better."""
    return cross_entropies(model.mlm_logits(hidden), targets)
