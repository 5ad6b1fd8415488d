"""Predict tokens of a text that were hidden, from what stands on both sides of them.

BERT (https://arxiv.org/abs/1810.04805, section 3.1): of the tokens of a window some are chosen, 15% unless said
otherwise; of these 80% are replaced by [MASK], 10% by a token drawn from all ordinary ones, and 10% are left as they
are. Because of the last two the model cannot rely on what it sees, nor take it that only [MASK] is asked for. The masks
are dynamic (https://arxiv.org/abs/1907.11692, section 4.1): drawn anew for each batch, from the seed and its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.checkpoint import RunFolder
from jumok.config import BERTConfig, TrainConfig
from jumok.data import Batches, load_ids
from jumok.errors import ConfigError
from jumok.evaluate import LARGEST_BATCH, require_finite_losses, windows
from jumok.fill import JOINED, fill_ids, mask_token, ordinary_ids
from jumok.generate import eval_mode
from jumok.models import ModelConfig
from jumok.models.bert import BERT
from jumok.models.framing import SPECIAL_TOKENS, Framing, pad_id
from jumok.tasks.language_modelling import LanguageModelling
from jumok.tasks.task import Material, Task
from jumok.tokenizers import Tokenizer

REPLACED, RANDOM = 0.8, 0.1  # shares of the chosen tokens
NOTHING = -1  # fills up the places of a window that has fewer tokens to hide than others
IGNORED = -100  # the target there, which cross-entropy leaves out
# What follows the seed and a number, so that masks, validation masks and samples share no random numbers with each
# other, nor with the order of the data. They are last and not zero: numpy fills up a shorter seed with zeros.
TRAINING, VALIDATION, SAMPLE = 1, 2, 3
ONE_BY_ONE = 0.25  # share of the tokens read for the last figures that goes into the pseudo-perplexity


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


class MaskedLanguageModelling(Task[BERT]):
    """Predict tokens of a text that were hidden."""

    kinds = (BERTConfig,)
    keys = frozenset(["sources", "sha256", "val_sha256", "chars", "val_chars", "train_tokens", "val_tokens"])
    loss_label = "nats/hidden token"
    fixed_shapes = True

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, BERTConfig)  # the trainer has checked it against `kinds`
        self.train = load_ids(folder.state / "train.npy", data["train_tokens"])
        self.val = load_ids(folder.state / "val.npy", data["val_tokens"])
        self.framing = Framing.of(model, tokenizer)
        self.masking = Masking(tokenizer, config.mask_rate, config.whole_words)
        self.tokenizer, self.seed = tokenizer, config.seed
        self.batches = Batches(self.train, self.framing.room, config.batch_size, config.seed)
        self.tokens_per_batch = config.batch_size * self.framing.room
        self.validation_tokens = len(self.val)
        self._losses: Callable[[BERT, Tensor, Tensor], Tensor] = token_losses

    @classmethod
    def material(cls, source: Any, held_out: Any, config: TrainConfig) -> Material:
        """A text; its last part is held out, or another text."""
        if config.mask_rate == 0:
            raise ConfigError("mask_rate=0 hides nothing, so there is nothing to learn; 0.15 is usual.")
        return LanguageModelling.material(source, held_out, config)

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Trained on the training part; with the special tokens of BERT."""
        return LanguageModelling.make_tokenizer(material, kind, {**options, "special_tokens": SPECIAL_TOKENS})

    @classmethod
    def fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The head, and what it needs of the tokenizer."""
        mask_token(tokenizer)  # there must be one
        return {"head": "mlm", "labels": (), "pad_id": pad_id(tokenizer)}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Both parts as ids, as for a language model; see `Task.prepare`."""
        data = LanguageModelling.prepare(folder, material, tokenizer, model, config)
        return {key: data[key] for key in cls.keys}

    def compile(self) -> None:
        """Fuse the head with the loss, so that the logits are read once."""
        self._losses = torch.compile(token_losses, dynamic=False)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """ids (B, T), with [CLS] and [SEP]; places (B, M) of the tokens to predict; targets (B, M) or IGNORED."""
        block = self.batches.batch(number)[0].numpy()  # (B, W)
        random = _random(self.seed, number, TRAINING)
        places = self.masking.choose(block, random)
        return self._batch(block, self.masking.corrupted(block, places, random), places)

    def loss(self, model: BERT, batch: tuple[Tensor, ...]) -> Tensor:
        """Mean cross-entropy in nats per hidden token."""
        ids, places, targets = batch
        hidden = at_places(model(ids), places)  # (B, M, C)
        return self._losses(model, hidden, targets).sum() / (targets != IGNORED).sum().clamp(min=1)

    def validate(self, model: BERT, max_tokens: int) -> dict[str, float]:
        """Nats per hidden token, and how many of them are found, on windows that do not overlap.

        All chosen tokens are replaced by [MASK], and always the same ones are, whatever the seed of the training.
        """
        room = self.framing.room
        starts = windows(len(self.val), room, room, max(1, max_tokens // room))[:, 0].tolist()
        width = min(room, len(self.val))
        block = np.stack([self.val[start : start + width] for start in starts]).astype(np.int64)  # (W, T)
        places = [
            self.masking.choose(block[i : i + 1], _random(0, start, VALIDATION)) for i, start in enumerate(starts)
        ]
        nats, right, count = self._score(model, block, np.concatenate(places))
        return {
            "loss": nats / count,
            "nats_per_hidden_token": nats / count,
            "accuracy": right / count,
            "hidden_tokens": count,
            "tokens": block.size,
        }

    def final(self, model: BERT, max_tokens: int) -> dict[str, float]:
        """As `validate`, and the pseudo-perplexity.

        That is exp of the mean nats of tokens that were hidden one at a time, all others in sight
        (https://arxiv.org/abs/1910.14659, equation 4), here of evenly spread tokens. It is given per token, so it does
        not compare across tokenizers.
        """
        alone = min(int(ONE_BY_ONE * max_tokens), 3 * len(self.val))
        figures = self.validate(model, max_tokens - alone)
        figures["pseudo_perplexity"] = math.exp(min(self._nats_one_by_one(model, alone), 700.0))
        return figures

    def headline(self, figures: Mapping[str, float]) -> str:
        """Nats per hidden token, and the share that was found."""
        return f"masked {figures['nats_per_hidden_token']:.2f} nats/token, {figures['accuracy']:.1%} right"

    def sample(self, model: BERT, tokens: int, seed: int) -> str:
        """A snippet with hidden tokens, as the model fills it (→), and as it was (=); held-out text if there is any."""
        source = self.val if len(self.val) else self.train
        width = min(tokens, self.framing.room, len(source))
        start = int(_random(seed, 0, SAMPLE).integers(len(source) - width + 1))
        block = source[start : start + width].astype(np.int64)[None]  # (1, W)
        places = self.masking.choose(block, _random(seed, start, SAMPLE))
        chosen = places[places != NOTHING].tolist()
        hidden = self.masking.hidden(block, places)[0]
        allowed = torch.from_numpy(self.masking.ordinary).expand(len(chosen), -1)  # (N, V)
        filled, _ = fill_ids(model, hidden.tolist(), chosen, allowed) if chosen else (hidden, [])
        lines = (self.tokenizer.decode(ids) for ids in (hidden, filled, block[0]))
        return "\n".join(f"{mark}{line}" for mark, line in zip(("", "→ ", "= "), lines, strict=True))

    def _nats_one_by_one(self, model: BERT, max_tokens: int) -> float:
        """Mean nats of evenly spread tokens, each hidden alone in the middle of a window."""
        width = min(self.framing.room, len(self.val))
        spread = np.unique(np.linspace(0, len(self.val) - 1, max(1, max_tokens // width)).astype(np.int64))
        starts = np.clip(spread - width // 2, 0, len(self.val) - width)
        ordinary = self.masking.ordinary[self.val[spread]]
        places = np.where(ordinary, spread - starts, NOTHING)[:, None]  # (n, 1)
        block = np.stack([self.val[start : start + width] for start in starts.tolist()]).astype(np.int64)  # (n, W)
        nats, _, count = self._score(model, block, places)
        return nats / count

    @torch.inference_mode()
    def _score(self, model: BERT, block: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[float, int, int]:
        """Nats of the tokens of (n, W) at (n, M) when [MASK] is there, how many are found, and how many there are.

        Raises:
            JumokError: the losses are not finite.
        """
        device = model.token_embedding.weight.device
        nats, right = 0.0, 0
        with eval_mode(model):
            for first in range(0, len(block), LARGEST_BATCH):
                rows = slice(first, first + LARGEST_BATCH)
                batch = self._batch(block[rows], self.masking.hidden(block[rows], places[rows]), places[rows])
                ids, where, targets = (part.to(device) for part in batch)
                logits = model.mlm_logits(at_places(model(ids), where))  # (B, M, V)
                nats += float(_losses(logits, targets).cpu().sum(dtype=torch.float64))  # some devices have no float64
                right += int((logits.argmax(dim=-1) == targets).sum())
        require_finite_losses(nats)
        return nats, right, max(1, int((places != NOTHING).sum()))

    def _batch(
        self, block: NDArray[np.int64], shown: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Framed ids of what is shown of a block, the places in them, and what stood there; see `batch`."""
        ids = np.stack([self.framing.frame(row).ids for row in shown])  # (B, T)
        somewhere = np.maximum(places, 0)
        targets = np.where(places == NOTHING, IGNORED, np.take_along_axis(block, somewhere, axis=1))
        return torch.from_numpy(ids), torch.from_numpy(somewhere + len(self.framing.before)), torch.from_numpy(targets)


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """The hidden states at some places of each row: (B, T, C), (B, M) -> (B, M, C)."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def token_losses(model: BERT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of each target in nats, 0 where it is IGNORED: (B, M, C), (B, M) -> (B, M), float32 or better."""
    return _losses(model.mlm_logits(hidden), targets)


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    """As `token_losses`, from logits: (B, M, V), (B, M) -> (B, M)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")  # (B*M,)
    return losses.view_as(targets)  # (B, M)


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


def _random(seed: int, number: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64((seed, number, purpose)))


def _word_marks(tokenizer: Tokenizer) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ids begin a word whatever stands before them, and which are white space: (V,) each."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if tokenizer.kind == "other":  # its pieces are those of its own words, and white space is none of them
        joined = np.array([piece.startswith(JOINED) for piece in pieces])
        return ~joined, np.zeros_like(joined)
    blank = np.array([piece.isspace() for piece in pieces])
    return np.array([piece[:1].isspace() for piece in pieces]) & ~blank, blank
