"""How much of a text stands in another: copies of any part, at any place, in texts of several blocks."""

from __future__ import annotations

import numpy as np
import pytest

from jumok.evaluation import overlap as module
from jumok.evaluation.overlap import overlap


def drawn(count: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Ids of which no passage comes twice by chance."""
    return np.random.default_rng(seed).integers(0, 1_500, count).astype(np.uint16)


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_copy_is_found_wherever_it_stands(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is looked at in blocks; a passage that lies across the end of one was easily missed."""
    monkeypatch.setattr(module, "BLOCK", block)
    known = drawn(1_000)
    for start in (0, 1, 13, 63, 64, 65, 500, 950):
        assert overlap(known, known[start : start + 50], 50) == 1.0
    assert overlap(known, drawn(500, seed=1), 50) == 0.0


def test_the_share_is_that_of_the_passages() -> None:
    known = drawn(5_000)
    assert overlap(known, np.concatenate((drawn(750, seed=1), known[777:1_027])), 50) == 0.25
    assert overlap(known[:4_500], known, 50) == 0.9
    repeated = np.tile(known[:50], 20)
    assert overlap(known, repeated, 50) == 1.0  # each passage counts, however often it is the same


def test_one_other_id_is_another_passage() -> None:
    known = drawn(200)
    asked = known[100:150].copy()
    asked[25] += 1
    assert overlap(known, asked, 50) == 0.0
    assert overlap(known, np.roll(known[100:150], 1), 50) == 0.0  # the same ids in another order


def test_what_is_shorter_than_a_passage_tells_nothing() -> None:
    known = drawn(200)
    assert overlap(known, known[:49], 50) == 0.0
    assert overlap(known[:49], known[:50], 50) == 0.0
    assert overlap(known[:0], known[:0], 50) == 0.0


def test_of_a_long_text_evenly_spread_passages_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PASSAGES", 100)
    known = drawn(50_000)
    asked = np.concatenate((drawn(25_000, seed=1), known[:25_000]))
    assert overlap(known, asked, 50) == 0.5
