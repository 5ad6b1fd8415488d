"""Escape control characters in text that is printed to a terminal."""

from __future__ import annotations

# The controls of ASCII except newline and tab (Unicode has a symbol for each), those of Latin-1, and the marks for
# bidirectional text, which can disguise a text.
_CONTROLS = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **{code: f"⟨U+{code:04X}⟩" for code in _CONTROLS},
}


def with_signs(text: str) -> str:
    """Replace each control character by a visible symbol; control characters could move the cursor or clear the screen.

    ESC becomes ␛, NUL ␀, and U+009B ⟨U+009B⟩; newlines and tabs are kept. Characters are replaced independently, so a
    text can be passed in pieces.
    """
    return text.translate(_SIGNS)
