"""What compressors need for the last tenth of a text: python bench/compressors.py novels.txt

The size of the whole text less that of its first nine tenths, in nats per character. A compressor goes on learning
while it reads the held-out part, which favours it: a figure of `jumok evaluate`
is that of a model that stays as it is. PPMd is that of 7-Zip (Debian package 7zip), zpaq has the package zpaq; xz and
bzip2 come with Python. CP949 writes a syllable in two bytes, UTF-8 in three. What CP949 lacks is written as &#number;.

zpaq chooses its model by the content of a file. For novels in CP949 it chose differently for the whole and for the
first nine tenths (2.853 and 2.914 nats per character), so their difference, 2.308, is no measure, and only UTF-8 is
given (2.867 and 2.896).
"""

from __future__ import annotations

import argparse
import bz2
import lzma
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from jumok import text as reader
from jumok.errors import JumokError

HELD_OUT = 0.1  # as `jumok train` holds out
ORDER, MEMORY = 6, "256m"  # of PPMd
PROGRAMS = {"7zz": "7zip", "zpaq": "zpaq"}  # Debian packages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    given = parser.parse_args()
    whole = reader.read(given.text)
    cut = whole.chars - round(HELD_OUT * whole.chars)
    before, after = whole.read(0, cut), whole.read(cut, whole.chars)
    print(f"{len(before):,} characters, then {len(after):,}\n\n| compressor | encoding | nats/char |\n|---|---|---|")
    for name, size in COMPRESSORS.items():
        for encoding in ENCODINGS.get(name, ("cp949", "utf-8")):
            program = name.split()[0]
            if program in PROGRAMS and not shutil.which(program):
                print(f"| {name} | {encoding} | not installed: Debian package {PROGRAMS[program]} |")
            else:
                print(f"| {name} | {encoding} | {nats_per_char(size, before, after, encoding):.3f} |", flush=True)


def nats_per_char(size: Callable[[bytes], int], before: str, after: str, encoding: str) -> float:
    """What `after` adds to the compressed size of `before`.

    Args:
        size: of some bytes when compressed.
    """
    first, both = (part.encode(encoding, "xmlcharrefreplace") for part in (before, before + after))
    return 8 * (size(both) - size(first)) * math.log(2) / len(after)


def _size_by(command: list[str], archive: str) -> Callable[[bytes], int]:
    """That of the archive that a program makes of a file named "text"."""

    def size(content: bytes) -> int:
        with TemporaryDirectory() as folder:
            (Path(folder) / "text").write_bytes(content)
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            return (Path(folder) / archive).stat().st_size

    return size


COMPRESSORS: dict[str, Callable[[bytes], int]] = {
    f"7zz PPMd, order {ORDER}": _size_by(["7zz", "a", f"-m0=PPMd:o={ORDER}:mem={MEMORY}", "a.7z", "text"], "a.7z"),
    "zpaq -m5": _size_by(["zpaq", "a", "a.zpaq", "text", "-m5"], "a.zpaq"),
    "xz -9e": lambda content: len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)),
    "bzip2 -9": lambda content: len(bz2.compress(content)),
}
ENCODINGS = {"zpaq -m5": ("utf-8",)}  # [both]

if __name__ == "__main__":
    try:
        main()
    except JumokError as error:
        sys.exit(str(error))
