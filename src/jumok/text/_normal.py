"""Normal form NFC, chunk by chunk, as if the text were in one piece."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator


def compose(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the chunks in NFC, exactly as if they were normalised in one piece.

    The end of a chunk is held back from its last safe start on: a character that composes with nothing before it.
    Reference: Unicode Standard Annex 15, "Concatenation of normalized strings" and "Stream-safe text format".
    """
    for piece in recut(chunks):
        yield unicodedata.normalize("NFC", piece)


def recut(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the same characters in pieces that can be normalised one by one."""
    held: list[str] = []
    for chunk in chunks:
        cut = next((at for at in range(len(chunk) - 1, -1, -1) if _starts_safely(chunk[at])), None)
        if cut is None:
            held.append(chunk)
        else:
            yield "".join(held) + chunk[:cut]
            held = [chunk[cut:]]
    yield "".join(held)


def _starts_safely(char: str) -> bool:
    """Whether normalisation may be cut before `char`: no mark, no vowel or final jamo, no Kirat Rai vowel sign."""
    if char < "\u0300" or "\uac00" <= char <= "\ud7a3":
        return True
    return not (
        "\u1160" <= char <= "\u11ff"
        or "\U00016d40" <= char <= "\U00016d7f"
        or unicodedata.combining(char)
        or unicodedata.category(char).startswith("M")
    )
