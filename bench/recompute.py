"""Memory and time of training with and without `--recompute`: python bench/recompute.py

Each row is `jumok train` in a process of its own, on built-in stories: the peak resident memory that the system counted
for it, with Python and PyTorch, and the shortest time of a step. With and without take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from jumok.corpora import stories

SHAPES = {
    "4 blocks, width 256, 16 × 256 tokens": ["--size", "micro"],
    "12 blocks, width 256, 16 × 256 tokens": ["--n-layer", "12", "--n-embd", "256"],
    "4 blocks, width 256, 4 × 2,048 tokens": ["--size", "micro", "--context-length", "2048", "--batch-size", "4"],
}
ALONE = [
    "--optimizer", "adamw", "--precision", "float32", "--attention", "chunked", "--compile", "off", "--dropout", "0.1",
    "--tokenizer", "char", "--val", "0", "--sample-tokens", "0", "--json", "--quiet",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    print(f"python {' '.join(sys.argv)}: {os.cpu_count()} cores")
    print("| shape | memory | with --recompute | s per step | with --recompute | times |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "stories.txt"
        text.write_text("".join(stories.write(500_000)), encoding="utf-8")
        for shape, options in SHAPES.items():
            found = [(train(text, options, args.steps), train(text, [*options, "--recompute"], args.steps))
                     for _ in range(args.rounds)]  # fmt: skip
            memory = [min(each[which][0] for each in found) for which in (0, 1)]
            seconds = [min(each[which][1] for each in found) for which in (0, 1)]
            row = [shape, *(f"{size / 1e6:,.0f} MB" for size in memory), *(f"{each:.3f}" for each in seconds)]
            print("| " + " | ".join([*row, f"{seconds[1] / seconds[0]:.2f}"]) + " |", flush=True)


def train(text: Path, options: list[str], steps: int) -> tuple[int, float]:
    """Bytes, and the seconds of the shortest step but for the first one."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "jumok", "train", str(text), "--out", f"{name}/run", "--steps", str(steps)]
        process = subprocess.Popen([*command, *ALONE, *options], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(options)}: jumok train ended with {status}")
        lines = Path(f"{name}/run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        seconds = [event["seconds"] for event in map(json.loads, lines) if event["event"] == "step"]
        each = [after - before for before, after in itertools.pairwise(seconds)]
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), min(each)


if __name__ == "__main__":
    main()
