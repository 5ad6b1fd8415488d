"""Peak memory of training on a text of a given size, file and all: python bench/memory.py --gigabytes 1

Writes such a text from the built-in corpus (other tales all the way), trains a few steps on it in a process of its
own, and prints the peak resident memory that the system counted for it.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jumok.corpora import stories

BYTES_PER_CHAR = 2.45  # of the stories in UTF-8, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where the text and the run go [a temporary folder]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        text = folder / "stories.txt"
        with text.open("w", encoding="utf-8") as file:
            for tale in stories.write(int(args.gigabytes * 1e9 / BYTES_PER_CHAR)):
                file.write(tale)
        command = [sys.executable, "-m", "jumok.cli", "train", str(text), "--out", str(folder / "run")]
        command += ["--steps", str(args.steps), "--json", "--quiet"]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(f"{platform.platform()}, Python {platform.python_version()}")
        print(
            f"text {text.stat().st_size / 1e9:.2f} GB, {args.steps} steps of the default model, {seconds:.0f} s in all"
        )
        print(f"peak memory {peak / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
