"""Whether an answer has run into a loop: it ends there, since nothing but the limit of its tokens would end it.

The rule looks at ids alone, and `view/assets/model/looping.js` has the same. docs/generating.md says what it was
measured on.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_CYCLE = 128  # ids
MIN_CYCLES = 4
MIN_LENGTH = 64  # ids of all cycles together


def is_looping(ids: Sequence[int]) -> bool:
    """Return whether the last ids are one sequence again and again.

    It has at most LONGEST_CYCLE ids, occurs MIN_CYCLES times or more, and fills MIN_LENGTH ids or more.
    """
    for cycle in range(1, min(LONGEST_CYCLE, len(ids) // MIN_CYCLES) + 1):
        length = max(MIN_LENGTH, MIN_CYCLES * cycle)
        if length > len(ids):
            return False
        if ids[-1] == ids[-1 - cycle] and ids[-length + cycle :] == ids[-length:-cycle]:
            return True
    return False
