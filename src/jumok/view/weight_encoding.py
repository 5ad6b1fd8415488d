"""Compact text encodings of the weights, queries and keys of one head.

Weights are integers, row after row, compressed (raw deflate), in base64; of causal attention only what is on and below
the diagonal. An integer is the root of a weight, q = round(levels · sqrt(w)): a byte for up to 255 levels, else two.
A page takes q² and divides each row by its sum, so that rows sum to one again, whatever the levels.

With `levels` L a weight is off by at most (sqrt(w) + 1 / 4L) / L before the rows are divided. For 65,535 levels this is
0.000015 at w = 1 and 0.0000015 at w = 0.01, for 255 levels 0.004 and 0.0004. Long rows of many small weights lose about
as much once more by the division.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

BYTE_LEVELS, FINEST = 255, 65_535  # the most levels of one byte, and of two

Floats = NDArray[np.float32]


def encode_weights(weights: Floats, *, causal: bool, levels: int = FINEST) -> str:
    """Return the weights of one head, (T, S).

    Args:
        causal: queries are the last T of S positions, and see none behind them. levels: 1 to 65,535.
    """
    roots = np.round(levels * np.sqrt(weights)).astype(_type_of(levels))
    lost = ~roots.any(axis=1) & weights.any(axis=1)  # a long row of small weights only
    roots[lost] = weights[lost] >= weights[lost].mean(axis=1, keepdims=True)
    return _packed(roots[_inside(weights.shape, causal)].tobytes())


def decode_weights(text: str, t: int, s: int, *, causal: bool, levels: int = FINEST) -> Floats:
    """Return what a page shows for a head that was written here: (T, S); each row sums to one, or is all zeros."""
    raw = zlib.decompress(base64.b64decode(text), -15)
    shares = np.zeros((t, s))
    shares[_inside((t, s), causal)] = np.square(np.frombuffer(raw, _type_of(levels)), dtype=np.float64)
    sums = shares.sum(axis=1, keepdims=True)
    return np.divide(shares, sums, where=sums > 0, out=np.zeros_like(shares)).astype(np.float32)


def encode_vectors(vectors: Floats, *, bits: int = 8) -> tuple[float, str]:
    """Return the vectors of one head, (T, D), as a scale and text: value = scale · integer of 8 or 16 bits."""
    scale = _scale_of(vectors, bits)
    return scale, _packed(np.round(vectors / scale).astype(f"<i{bits // 8}").tobytes())


def rounded_vectors(vectors: Floats, *, bits: int = 8) -> Floats:
    """Return the vectors of one head as a page decodes them from `encode_vectors`."""
    scale = _scale_of(vectors, bits)
    return np.round(vectors / scale) * np.float32(scale)


def _scale_of(vectors: Floats, bits: int) -> float:
    return float(f"{float(np.abs(vectors).max()) / (2 ** (bits - 1) - 1) or 1.0:.9g}")


def _type_of(levels: int) -> str:
    """Return the NumPy type of the roots."""
    return "u1" if levels <= BYTE_LEVELS else "<u2"


def _inside(shape: tuple[int, ...], causal: bool) -> NDArray[np.bool_]:
    """Return which weights are kept, (T, S): those that can be other than zero."""
    t, s = shape
    return np.tri(t, s, s - t, dtype=bool) if causal else np.ones(shape, dtype=bool)


def _packed(raw: bytes) -> str:
    """Compressed, in base64. Looking for repetitions takes long in noise, and does harm; it pays where few are left."""
    coded = min((_deflated(raw, strategy) for strategy in (zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)), key=len)
    if len(coded) < len(raw) / 8:
        coded = min(coded, _deflated(raw, zlib.Z_DEFAULT_STRATEGY), key=len)
    return base64.b64encode(coded).decode()


def _deflated(raw: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, strategy)
    return packer.compress(raw) + packer.flush()
