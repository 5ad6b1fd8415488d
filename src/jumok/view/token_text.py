"""Tokens as a person can read them, and where they stand in the text.

A token may be a syllable, a letter of one, some bytes of one, or a word with the blank before it. What a page shows of
it is always printable: a blank is ␣, a line end ⏎, a byte that makes no whole character <EC>, a letter of a
syllable ㅎ, and what has no picture or would turn the writing around is named, ⟨U+202E⟩.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from jumok.text.boundaries import starts_anew
from jumok.text.hangul import LEADS, TAILS, VOWELS, is_syllable, nfc
from jumok.tokenizers import Tokenizer

REPLACED = "\ufffd"  # stands in a text for bytes that are no character
EMPTY = "∅"  # a token that stands for nothing
SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\x7f": "␡"} | {chr(c): chr(0x2400 + c) for c in range(32) if c not in (9, 10)}
# Letters and marks that Unicode calls printable, and that show nothing (Default_Ignorable_Code_Point).
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
JAMO = {
    **{0x1100 + i: letter for i, letter in enumerate(LEADS)},
    **{0x1161 + i: letter for i, letter in enumerate(VOWELS)},
    **{0x11A7 + i: letter for i, letter in enumerate(TAILS) if letter},
    **dict(zip(map(ord, "ᆞᆡᇙᇫᇰᇹ"), "ㆍㆎㅭㅿㆁㆆ", strict=True)),
}  # conjoining letters, which stand badly alone, as the letters people type
OLD_SYLLABLES = re.compile(
    "([\u1100-\u115e\ua960-\ua97c]+[\u1161-\u11a7\ud7b0-\ud7c6]+[\u11a8-\u11ff\ud7cb-\ud7fb]*"
    "|[\uac00-\ud7a3][\u11c3-\u11ff\ud7cb-\ud7fb]+)"
)


class TokenNames:
    """Names the tokens of one tokenizer, and places them in the text that their ids spell."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = tokenizer.vocab_size
        self._special = {token_id: name for name, token_id in tokenizer.special_tokens.items()}
        self._names: dict[int, str] = {}

    def name(self, token_id: int) -> str:
        """Return what to show for one token, alone.

        Raises:
            TokenizerError: the tokenizer has no such id.
        """
        if token_id not in self._names:
            self._names[token_id] = self._name(token_id)
        return self._names[token_id]

    def read(self, ids: Sequence[int]) -> dict[str, Any]:
        """Return what ids spell, and their tokens: "text" and "tokens" of the sequences in docs/viewer.md.

        Raises:
            TokenizerError: the tokenizer has no such id.
        """
        names = self._tokenizer.pieces(ids)
        text = ""
        spans: list[tuple[int, int]] = []
        for special, run in groupby(ids, key=self._special.__contains__):
            part = list(run)
            if special:
                spans += [(len(text), len(text))] * len(part)
            else:
                found, places = self._spelled(part)
                spans += [(len(text) + start, len(text) + stop) for start, stop in places]
                text += found
        tokens = [
            {
                "id": token_id,
                "text": self.name(token_id),
                "piece": piece,
                "start": start,
                "stop": stop,
                "special": token_id in self._special,
            }
            for token_id, piece, (start, stop) in zip(ids, names, spans, strict=True)
        ]
        return {"text": text, "tokens": tokens}

    def _name(self, token_id: int) -> str:
        if token_id in self._special:
            return visible(self._special[token_id])
        spelled = self._tokenizer.bytes_of([token_id])
        if spelled is not None:
            return visible(spelled[0].decode("utf-8", "surrogateescape"))
        piece = self._tokenizer.pieces([token_id])[0]
        if byte := re.fullmatch("<0x([0-9A-F]{2})>", piece):
            return f"<{byte[1]}>"
        return visible(piece.replace("▁", " "))

    def _spelled(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of ids without special tokens, and for each the characters that it is a part of."""
        spelled = self._tokenizer.bytes_of(ids)
        if spelled is None:
            return self._streamed(ids)
        characters = list(_decoded(b"".join(spelled)))
        text, owner = _composed([character for character, _ in characters], self._tokenizer.kind == "jamo")
        of_byte = [owner[i] for i, (_, length) in enumerate(characters) for _ in range(length)]
        places: list[tuple[int, int]] = []
        at = 0
        for token in spelled:
            inside = of_byte[at : at + len(token)]
            end = places[-1][1] if places else 0
            places.append((inside[0][0], inside[-1][1]) if inside else (end, end))
            at += len(token)
        return text, places

    def _streamed(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Do as `_spelled`, for a tokenizer that alone knows what its ids spell together."""
        stream, text = self._tokenizer.stream(), ""
        places: list[tuple[int, int]] = []
        waiting = 0
        for token_id in ids:
            found = stream.push(token_id)
            waiting += 1
            if found:
                places += [(len(text), len(text) + len(found))] * waiting
                text, waiting = text + found, 0
        found = stream.flush()
        places += [(len(text), len(text) + len(found))] * waiting
        return text + found, places


def visible(text: str) -> str:
    """Return text in which everything can be seen, on one line, in the order in which it is written; never empty."""
    old = OLD_SYLLABLES.split(text)  # each second part is one: its letters belong together as they are
    shown = "".join(part if i % 2 else "".join(map(_sign, part)) for i, part in enumerate(old))
    if not shown:
        return EMPTY
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown


def shortened(text: str, most: int) -> str:
    """Return a text, or its beginning and … if it has more than so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _sign(character: str) -> str:
    code = ord(character)
    if character in SIGNS:
        return SIGNS[character]
    if code in JAMO:
        return JAMO[code]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is part of no whole character, see "surrogateescape"
        return f"<{code - 0xDC00:02X}>"
    if not character.isprintable() or INVISIBLE.match(character):
        return f"⟨U+{code:04X}⟩"
    return character


def _decoded(spelled: bytes) -> Iterator[tuple[str, int]]:
    """Yield each character and the number of its bytes, U+FFFD where `bytes.decode(errors="replace")` has one."""
    for broken, run in groupby(spelled.decode("utf-8", "surrogateescape"), key=lambda c: "\udc80" <= c <= "\udcff"):
        characters = "".join(run)
        if not broken:
            yield from ((character, len(character.encode())) for character in characters)
            continue
        left = characters.encode("utf-8", "surrogateescape")
        while left:
            try:
                left[:4].decode()
            except UnicodeDecodeError as error:
                length = error.end
            yield REPLACED, length
            left = left[length:]


def _composed(characters: Sequence[str], composes: bool) -> tuple[str, list[tuple[int, int]]]:
    """Return the text that characters make, and for each the part of the text that it went into: (start, stop)."""
    if not composes:
        return "".join(characters), [(i, i + 1) for i in range(len(characters))]
    text, start = "", 0
    places: list[tuple[int, int]] = []
    for stop in range(1, len(characters) + 1):
        if stop == len(characters) or not _composes(characters, stop):
            found = nfc("".join(characters[start:stop]))
            places += [(len(text), len(text) + len(found))] * (stop - start)
            text, start = text + found, stop
    return text, places


def _composes(characters: Sequence[str], at: int) -> bool:
    """Return whether the character at a place may become one with what stands before it."""
    here, before = characters[at], characters[at - 1]
    if "\u1161" <= here <= "\u1175":
        return "\u1100" <= before <= "\u1112"
    if "\u11a8" <= here <= "\u11c2":
        open_syllable = is_syllable(before) and (ord(before) - 0xAC00) % len(TAILS) == 0
        return open_syllable or ("\u1161" <= before <= "\u1175" and at > 1 and _composes(characters, at - 1))
    return not starts_anew(here) and not _is_jamo(here)


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\ua960" <= character <= "\ua97c" or "\ud7b0" <= character <= "\ud7fb"
