"""Which tokens of a text are masked, for training and for figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jumok.inference.fill_mask import mask_token, ordinary_ids
from jumok.tokenizers import Tokenizer

REPLACED, RANDOM = 0.8, 0.1  # shares of the chosen tokens that become [MASK], and a random token
NOTHING = -1  # pads the places of a window that has fewer tokens to mask than others; the target there is IGNORED


class Masking:
    """Which tokens of a window are masked, and what stands there instead.

    Each window of W tokens gets the same number M of places, so that all batches have one shape: the rate's share of
    W, at least one. Places that have no ordinary token are NOTHING.

    Args:
        rate: share of the tokens.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        self.mask = tokenizer.special_tokens[mask_token(tokenizer)]
        self.rate = rate
        self.ordinary = ordinary_ids(tokenizer)
        self._ordinary_ids = np.flatnonzero(self.ordinary)

    def choose(self, block: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Places to mask: block (B, W) of ids -> (B, M), rising in each row, NOTHING where a row has no more.

        Special tokens are never chosen.
        """
        most = min(block.shape[1], max(1, round(self.rate * block.shape[1])))
        allowed = self.ordinary[block]  # (B, W)
        order = np.where(allowed, random.random(block.shape), 2.0).argsort(axis=1)[:, :most]  # (B, M)
        found = np.where(np.take_along_axis(allowed, order, axis=1), order, NOTHING)
        return np.sort(found, axis=1)

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
