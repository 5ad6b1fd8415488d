"""Write what the documentation contains and code makes: the drawings, and the table of the exercises.

    python docs/draw.py

Tests compare the files with the code, so run this after a change of either. The still pictures of the interactive
pieces are drawn by the pieces themselves, so they need Node.
"""

import re
import shutil
import subprocess
from pathlib import Path

from jumok.course.drawings import ARCHITECTURES, draw_architecture
from jumok.course.practice.map import draw_map, table
from jumok.course.words import LANGUAGES, Language

DOCS = Path(__file__).resolve().parent
TABLE = re.compile(r"^\| (?:번호|No\.) \|.*?\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)


def draw(folder: Path, language: Language) -> None:
    """Write all drawings in one language to a folder."""
    for name in ARCHITECTURES:
        if name != "map":
            draw_architecture(name, folder / f"{name}.svg", language)
    draw_map(folder / "map.svg", language)


def draw_pieces(folder: Path, language: Language) -> None:
    """Write the still pictures of the interactive pieces in one language to a folder."""
    node = shutil.which("node")
    if node is None:
        raise SystemExit("The pictures of the interactive pieces need Node: install Node 20 or newer.")
    loader = DOCS.parent / "tests" / "js" / "toml.mjs"  # of the words
    command = [node, "--import", str(loader), str(DOCS / "draw_pieces.mjs"), str(folder), language]
    subprocess.run(command, check=True)


def write_table(page: Path, language: Language) -> None:
    """Replace the table of the exercises in a page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(TABLE.sub(lambda _: table(language), text, count=1), encoding="utf-8")


if __name__ == "__main__":
    for language in LANGUAGES:
        draw(DOCS / "learn" / "pictures" / language, language)
        draw_pieces(DOCS / "learn" / "pictures" / language, language)
        write_table(DOCS / ("ko" if language == "ko" else "") / "practice.md", language)
