"""Compact text encodings of the weights, queries and keys of one head.

Weights are bytes, compressed (raw deflate), in base64; the first byte is the encoding:

- PLAIN: the root of each weight, q = round(levels · sqrt(w)), up to 255 levels. Of causal attention only what is on and
  below the diagonal, row after row. A page takes q² and divides each row by its sum, so that rows sum to one again,
  whatever the levels. UP: the same, as the difference from the row above, modulo 256.
- FACTORS: the scores as a low-rank product of a few rounded numbers for each query and each key; then corrections to
  the softmax of them.

Why both: with 255 levels a weight costs 3 to 5 bits, in trained models and in new ones, and nothing
predicts it; 144 heads over 512 tokens would take 12 MB. But the T² / 2 weights of a head are computed from only
2 · T · D numbers. Heads with few large weights are smaller as levels, heads with many small ones mostly as factors.

With `levels` L a weight is off by at most (sqrt(w) + 1 / 4L) / L before the rows are divided: 0.004 at w = 1 and 0.0004
at w = 0.01 for 255. Long rows of many small weights lose about as much once more by the division.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PLAIN, UP, FACTORS = 0, 1, 2
FINEST = 255  # levels
CORRECTING = 24  # levels of what is put right behind factors: a weight w is then off by about sqrt(w) / 24 at most
COARSENESS = 12.8  # of factors, divided by the levels: about the same mean error, where both were measured

Floats = NDArray[np.float32]


def encode_exactly(weights: Floats, *, causal: bool) -> str:
    """Return the weights of one head, (T, S), as 16-bit floats, PLAIN."""
    return _packed(bytes([PLAIN]) + weights.astype("<f2")[_inside(len(weights), weights.shape[1], causal)].tobytes())


def encode_weights(weights: Floats, *, causal: bool, levels: int = FINEST, factors: Factors | None = None) -> str:
    """Return the weights of one head, (T, S), in the way that seems shortest.

    Args:
        causal: queries are the last T of S positions, and see none behind them.
        levels: 1 to 255. factors: of its scores, if factors are allowed; `factorise`.
    """
    inside = _inside(len(weights), weights.shape[1], causal)
    roots = np.round(levels * np.sqrt(weights)).astype(np.uint8)
    lost = ~roots.any(axis=1) & weights.any(axis=1)  # a long row of small weights only
    roots[lost] = weights[lost] >= weights[lost].mean(axis=1, keepdims=True)
    above = roots.copy()
    above[1:] -= roots[:-1]  # modulo 256
    ways: list[tuple[bytes, ...]] = [
        (bytes([name]), rows[inside].tobytes()) for name, rows in ((PLAIN, roots), (UP, above))
    ]
    if factors is not None:
        ways.append(_encode_factors(factors, weights, inside, COARSENESS / levels))
    shortest: tuple[bytes, ...] = min(ways, key=_entropy)
    return _packed(b"".join(shortest))


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Scores of one head as a sum of products, the one that matters most first.

    Fields:
        a: (T, R). b: (S, R). a bᵀ are the scores up to a constant for each row, which the softmax takes away.
        energy: (R,), the singular values.
    """

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    energy: NDArray[np.float64]


def factorise(q: Floats, k: Floats) -> Factors:
    """Return the scores q kᵀ / sqrt(D) of one head as singular vectors, each times the root of its value.

    They come out of two thin QR decompositions and one small singular value decomposition, not of the (T, S) scores.
    """
    centred = k.astype(np.float64) - k.mean(axis=0, dtype=np.float64)  # takes the same from all scores of a row
    q_basis, q_mix = np.linalg.qr(q.astype(np.float64) * q.shape[1] ** -0.5)
    k_basis, k_mix = np.linalg.qr(centred)
    left, energy, right = np.linalg.svd(q_mix @ k_mix.T, full_matrices=False)
    root = np.sqrt(energy)
    return Factors(a=q_basis @ left * root, b=k_basis @ right.T * root, energy=energy)


def _encode_factors(
    factors: Factors, weights: Floats, inside: NDArray[np.bool_], coarseness: float
) -> tuple[bytes, ...]:
    """Return a head as factors of its scores: the parts to be joined.

    The steps of each component are such that all add the same to the error of a score; one that would not take a single
    step is left out (reverse water-filling: Cover and Thomas, "Elements of Information Theory", section 10.3.3).
    """
    steps = coarseness / 8 / np.sqrt(np.maximum(factors.energy, 1e-12) / len(factors.a))
    largest = np.maximum(np.abs(factors.a).max(axis=0), np.abs(factors.b).max(axis=0))
    steps = np.maximum(steps, largest / 127)
    a, b = (np.round(part / steps).astype(np.int8) for part in (factors.a, factors.b))
    kept = (a.any(axis=0) & b.any(axis=0)).nonzero()[0][:255]
    scales = (steps[kept] ** 2).astype("<f4")
    a, b = a.T[kept], b.T[kept]
    off = np.sqrt(weights) - np.sqrt(_product(scales, a, b, inside))
    corrections = np.round(CORRECTING * off).astype(np.int8)[inside]
    head = bytes((FACTORS, len(kept), CORRECTING)) + scales.tobytes()
    return head, a.tobytes(), b.tobytes(), corrections.tobytes()


def _product(scales: Floats, a: NDArray[np.int8], b: NDArray[np.int8], inside: NDArray[np.bool_]) -> Floats:
    """Return the weights that factors make: (R,), (R, T), (R, S) -> (T, S)."""
    scores = (a.astype(np.float32) * scales[:, None]).T @ b.astype(np.float32)  # (T, S)
    scores = np.where(inside, scores, np.float32(-np.inf))
    shares: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def decode_weights(text: str, t: int, s: int, *, causal: bool, exact: bool = False) -> Floats:
    """Return what a page shows for a head that was written here: (T, S); each row sums to one, or is all zeros."""
    raw = zlib.decompress(base64.b64decode(text), -15)
    inside = _inside(t, s, causal)
    shares = np.zeros((t, s), np.float32)
    if exact:
        shares[inside] = np.frombuffer(raw, "<f2", offset=1)
    elif raw[0] == FACTORS:
        count, correcting = raw[1], raw[2]
        numbers = np.frombuffer(raw, np.int8, offset=3 + 4 * count)
        a, b, corrections = np.split(numbers, [count * t, count * (t + s)])
        scales = np.frombuffer(raw, "<f4", count, offset=3)
        shares = np.sqrt(_product(scales, a.reshape(count, t), b.reshape(count, s), inside))
        if correcting:
            shares[inside] += corrections.astype(np.float32) / correcting
        shares = np.square(np.maximum(shares, 0))
    else:
        roots = np.zeros((t, s), np.uint8)
        roots[inside] = np.frombuffer(raw, np.uint8, offset=1)
        if raw[0] == UP:
            roots = np.where(inside, np.add.accumulate(roots, axis=0, dtype=np.uint8), np.uint8(0))
        shares = np.square(roots.astype(np.float32))
    sums = shares.sum(axis=1, keepdims=True)
    return np.divide(shares, sums, where=sums > 0, out=np.zeros_like(shares))


def encode_vectors(vectors: Floats, *, bits: int = 8) -> tuple[float, str]:
    """Vectors of one head, (T, D), as a scale and text: value = scale · integer of 8 or 16 bits, row after row."""
    scale = float(np.abs(vectors).max()) / (2 ** (bits - 1) - 1) or 1.0
    return float(f"{scale:.9g}"), _packed(np.round(vectors / scale).astype(f"<i{bits // 8}").tobytes())


def _inside(t: int, s: int, causal: bool) -> NDArray[np.bool_]:
    """Which weights are kept, (T, S): those that can be other than zero."""
    return np.tri(t, s, s - t, dtype=bool) if causal else np.ones((t, s), dtype=bool)


def _entropy(parts: tuple[bytes, ...]) -> float:
    """About how many bits they take, byte by byte, each part with a code of its own."""
    bits = 0.0
    for part in parts:
        counts = np.bincount(np.frombuffer(part, np.uint8))
        counts = counts[counts > 0]
        bits += float(counts @ np.log2(len(part) / counts))
    return bits


def _packed(raw: bytes) -> str:
    """Compressed, in base64. Looking for repetitions takes long in noise, and does harm; it pays where few are left."""
    coded = min((_deflated(raw, strategy) for strategy in (zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)), key=len)
    if len(coded) < len(raw) / 8:
        coded = min(coded, _deflated(raw, zlib.Z_DEFAULT_STRATEGY), key=len)
    return base64.b64encode(coded).decode()


def _deflated(raw: bytes, strategy: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, strategy)
    return packer.compress(raw) + packer.flush()
