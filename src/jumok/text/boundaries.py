"""Positions at which a text can be cut so that its parts can be normalised independently.

Normalisation combines adjacent characters: ᄒ at the end of one chunk and ᅡ at the start of the next become 하. Before a
character for which `starts_anew` is true, a cut changes nothing: normalising the parts equals normalising the whole
(Unicode Standard Annex #15, section 9.1, "Stable Code Points").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

# Vowel and final jamo combine with the character before them, as do all marks (category M). The vowel signs of Kirat
# Rai (Unicode 16) are the only other letters that do.
_JOINING_LETTERS = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff\U00016d63-\U00016d6a]")


def starts_anew(character: str) -> bool:
    """Return whether normalisation never combines or reorders `character` with the characters before it."""
    if character < "\u0300" or "\uac00" <= character <= "\ud7a3":  # nearly all of a Korean text
        return True
    return not unicodedata.category(character).startswith("M") and not _JOINING_LETTERS.match(character)


def is_settled(character: str) -> bool:
    """Return whether normalisation never changes `character` because of a following character.

    True for newlines, spaces, digits, most ASCII punctuation, and final consonants, which complete a syllable. False if
    unsure: letters can take an accent, and `<`, `=` and `>` a stroke.
    """
    if "\u11a8" <= character <= "\u11c2":
        return True
    return character < "\x7f" and not character.isalpha() and character not in "<=>"


def last_fresh_start(text: str) -> int:
    """Return the last position for which `starts_anew` is true, or -1."""
    return next((i for i in range(len(text) - 1, -1, -1) if starts_anew(text[i])), -1)


def recut(chunks: Iterable[str], find_cut: Callable[[str], int] = last_fresh_start) -> Iterator[str]:
    """Yield the text of `chunks` in pieces that end only at the positions that `find_cut` allows.

    One piece at a time is held in memory.

    Args:
        find_cut: returns the last allowed position in a text, or -1. It can use the character before a position.
    """
    held: list[str] = []
    for chunk in chunks:
        if not chunk:
            continue
        # Finding a cut between two chunks needs the last character of the first.
        before = held[-1][-1] if held else ""
        cut = find_cut(before + chunk) - len(before)
        if cut < 0 or (cut == 0 and not held):
            held.append(chunk)
            continue
        piece = "".join([*held, chunk[:cut]])
        held = [chunk[cut:]] if cut < len(chunk) else []
        if piece:
            yield piece
    if held:
        yield "".join(held)


def slices(text: str, size: int) -> Iterator[str]:
    """Yield `text` in slices of `size` characters."""
    return (text[start : start + size] for start in range(0, len(text), size))
