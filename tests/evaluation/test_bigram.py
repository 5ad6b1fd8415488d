"""The baseline of language models: probabilities by hand, sums of one, and chunks that may end anywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jumok.evaluation.bigram import CODE_POINTS, Bigram


def test_probabilities_by_hand() -> None:
    """Of "\\nabab": a follows the newline once and b once, b follows a twice; there are two kinds of characters."""
    model = Bigram(["abab"])
    p_a = p_b = (2 + 2 / CODE_POINTS) / (4 + 2)
    b_after_a = (2 + 1 * p_b) / (2 + 1)
    a_after_newline = (1 + 1 * p_a) / (1 + 1)
    assert model.nats_per_char(["ab"]) == pytest.approx(
        -(math.log(a_after_newline) + math.log(b_after_a)) / 2, abs=1e-12
    )


def test_all_characters_together_have_a_probability_of_one() -> None:
    """Those that never came, and those after a character that never came, included."""
    model = Bigram(["하늘하늘 바람\n", "바다 하나"])
    every = np.arange(CODE_POINTS)
    for first in ("하", "\n", "뷁"):
        keys = (ord(first) << 21) | every
        at = np.searchsorted(model.pairs, keys).clip(max=len(model.pairs) - 1)
        times = np.where(model.pairs[at] == keys, model.times[at], 0)
        different = max(1, model.different[ord(first)])
        shares = (times + different * model.alone) / (model.follow[ord(first)] + different)
        assert shares.sum() == pytest.approx(1.0, abs=1e-9)
        assert shares.min() > 0


def test_chunks_may_end_anywhere(tales: str) -> None:
    whole = Bigram([tales[:4_000]]).nats_per_char([tales[4_000:]])
    parts = Bigram([tales[:1], "", tales[1:3_000], tales[3_000:4_000]]).nats_per_char(
        [tales[4_000:4_001], tales[4_001:]]
    )
    assert parts == pytest.approx(whole, abs=1e-12)
    assert 1.0 < whole < 3.5  # between a good model and a guess among the characters of the tales


def test_characters_that_never_came_cost_much_and_not_everything() -> None:
    nats = Bigram(["가나다라" * 10]).nats_per_char(["𝄞😀뷁"])
    assert 10 < nats < 20
