"""How much of a text occurs in another text too: what a model may have memorised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from jumok.tokenizers import Ids

PASSAGE = 50  # characters, more than two texts share by chance; formulas and refrains are shorter
LINE = 20  # characters of a line; shorter ones, as "정말 좋아요", are the same by chance
WORTH_TELLING = 0.01  # share of a text or of rows from which on it changes what the figures mean

MOST_PASSAGES = 1 << 18  # that are looked for; of a longer text evenly spread ones
BLOCK = 1 << 20  # ids looked at at once
MOST_LINES = 1 << 20  # that are looked for; of a longer text the first ones
BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial; odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))
SCATTER = np.uint64(0xBF58476D1CE4E5B9)  # small ids alone would leave the upper bits of a product alike
TABLE_BITS = 22


def overlap(known: Ids, asked: Ids, width: int) -> float:
    """Return the share of the passages of `asked` that stand anywhere in `known`.

    `asked` is cut into passages of `width` ids, each of which is compared with all windows of `known` by 64 bits of a
    polynomial hash (https://doi.org/10.1147/rd.312.0249). The time is linear in both, and the memory does not depend
    on the length of `known`.

    Args:
        known: (n,). asked: (m,), of the same tokenizer. Both may be mapped from files.

    Returns:
        0 to 1; 0 if `asked` is shorter than a passage.
    """
    count = len(asked) // width
    if count == 0 or len(known) < width:
        return 0.0
    size = min(len(known), BLOCK + width - 1)
    powers, inverses = (np.cumprod(np.full(size, base)) for base in (BASE, INVERSE))  # B^1, B^2, ..., modulo 2^64
    chosen = np.arange(min(count, MOST_PASSAGES)) * count // min(count, MOST_PASSAGES)
    rows = np.stack([asked[at : at + width] for at in (chosen * width).tolist()])  # (passages, width)
    passages, times = np.unique((_scattered(rows) * powers[:width]).sum(axis=1), return_counts=True)
    # Most windows are no passage, which one look into a table shows.
    shift = np.uint64(64 - TABLE_BITS)
    table = np.zeros(1 << TABLE_BITS, np.bool_)
    table[passages >> shift] = True
    found = np.zeros(len(passages), np.bool_)
    for start in range(0, len(known) - width + 1, BLOCK):
        block = _scattered(known[start : start + size])  # (W + width - 1,)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(block * powers[: len(block)])))
        hashes = sums[width:] - sums[:-width]  # (W,), of each window, times B to the power of its place
        hashes[1:] *= inverses[: len(hashes) - 1]
        found |= np.isin(passages, hashes[table[hashes >> shift]])
    return float(times[found].sum() / times.sum())


def _scattered(ids: Ids) -> NDArray[np.uint64]:
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * SCATTER
    return mixed ^ (mixed >> np.uint64(31))


def line_overlap(known: Iterable[str], asked: Iterable[str]) -> float:
    """Return the share of the characters of `asked` that are in lines which are lines of `known` too.

    This finds the copies in texts of short lines, such as one review a line, that are shorter than a passage.

    Args:
        known, asked: texts, in chunks. Lines of fewer than `LINE` characters count as new, spaces around a line do
            not count.

    Returns:
        0 to 1; 0 if `asked` has no character.
    """
    lengths: dict[str, int] = {}  # of each long line, times how often it stands there
    total = lines = 0
    for block in _lines(asked):
        total += sum(map(len, block))
        for line in filter(_is_long, block):
            lengths[line] = lengths.get(line, 0) + len(line)
        lines += len(block)
        if lines >= MOST_LINES:
            break
    asked_for, found = set(lengths), set[str]()
    if asked_for:
        for block in _lines(known):
            found |= asked_for.intersection(block)
    return sum(lengths[line] for line in found) / max(1, total)


def _is_long(line: str) -> bool:
    return len(line) >= LINE


def _lines(chunks: Iterable[str]) -> Iterator[list[str]]:
    """Yield the lines of a text, without the spaces around them, some at a time."""
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split("\n")
        yield list(map(str.strip, whole))
    yield [rest.strip()]
