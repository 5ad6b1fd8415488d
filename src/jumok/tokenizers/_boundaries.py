"""Where a text may be cut so that its parts can be treated alone.

Normalisation looks across characters: ᄒ at the end of one chunk and ᅡ at the start of the next make 하 together.
The cuts below are those after which nothing in front can change any more (Unicode Standard Annex #15, section
9.1, "Stable Code Points"), so that normalising the parts equals normalising the whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

# Vowels and final consonants join what stands before them, and so do all marks (category M). Kirat Rai vowel
# signs (Unicode 16) are the only letters besides jamo that do.
_JOINING_LETTERS = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff\U00016d63-\U00016d6a]")

# Every whitespace run of the bpe pipeline starts a new piece, whatever follows it.
_BEFORE_BLANK = re.compile(r"(?<=\S)(?=[ \n])")


def starts_anew(character: str) -> bool:
    """Tell whether `character` never composes, nor trades places, with what stands before it."""
    return not unicodedata.category(character).startswith("M") and not _JOINING_LETTERS.match(character)


def is_settled(character: str) -> bool:
    """Tell whether no following character can ever change `character`; True only where that is certain.

    So it is for line ends, blanks, digits, most ASCII punctuation, and for final consonants, which complete a
    syllable. Letters may take an accent and `<`, `=`, `>` a stroke.
    """
    if "\u11a8" <= character <= "\u11c2":
        return True
    return character < "\x7f" and not character.isalpha() and character not in "<=>"


def last_fresh_start(text: str) -> int:
    """Return the last position whose character starts anew, or -1."""
    return next((i for i in range(len(text) - 1, -1, -1) if starts_anew(text[i])), -1)


def last_blank(text: str) -> int:
    """Return the last position where a blank or line end follows something else, or -1."""
    # Searching from the right in growing windows: the answer is nearly always within one word of the end.
    window = 256
    while True:
        start = max(0, len(text) - window)
        cuts = [match.start() for match in _BEFORE_BLANK.finditer(text, start)]
        if cuts or start == 0:
            return cuts[-1] if cuts else -1
        window *= 8


def after_last_newline(text: str) -> int:
    """Return the position after the last newline, or -1."""
    return text.rfind("\n") + 1 or -1


def recut(chunks: Iterable[str], find_cut: Callable[[str], int]) -> Iterator[str]:
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
