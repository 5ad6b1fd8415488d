"""Which tokens of a text are masked, for training and for figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jumok.inference.fill_mask import JOINED, mask_token, ordinary_ids
from jumok.tokenizers import Tokenizer

REPLACED, RANDOM = 0.8, 0.1  # shares of the chosen tokens that become [MASK], and a random token
NOTHING = -1  # pads the places of a window that has fewer tokens to mask than others; the target there is IGNORED


class Masking:
    """Which tokens of a window are masked, and what stands there instead.

    Each window of W tokens gets the same number M of places, so that all batches have one shape: the rate's share of
    W, at least one. With whole words, words are taken in random order while they fit into M; the places that remain
    are NOTHING. Where no word of a window fits, the first M tokens of one word are masked.

    Args:
        rate: share of the tokens. whole_words: mask eojeol, runs of tokens without white space, instead of tokens; for
            a tokenizer whose tokens have no white space (WordPiece), words as it splits them.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float, whole_words: bool) -> None:
        self.mask = tokenizer.special_tokens[mask_token(tokenizer)]
        self.rate, self.whole_words = rate, whole_words
        self.ordinary = ordinary_ids(tokenizer)
        self._ordinary_ids = np.flatnonzero(self.ordinary)
        self._begins, self._ends, self._blank = _word_marks(tokenizer)

    def choose(self, block: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Places to mask: block (B, W) of ids -> (B, M), rising in each row, NOTHING where a row has no more.

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
        goes_on = inside & ~self._ends[block]  # (B, W): whether the next token can be of the same word
        before = np.pad(goes_on, ((0, 0), (1, 0)))[:, :-1]  # (B, W)
        begins = inside & (self._begins[block] | ~before | empty)
        return np.where(inside, np.cumsum(begins, axis=1), 0)

    def masked(self, block: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the block with [MASK] at all its places: (B, W), (B, M) -> (B, W)."""
        result = block.copy()
        rows = np.nonzero(places != NOTHING)[0]
        result[rows, places[places != NOTHING]] = self.mask
        return result

    def corrupted(
        self, block: NDArray[np.int64], places: NDArray[np.int64], random: np.random.Generator
    ) -> NDArray[np.int64]:
        """As `masked`, but a tenth of the places get a random token, and a tenth keep theirs."""
        fate = random.random(places.shape)  # (B, M)
        others = random.choice(self._ordinary_ids, places.shape)  # (B, M)
        result = self.masked(block, np.where(fate < REPLACED, places, NOTHING))
        changed = (places != NOTHING) & (fate >= REPLACED) & (fate < REPLACED + RANDOM)
        result[np.nonzero(changed)[0], places[changed]] = others[changed]
        return result


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


def _word_marks(tokenizer: Tokenizer) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ids begin a word whatever stands before them, which end one, and which are white space: (V,) each."""
    pieces, spelled = tokenizer.pieces(range(tokenizer.vocab_size)), tokenizer.bytes_of(range(tokenizer.vocab_size))
    if tokenizer.algorithm in ("WordPiece", "WordLevel"):  # its pieces are those of its own words
        joined = np.array([piece.startswith(JOINED) for piece in pieces])
        return ~joined, np.zeros_like(joined), np.zeros_like(joined)
    if tokenizer.kind == "other" and spelled is not None:
        pieces = [token.decode("utf-8", "replace") for token in spelled]
    elif tokenizer.kind == "other":  # of SentencePiece, or with a mark at the end of a word
        pieces = [piece.replace("▁", " ").replace("</w>", " ") for piece in pieces]
    blank = np.array([piece.isspace() for piece in pieces])
    begins, ends = (np.array([piece[place].isspace() for piece in pieces]) for place in (slice(1), slice(-1, None)))
    return begins & ~blank, ends & ~blank, blank
