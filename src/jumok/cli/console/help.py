"""Help in the language of the user, in lines that fit the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from gettext import gettext, ngettext

import click

from jumok.messages import tr

FILLER = "\N{WORD JOINER}"  # after each character of two columns, because click counts characters


class Help(click.HelpFormatter):
    """Writes help in the current language, in lines that fit the terminal."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_filled(tr(text)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names and explanations."""
        super().write_dl([(name, _filled(tr(text))) for name, text in rows], col_max, col_spacing)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        super().write_heading(tr(heading))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, f"{tr('Usage:')} " if prefix is None else prefix)

    def getvalue(self) -> str:
        """Return the text so far."""
        return super().getvalue().replace(FILLER, "")


def _filled(text: str) -> str:
    return "".join(c + FILLER if unicodedata.east_asian_width(c) in "WF" else c for c in text)


def translate_click() -> None:
    """Make click translate its own messages with `tr` instead of gettext."""
    from click import core, exceptions, parser, types

    def plural(one: str, many: str, n: int) -> str:
        template = one if n == 1 else many
        return tr(template)

    ours = {gettext: tr, ngettext: plural}
    for module in (core, exceptions, parser, types):
        for name, value in list(vars(module).items()):
            if value in (gettext, ngettext):
                setattr(module, name, ours[value])
