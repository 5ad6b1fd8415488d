"""Random numbers of a run that do not depend on each other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are drawn for. Two purposes have no numbers in common, whatever the seed."""

    ORDER = 0  # of the rows or windows of an epoch
    MASKS = 1  # of a batch
    VALIDATION_MASKS = 2
    SAMPLE = 3  # of masked tokens, for people to read
    TOKEN_DROPOUT = 4  # of a batch
    ANSWERS = 5  # that the model writes for a step


def random_for(purpose: Purpose, seed: int, number: int) -> np.random.Generator:
    """Return the random numbers of epoch, batch or window `number` for one purpose."""
    return np.random.Generator(np.random.PCG64((seed, number, purpose)))
