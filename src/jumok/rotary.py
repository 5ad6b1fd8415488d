"""Rotary frequencies that are changed for long contexts, in NumPy: for PyTorch and for the C++ step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jumok.config import RopeScaling

Numbers = NDArray[Any]  # float32


def scaled_frequencies(periods: Numbers, base: float, scaling: RopeScaling | None) -> tuple[Numbers, float]:
    """Return rotary frequencies, changed for long contexts if necessary, and the factor of their cosines and sines.

    Each operation is done in float32, in the order of `transformers`, where a number divided by an array is the number
    times the reciprocal.

    Args:
        periods: (D/2,), base^(2i/D), where D is the number of dimensions that are rotated.
        base: of the frequencies.
        scaling: its documentation names the papers; None: no change.

    Returns:
        (D/2,), float32, radians per token; and the factor.
    """
    frequencies = 1 / periods
    if scaling is None or scaling.kind == "dynamic":  # which begins beyond the context length
        return frequencies, 1.0
    kind, factor = scaling.kind, scaling.factor
    if kind == "linear":
        return frequencies / factor, 1.0
    original = scaling.original_context
    assert original is not None
    if kind == "llama3":
        assert scaling.low_freq_factor is not None
        assert scaling.high_freq_factor is not None
        turns = 1 / (1 / frequencies * (2 * math.pi)) * original  # (D/2,), in the original context
        kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        kept = kept.clip(0, 1)  # (D/2,)
        return (1 - kept) * frequencies / factor + kept * frequencies, 1.0
    gain = scaling.attention_factor
    kept = 1 - _yarn_ramp(2 * len(periods), base, scaling, original)
    if gain is None:
        gain = 0.1 * math.log(factor) + 1
    return 1 / (factor * periods) * (1 - kept) + frequencies * kept, gain


def _yarn_ramp(width: int, base: float, scaling: RopeScaling, original: int) -> Numbers:
    """Return 0 for the frequencies that YaRN keeps, 1 for those that it divides, and values between: (D/2,)."""
    first, last = (
        width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (scaling.beta_fast, scaling.beta_slow)
    )  # the dimensions that make so many turns in the original context
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    return ((np.arange(width // 2, dtype=np.float32) - first) / ((last - first) or 0.001)).clip(0, 1)
