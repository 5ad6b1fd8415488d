"""Text for a terminal: what would steer it is shown instead."""

from __future__ import annotations

# Controls of ASCII but for newline and tab (Unicode has a picture of each), those of Latin-1, and the marks that turn
# the order of writing around, with which a text can pretend to be another.
_CONTROLS = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **{code: f"⟨U+{code:04X}⟩" for code in _CONTROLS},
}


def with_signs(text: str) -> str:
    """Text with a sign for each control character, which could move the cursor, clear the screen or worse.

    ESC is shown as ␛, NUL as ␀, U+009B as ⟨U+009B⟩; newlines and tabs stay. Characters are looked at one by one, so
    the pieces of a text may be shown as they come.
    """
    return text.translate(_SIGNS)
