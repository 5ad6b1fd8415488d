"""The simplest language model, as a baseline: each character by how often it followed the one before."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = 0x110000
BITS = 21  # of a code point


class Bigram:
    """The bigrams of the characters of a text, with Witten–Bell smoothing.

        p(c | a) = (n(a c) + d(a) · p(c)) / (n(a) + d(a))        p(c) = (n(c) + d / 1,114,112) / (n + d)

    n are counts, d(a) is how many different characters follow a, and d how many there are: how often something new
    came tells how likely it comes again (Witten and Bell 1991, https://doi.org/10.1109/18.87000, method C). Nothing is
    to be chosen, and each character has a probability. A newline stands before a text.

    Args:
        chunks: of the text, in order, with one character or more.
    """

    def __init__(self, chunks: Iterable[str]) -> None:
        parts = [np.unique(keys, return_counts=True) for keys in _pairs(chunks)]
        keys, times = (np.concatenate(column) for column in zip(*parts, strict=True))
        self.pairs, places = np.unique(keys, return_inverse=True)  # a and c as one number; sorted
        self.times = np.bincount(places, weights=times)  # n(a c)
        first, second = self.pairs >> BITS, self.pairs & (2**BITS - 1)
        self.follow = np.bincount(first, weights=self.times, minlength=CODE_POINTS)  # n(a)
        self.different = np.bincount(first, minlength=CODE_POINTS)  # d(a)
        counts = np.bincount(second, weights=self.times, minlength=CODE_POINTS)  # n(c)
        kinds = np.count_nonzero(counts)
        self.alone = (counts + kinds / CODE_POINTS) / (counts.sum() + kinds)  # p(c)

    def nats_per_char(self, chunks: Iterable[str]) -> float:
        """Return the mean of -ln p(c | a) over the characters of a text, which has one or more."""
        nats, chars = 0.0, 0
        for keys in _pairs(chunks):
            first, second = keys >> BITS, keys & (2**BITS - 1)
            at = np.searchsorted(self.pairs, keys).clip(max=len(self.pairs) - 1)
            times = np.where(self.pairs[at] == keys, self.times[at], 0)
            different = np.maximum(self.different[first], 1)  # after what never came before, p(c) alone
            nats -= float(np.log((times + different * self.alone[second]) / (self.follow[first] + different)).sum())
            chars += len(keys)
        return nats / chars


def _pairs(chunks: Iterable[str]) -> Iterable[NDArray[np.int64]]:
    """Of each chunk, for each character the one before it and itself as one number: (n,)."""
    before = "\n"
    for chunk in filter(None, chunks):
        points = np.frombuffer((before + chunk).encode("utf-32-le"), np.dtype("<u4")).astype(np.int64)
        yield (points[:-1] << BITS) | points[1:]
        before = chunk[-1]
