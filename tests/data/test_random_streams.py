"""Random numbers of a run: one stream for each purpose."""

from __future__ import annotations

import numpy as np

from jumok.data.random_streams import Purpose, random_for


def test_purposes_share_no_numbers() -> None:
    """The tokens that a batch dropped and the order of the epoch of its number came from one stream."""
    drawn = [
        tuple(random_for(purpose, seed, number).integers(2**63, size=4))
        for purpose in Purpose
        for seed in range(4)
        for number in range(8)
    ]
    assert len(set(drawn)) == len(drawn)


def test_the_order_of_the_data_is_that_of_earlier_versions() -> None:
    """A run that is resumed goes on with the rows that it would have seen."""
    for seed, epoch in ((0, 0), (7, 3)):
        earlier = np.random.Generator(np.random.PCG64((seed, epoch)))
        assert random_for(Purpose.ORDER, seed, epoch).random(8).tolist() == earlier.random(8).tolist()
