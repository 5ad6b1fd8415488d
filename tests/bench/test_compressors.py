"""The nats per character of a compressor."""

from __future__ import annotations

import math

import pytest

from compressors import nats_per_char


def test_eight_bits_a_byte() -> None:
    """A compressor that does nothing needs 16 bits for a syllable in CP949 and 24 in UTF-8."""
    assert nats_per_char(len, "가나", "다라마", "cp949") == pytest.approx(16 * math.log(2))
    assert nats_per_char(len, "가나", "다라마", "utf-8") == pytest.approx(24 * math.log(2))


def test_what_cp949_lacks_is_not_lost() -> None:
    assert nats_per_char(len, "가", "🎲", "cp949") == pytest.approx(8 * len("&#127922;") * math.log(2))
