"""The answer to the most similar question, as a baseline: no model, only the questions that were seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BITS = 21  # of a code point


class NearestQuestion:
    """Finds the question that is most similar: by the cosine of the TF-IDF vectors of their pairs of characters.

    A pair counts as often as it occurs, times the logarithm of the questions per question that has it (Spärck Jones
    1972, https://doi.org/10.1108/eb026526).

    Args:
        questions: one or more.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        owners, pairs = _pairs(questions)
        self._count = len(questions)
        self._known, places = np.unique(pairs, return_inverse=True)
        both, times = np.unique(places * self._count + owners, return_counts=True)
        places, self._owners = both // self._count, both % self._count  # sorted by pair
        self._starts = np.searchsorted(places, np.arange(len(self._known) + 1))
        self._rarity = np.log(self._count / np.maximum(1, np.diff(self._starts))) + 1e-9  # (pairs,)
        self._weights = times * self._rarity[places]
        squares = np.bincount(self._owners, self._weights**2, minlength=self._count)
        self._lengths = np.sqrt(squares).clip(min=1e-30)  # (questions,)

    def find(self, question: str) -> int:
        """Return the number of the most similar question, the first one of several."""
        scores = np.zeros(self._count)
        asked, times = np.unique(_pairs([question])[1], return_counts=True)
        at = np.searchsorted(self._known, asked).clip(max=max(0, len(self._known) - 1))
        for pair, place, count in zip(asked, at, times, strict=True):
            if len(self._known) and self._known[place] == pair:
                those = slice(self._starts[place], self._starts[place + 1])
                scores[self._owners[those]] += count * self._rarity[place] * self._weights[those]
        return int((scores / self._lengths).argmax())


def _pairs(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of neighbouring characters of some texts, a newline before and after each: text and pair."""
    points = np.frombuffer("\n".join(["", *texts, ""]).encode("utf-32-le"), np.dtype("<u4")).astype(np.int64)
    lengths = [len(text) + 1 for text in texts]
    return np.repeat(np.arange(len(texts)), lengths), (points[:-1] << BITS) | points[1:]
