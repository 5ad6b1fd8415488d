"""`jumok generate` with a masked language model: fill in the masks of the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumok.cli.console.output import print_json, write
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.inference.fill_mask import FilledText
    from jumok.models import Model

DIGITS = 6  # of a probability in --json


def run_fill(model: Model, prompt: str, top: int, as_json: bool) -> None:
    """Print the prompt with its masks filled in, and the candidates for each mask.

    Args:
        model: as for `jumok.inference.fill_mask.fill_mask`. prompt: a text with [MASK]. top: candidates for each mask.
        as_json: print a JSON object instead: prompt, text, and "blanks" with positions and candidates.

    Raises:
        JumokError: as `jumok.inference.fill_mask.fill_mask`.
    """
    from jumok.inference.fill_mask import fill_mask

    filled = fill_mask(model, prompt, top)
    if as_json:
        print_json({"text": filled.text, "prompt": prompt, "blanks": _plain(filled)})
    else:
        write(filled.text)
        _show_candidates(filled)


def _plain(filled: FilledText) -> list[dict[str, object]]:
    return [
        {
            "position": blank.position,
            "candidates": [{"token": one, "probability": round(share, DIGITS)} for _, one, share in blank.candidates],
        }
        for blank in filled.masks
    ]


def _show_candidates(filled: FilledText) -> None:
    """Print a row for each candidate. A token of white space is shown as a Python string."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from jumok.text import with_signs

    table = Table(box=None, header_style="bold")
    for heading in (tr("blank"), tr("probability")):
        table.add_column(heading, justify="right")
    table.add_column(tr("token"))
    for number, blank in enumerate(filled.masks, 1):
        for place, (_, token, share) in enumerate(blank.candidates):
            table.add_row("" if place else str(number), f"{share:.1%}", Text(with_signs(token.strip() or repr(token))))
    Console().print(table)
