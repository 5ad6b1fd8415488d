"""Which rows of a table are held out: a draw from the whole table, decided by the rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

LARGEST_GROUP = 4  # rows with the same question are at most this fraction of the held-out part: 1/4


def draw_rows(questions: Sequence[str], strata: Sequence[str], share: float) -> list[int]:
    """Return the places of the rows to hold out, in ascending order.

    Rows of a table are examples in any order, often sorted by label, length or source, so the last ones need not
    resemble the rest. The draw is a function of the table alone: a row is at the place that the hash of its question
    has among those of its stratum. So runs with different seeds are compared on the same rows, and a model that is
    trained further on the same table does not meet its held-out rows.

    - Rows with the same question are in the same part. One that fills more than a quarter of the held-out part is
      learned. If too few rows can be held out like this, copies are drawn one by one.
    - Each stratum gives its share, and keeps a row at least to learn from.

    Args:
        questions: what each row asks, whatever its spaces; "" for a row that is not used, which is never held out.
        strata: the label of each row, or "".
        share: of the rows to hold out.
    """
    if not share:
        return []
    groups: dict[str, list[int]] = {}
    for row, question in enumerate(questions):
        if words := question.split():
            groups.setdefault(" ".join(words), []).append(row)
    count = round(share * sum(map(len, groups.values())))
    drawn = _draw(groups, strata, count)
    if 2 * len(drawn) < count:
        copies = {f"{question}\0{n}": [row] for question, same in groups.items() for n, row in enumerate(same)}
        drawn = _draw(copies, strata, count)
    return sorted(drawn)


def _draw(groups: Mapping[str, Sequence[int]], strata: Sequence[str], count: int) -> list[int]:
    """Return about `count` rows of whole groups."""
    hashes = {key: blake2b(key.encode(), digest_size=16).digest() for key in groups}
    sizes = Counter(strata[row] for rows in groups.values() for row in rows)
    by_stratum: dict[str, list[str]] = {}
    for key in sorted(groups, key=hashes.__getitem__):
        rarest = min((strata[row] for row in groups[key]), key=sizes.__getitem__)
        by_stratum.setdefault(rarest, []).append(key)
    ordered = []
    for keys in by_stratum.values():
        size, before = sum(len(groups[key]) for key in keys), 0
        for key in keys[:-1]:
            within = int.from_bytes(hashes[key][8:]) / 2**64  # independent of the order, which the first bytes decide
            ordered.append(((before + within * len(groups[key])) / size, key))
            before += len(groups[key])
    most = max(count // LARGEST_GROUP, min(map(len, groups.values()), default=0))
    drawn: list[int] = []
    for _, key in sorted(ordered):
        if len(groups[key]) <= min(most, count - len(drawn)):
            drawn += groups[key]
    return drawn
