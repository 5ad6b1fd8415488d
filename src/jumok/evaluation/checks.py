"""Checks of answers: regular expressions that a whole answer must match.

A pattern stands in the material, one for each answer, so that evaluations and rewards need nothing else. They are
matched by the library `regex`, which can be told when to give up: a short pattern may take longer than any patience.
"""

from __future__ import annotations

import math
import re

import regex

from jumok.errors import TextError
from jumok.messages import tr

LONGEST = 10_000  # characters of a pattern
SECONDS = 1.0  # for one answer
MOST_REPEATS = 100_000  # all counts such as {3,20} of a pattern multiplied, which `regex` writes out if they are nested
CALL = re.compile(r"\(\?(?:R|\d|&|P>)")  # of a group, or of the whole pattern; endless ones fill the memory
COUNT = re.compile(r"\{(\d*),?(\d*)\}")


def passes(pattern: str, answer: str) -> bool:
    """Return whether a whole answer matches a pattern, without white space at both ends.

    Raises:
        TextError: the pattern is not a regular expression, or takes too long.
    """
    if len(pattern) > LONGEST:
        raise _refused(pattern, tr("it has more than {most:,} characters", most=LONGEST))
    if CALL.search(pattern):
        raise _refused(pattern, tr("it calls a group"))
    if math.prod(max(1, *(int(n[:9] or 0) for n in counts)) for counts in COUNT.findall(pattern)) > MOST_REPEATS:
        raise _refused(pattern, tr("its counts multiply to more than {most:,}", most=MOST_REPEATS))
    try:
        return regex.fullmatch(pattern, answer.strip(), timeout=SECONDS) is not None
    except (regex.error, TimeoutError, RecursionError, MemoryError, OverflowError) as error:
        raise _refused(pattern, str(error) or type(error).__name__) from None


def _refused(pattern: str, reason: str) -> TextError:
    return TextError(
        "the check {pattern!r} cannot be used: {reason}. A check is a regular expression for a whole answer; correct "
        "it, or leave it out.",
        pattern=pattern[:200],
        reason=reason,
    )
