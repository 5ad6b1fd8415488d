"""The recipe on any language beside a minimal loop and compressors: python bench/languages.py TEXT... --minutes 4

For each text, one after the other, each in a process of its own: `jumok train TEXT --minutes M` and no other option;
a minimal loop for as many minutes; compressors. The last tenth is held out, and both models predict each of its
characters once, in windows of their own context length that move on by half of it.

The minimal loop is bench/plain_gpt.py with the model of `SHAPE`, batches of `BATCH` in float32 and AdamW at 1e-3, which
rises over the first steps and falls to a tenth along a cosine, as nanoGPT has it. It is not compiled, and keeps the
parameters of its last step. Its vocabulary is all characters of the text, the held-out part included. That is a gift:
jumok has ids for the characters of the training part alone, and spells others in bytes. The minutes of the loop begin
after its imports, and those of jumok with its process. A compressor learns while it reads the held-out part, which
neither of the two does.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from compressors import COMPRESSORS, HELD_OUT, PROGRAMS, nats_per_char
from jumok import text as reader
from jumok.evaluation.language_model import cut, windows
from plain_gpt import PlainGPT, PlainTraining
from speed import describe

SHAPE = {"context": 64, "layers": 4, "heads": 4, "width": 128}  # of nanoGPT on a CPU, and the better of two
BATCH = 12
RATE, LOWEST, WARMUP = 1e-3, 0.1, 0.05  # the rate; its last value as a share of it; share of the time in which it rises
HEADING = "| text | characters | ids | jumok | minimal loop | best compressor |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+", metavar="TEXT")
    parser.add_argument("--minutes", type=float, default=4, help="of each training [4]")
    parser.add_argument("--minimal-only", action="store_true", help="the minimal loop alone, on the first text")
    given = parser.parse_args()
    if given.minimal_only:
        print(json.dumps(minimal(given.texts[0], 60 * given.minutes)))
        return
    print(f"python {' '.join(sys.argv)}\n{describe(torch.device('cpu'))}\n\n{HEADING}\n{'|---' * 6}|", flush=True)
    for file in given.texts:
        print(row(file, given.minutes), flush=True)


def row(path: Path, minutes: float) -> str:
    """Train both on a text, and return the line of the table."""
    before, after = parts(path)
    with TemporaryDirectory() as folder:
        ours = jumok(path, after, minutes, Path(folder))
    command = [sys.executable, __file__, str(path), "--minutes", str(minutes), "--minimal-only"]
    theirs = json.loads(run(command).splitlines()[-1])
    best = min(compressed(before, after), default=None)
    cells = [
        path.stem,
        f"{len(before) + len(after):,}",
        f"{ours['ids']:,}",
        f"**{ours['nats']:.3f}**, {ours['steps']:,} steps",
        f"{theirs['nats']:.3f}, {theirs['steps']:,} steps",
        f"{best[0]:.3f}, {best[1]}" if best else "none installed",
    ]
    return f"| {' | '.join(cells)} |"


def parts(path: Path) -> tuple[str, str]:
    """The text that is trained on, and the last tenth, as `jumok train` divides them."""
    whole = reader.read(path)
    middle = whole.chars - round(HELD_OUT * whole.chars)
    return whole.read(0, middle), whole.read(middle)


def jumok(path: Path, held_out: str, minutes: float, folder: Path) -> dict[str, Any]:
    """The recipe: nats per character, steps, and ids of the tokenizer."""
    (folder / "held_out.txt").write_text(held_out, encoding="utf-8", newline="")
    command = [sys.executable, "-m", "jumok.cli"]
    out = folder / "run"
    run([*command, "train", str(path), "--minutes", str(minutes), "--out", str(out)])
    figures = json.loads(run([*command, "evaluate", str(out), str(folder / "held_out.txt"), "--json"]).splitlines()[-1])
    assert figures["chars"] == len(held_out), "both must be judged on the same characters"
    steps = [json.loads(line).get("step", 0) for line in (out / "metrics.jsonl").read_text().splitlines()]
    model = json.loads((out / "config.json").read_text())["model"]
    return {"nats": figures["nats_per_char"], "steps": max(steps), "ids": model["vocab_size"]}


def minimal(path: Path, seconds: float) -> dict[str, Any]:
    """Train the minimal loop in this process: nats per character, and steps."""
    torch.manual_seed(0)
    before, after = parts(path)
    ids_of = {character: i for i, character in enumerate(sorted({"\n", *before, *after}))}
    ids = torch.tensor([ids_of[character] for character in before])
    context = SHAPE["context"]

    def batch(_: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(ids) - context, (BATCH, 1)) + torch.arange(context + 1)
        return ids[rows[:, :-1]], ids[rows[:, 1:]]

    model = PlainGPT(len(ids_of), **SHAPE)
    training = PlainTraining(model, batch, "float32", torch.device("cpu"))
    began = time.monotonic()
    while (done := (time.monotonic() - began) / seconds) < 1:
        for group in training.optimizer.param_groups:
            group["lr"] = RATE * share_of_rate(done)
        training.step()
    return {"nats": judge(model, [ids_of[c] for c in after], ids_of["\n"]), "steps": len(training.losses)}


def share_of_rate(done: float) -> float:
    """The learning rate of nanoGPT as a share of the highest. done: share of the time."""
    if done < WARMUP:
        return (done + 0.001) / (WARMUP + 0.001)
    return LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * (done - WARMUP) / (1 - WARMUP))) / 2


@torch.inference_mode()
def judge(model: PlainGPT, ids: list[int], before: int) -> float:
    """Nats per token of ids that stand after `before`, in the windows of `jumok evaluate`."""
    context = min(SHAPE["context"], len(ids))
    every = torch.tensor(ids).numpy()
    total = 0.0
    for start, first in windows(len(ids), context, max(1, context // 2)).tolist():
        block = torch.from_numpy(cut(every, [before], start, start + context + 1))[None]  # (1, T+1)
        losses = F.cross_entropy(model(block[:, :-1])[0], block[0, 1:], reduction="none")  # (T,)
        total += losses[first - start :].sum().item()
    return total / len(ids)


def compressed(before: str, after: str) -> Iterator[tuple[float, str]]:
    """Nats per character of UTF-8, and the name, of each compressor that is installed."""
    for name, size in COMPRESSORS.items():
        program = name.split()[0]
        if program not in PROGRAMS or shutil.which(program):
            yield nats_per_char(size, before, after, "utf-8"), name


def run(command: list[str]) -> str:
    """Standard output of a program, which must end well."""
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


if __name__ == "__main__":
    main()
