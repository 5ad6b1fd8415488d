"""Hide tokens of a text, and tell how well a BERT finds them.

Of each window of W tokens some are chosen, by a random number that depends on where the window begins and on nothing
else, so the same text is always asked for at the same places. Two numbers come of it:

    nats_per_hidden_token   the mean of -ln p(x_i | the window with [MASK] at all chosen places); windows follow each
                            other without overlap, but for the last one, which ends with the text
    pseudo_perplexity       exp of the mean of -ln p(x_i | all other tokens around it): each token is hidden alone, in
                            the middle of a window (https://arxiv.org/abs/1910.14659, equation 4). Of a short text that
                            is each of its tokens, of a longer one evenly spread ones

and `accuracy`, the share of the former whose likeliest token is the right one. They are per token, so they do not
compare across tokenizers.
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

from jumok.errors import TextError
from jumok.evaluation.language_model import LARGEST_BATCH, encoded, windows
from jumok.inference.fill_mask import JOINED, mask_token, ordinary_ids, require_masked_model
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite_losses, require_tokenizer
from jumok.models.framing import Framing
from jumok.models.losses import IGNORED, cross_entropies
from jumok.models.modes import eval_mode
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer

USUAL_RATE = 0.15  # share of the tokens that the paper of BERT hides
REPLACED, RANDOM = 0.8, 0.1  # shares of the chosen tokens
NOTHING = -1  # fills up the places of a window that has fewer tokens to hide than others; the target there is IGNORED
VALIDATION = 2  # purpose of the random numbers that choose what is hidden for figures, see `random_for`
ALL_ALONE = 256  # tokens of a text, up to which each of them is hidden alone
ALONE = 3  # times as many tokens as a longer text has are read for the pseudo-perplexity


class Masking:
    """Which tokens of a window are hidden, and what stands there instead.

    Each window of W tokens gets the same number M of places, so that all batches have one shape: the rate's share of
    W, at least one. With whole words, words are taken in random order while they fit into M; the places that remain
    are NOTHING. Where no word of a window fits, the first M tokens of one of them are hidden.

    Args:
        rate: share of the tokens. whole_words: hide eojeol, runs of tokens without white space, instead of tokens; of
            a foreign tokenizer that marks continuations ("##"), words as it cuts them.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, whole_words: bool) -> None:
        self.mask = tokenizer.special_tokens[mask_token(tokenizer)]
        self.rate, self.whole_words = rate, whole_words
        self.ordinary = ordinary_ids(tokenizer)
        self._ordinary_ids = np.flatnonzero(self.ordinary)
        self._begins, self._blank = _word_marks(tokenizer)

    def choose(self, block: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Places to hide: block (B, W) of ids -> (B, M), rising in each row, NOTHING where a row has no more.

        Special tokens are never chosen.
        """
        most = min(block.shape[1], max(1, round(self.rate * block.shape[1])))
        allowed = self.ordinary[block]  # (B, W)
        if self.whole_words:
            words = self.words(block)  # (B, W)
            return np.stack([_places_of_words(row, most, random) for row in words])
        order = np.where(allowed, random.random(block.shape), 2.0).argsort(axis=1)[:, :most]  # (B, M)
        found = np.where(np.take_along_axis(allowed, order, axis=1), order, NOTHING)
        return np.sort(found, axis=1)

    def words(self, block: NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of the word that each token belongs to, from 1, and 0 for none: (B, W) -> (B, W).

        White space belongs to no word, unless a window holds nothing else; then each token of it is one.
        """
        ordinary = self.ordinary[block]  # (B, W)
        inside = ordinary & ~self._blank[block]
        empty = ~inside.any(axis=1, keepdims=True)  # (B, 1)
        inside |= empty & ordinary
        before = np.pad(inside, ((0, 0), (1, 0)))[:, :-1]  # (B, W): whether the token before is in a word
        begins = inside & (self._begins[block] | ~before | empty)
        return np.where(inside, np.cumsum(begins, axis=1), 0)

    def hidden(self, block: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The block with [MASK] at all its places: (B, W), (B, M) -> (B, W)."""
        result = block.copy()
        rows = np.nonzero(places != NOTHING)[0]
        result[rows, places[places != NOTHING]] = self.mask
        return result

    def corrupted(
        self, block: NDArray[np.int64], places: NDArray[np.int64], random: np.random.Generator
    ) -> NDArray[np.int64]:
        """As `hidden`, but a tenth of the places get a random token, and a tenth keep theirs."""
        fate = random.random(places.shape)  # (B, M)
        others = random.choice(self._ordinary_ids, places.shape)  # (B, M)
        result = self.hidden(block, np.where(fate < REPLACED, places, NOTHING))
        changed = (places != NOTHING) & (fate >= REPLACED) & (fate < REPLACED + RANDOM)
        result[np.nonzero(changed)[0], places[changed]] = others[changed]
        return result


class Found(NamedTuple):
    """What was found of hidden tokens: nats of all of them, how many are right, how many there are; tokens read."""

    nats: float
    right: int
    hidden: int
    tokens: int

    @property
    def nats_per_token(self) -> float:
        """The mean, 0 where nothing was hidden."""
        return self.nats / max(1, self.hidden)

    @property
    def accuracy(self) -> float:
        """Share of right ones, 0 where nothing was hidden."""
        return self.right / max(1, self.hidden)

    @property
    def perplexity(self) -> float:
        """exp of the mean, and no more than a float can hold."""
        return math.exp(min(self.nats_per_token, 700.0))


Window = tuple[NDArray[np.int64], NDArray[np.int64]]  # its ids (W,), and places (M,) or NOTHING


class Cloze:
    """Asks a model for hidden tokens of a text, given as ids, (n,), which may be mapped from a file."""

    def __init__(self, masking: Masking, framing: Framing) -> None:
        self.masking, self.framing = masking, framing

    def together(self, model: BERT, ids: Ids, max_windows: int | None = None) -> Found:
        """Hide what `masking` chooses of each window, or of so many evenly spread ones, all of it at once.

        Raises:
            JumokError: the losses are not finite.
        """
        return self._score(model, self._chosen(ids, max_windows))

    def alone(self, model: BERT, ids: Ids, count: int) -> Found:
        """Hide about so many evenly spread tokens, each alone in the middle of a window. Special ones are left out.

        Raises:
            JumokError: the losses are not finite.
        """
        return self._score(model, self._spread(ids, count))

    def usual_count(self, size: int) -> int:
        """How many tokens of a text of so many `alone` should hide: all of a short one."""
        return min(size, max(ALL_ALONE, ALONE * size // self.width(size)))

    def width(self, size: int) -> int:
        """W, the tokens of a window in a text of so many."""
        return min(self.framing.room, size)

    def batch(
        self, block: NDArray[np.int64], shown: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What a model is given and asked.

        Args:
            block: (B, W), windows of ids. shown: (B, W), what is shown of them. places: (B, M), of hidden tokens, or
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
            yield window, self.masking.choose(window[None], random_for(0, start, VALIDATION))[0]

    def _spread(self, ids: Ids, count: int) -> Iterator[Window]:
        width = self.width(len(ids))
        spread = np.unique(np.linspace(0, len(ids) - 1, max(1, count)).astype(np.int64))
        starts = np.clip(spread - width // 2, 0, len(ids) - width)
        for place, start in zip(spread.tolist(), starts.tolist(), strict=True):
            window = ids[start : start + width].astype(np.int64)
            hidden = place - start if self.masking.ordinary[ids[place]] else NOTHING
            yield window, np.array([hidden])

    @torch.inference_mode()
    def _score(self, model: BERT, asked: Iterable[Window]) -> Found:
        device = model.token_embedding.weight.device
        nats, right, hidden, read = 0.0, 0, 0, 0
        left = iter(asked)
        with eval_mode(model):
            while rows := list(islice(left, LARGEST_BATCH)):
                block, places = (np.stack(column) for column in zip(*rows, strict=True))  # (B, W) and (B, M)
                batch = self.batch(block, self.masking.hidden(block, places), places)
                ids, where, targets = (part.to(device) for part in batch)
                logits = model.mlm_logits(at_places(model(ids), where))  # (B, M, V)
                losses = cross_entropies(logits, targets)  # (B, M)
                nats += float(losses.cpu().sum(dtype=torch.float64))  # some devices have no float64
                right += int((logits.argmax(dim=-1) == targets).sum())
                hidden += int((places != NOTHING).sum())
                read += block.size
        require_finite_losses(nats)
        return Found(nats, right, hidden, read)


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """How well a model finds hidden tokens of a text; the head of this module defines each number.

    pseudo_perplexity: None where none of the tokens it asks for is an ordinary one. tokens: of the text.
    """

    nats_per_hidden_token: float
    accuracy: float
    pseudo_perplexity: float | None
    hidden_tokens: int
    tokens: int


def evaluate_masked(model: Model, text: str | Text) -> MaskedEvaluation:
    """Hide 15% of the tokens of a whole text, and say how well they are found.

    Single tokens are hidden, however the model was trained, so that models with the same tokenizer compare.

    Args:
        model: a BERT with head="mlm" and its tokenizer, as `jumok.load` returns it; a stock BertForMaskedLM too.
        text: the text itself, or one that `jumok.text.read` returned, which may be larger than memory.

    Raises:
        JumokError: the model finds no hidden tokens; or its losses are not finite.
        TokenizerError: it has no tokenizer, or one without a mask token, or one that cannot encode the text.
        TextError: the text is empty, or has no tokens, or none of them is known to the tokenizer.
    """
    bert = require_masked_model(model)
    tokenizer = require_tokenizer(bert)
    cloze = Cloze(Masking(tokenizer, USUAL_RATE, whole_words=False), Framing.of(bert.config, tokenizer))
    with encoded(text, tokenizer) as ids:
        together = cloze.together(bert, ids)
        if not together.hidden:
            raise TextError(
                "the tokenizer of this model knows none of the {count:,} tokens of the text, so there is "
                "nothing to hide; give a text in the language and the script that it was trained on.",
                count=len(ids),
            )
        alone = cloze.alone(bert, ids, cloze.usual_count(len(ids)))
        return MaskedEvaluation(
            nats_per_hidden_token=together.nats_per_token,
            accuracy=together.accuracy,
            pseudo_perplexity=alone.perplexity if alone.hidden else None,
            hidden_tokens=together.hidden,
            tokens=len(ids),
        )


# --- parts ------------------------------------------------------------------------------------------------------------


def random_for(seed: int, number: int, purpose: int) -> np.random.Generator:
    """Random numbers for one purpose.

    The purpose keeps what is hidden in training, for figures and in samples apart, and all of them from the order of
    the data. It is last and not zero: numpy fills up a shorter seed with zeros.
    """
    return np.random.Generator(np.random.PCG64((seed, number, purpose)))


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """The hidden states at some places of each row: (B, T, C), (B, M) -> (B, M, C)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def token_losses(model: BERT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each target in nats, 0 where it is IGNORED: (B, M, C), (B, M) -> (B, M), float32 or better."""
    return cross_entropies(model.mlm_logits(hidden), targets)


def _places_of_words(words: NDArray[np.int64], most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Places of whole words of one row, (W,) as `Masking.words` numbers them, at most `most`: (most,)."""
    sizes = np.bincount(words)[1:]
    order = random.permutation(len(sizes))
    taken, room = [], most
    for word in order.tolist():
        if sizes[word] <= room:
            taken.append(word + 1)
            room -= int(sizes[word])
    chosen = np.isin(words, taken or order[:1] + 1).nonzero()[0][:most]
    return np.concatenate((np.full(most - len(chosen), NOTHING), chosen))


def _word_marks(tokenizer: Tokenizer) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ids begin a word whatever stands before them, and which are white space: (V,) each."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if tokenizer.kind == "other":  # its pieces are those of its own words, and white space is none of them
        joined = np.array([piece.startswith(JOINED) for piece in pieces])
        return ~joined, np.zeros_like(joined)
    blank = np.array([piece.isspace() for piece in pieces])
    return np.array([piece[:1].isspace() for piece in pieces]) & ~blank, blank
