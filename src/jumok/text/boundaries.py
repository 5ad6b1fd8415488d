"""Where a text may be cut so that its parts can be normalised alone.

Normalisation looks across characters: ᄒ at the end of one chunk and ᅡ at the start of the next make 하 together.
Before a character that `starts_anew`, a cut changes nothing: normalising the parts equals normalising the whole
(Unicode Standard Annex #15, section 9.1, "Stable Code Points").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

# Vowels and final consonants join what stands before them, and so do all marks (category M). Kirat Rai vowel
# signs (Unicode 16) are the only letters besides jamo that do.
_JOINING_LETTERS = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff\U00016d63-\U00016d6a]")


def starts_anew(character: str) -> bool:
    """Tell whether `character` never composes, nor trades places, with what stands before it."""
    if character < "\u0300" or "\uac00" <= character <= "\ud7a3":  # nearly all of a Korean text
        return True
    return not unicodedata.category(character).startswith("M") and not _JOINING_LETTERS.match(character)


def is_settled(character: str) -> bool:
    """Tell whether no following character can ever change `character`; True only where that is certain.

    That is the case for line ends, blanks, digits, most ASCII punctuation, and for final consonants, which complete a
    syllable. Letters may take an accent and `<`, `=`, `>` a stroke.
    """
    if "\u11a8" <= character <= "\u11c2":
        return True
    return character < "\x7f" and not character.isalpha() and character not in "<=>"


def last_fresh_start(text: str) -> int:
    """Return the last position whose character starts anew, or -1."""
    return next((i for i in range(len(text) - 1, -1, -1) if starts_anew(text[i])), -1)


def recut(chunks: Iterable[str], find_cut: Callable[[str], int] = last_fresh_start) -> Iterator[str]:
    """Yield the text of `chunks` again, in pieces that end only where `find_cut` allows.

    `find_cut(text)` returns the last allowed position in `text`, or -1; it may look one character back. Holds
    one piece at a time in memory, so the memory depends on the chunks and on how often the text allows a cut.
    """
    held: list[str] = []
    for chunk in chunks:
        if not chunk:
            continue
        # A cut between two chunks shows only with the last character of the one before in view.
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
