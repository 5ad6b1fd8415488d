"""The same text, the same minutes, four tokenizers: bits per character on the held-out tenth at its end.

    python bench/tokenizers_compared.py novels.txt --minutes 10                  # 41 minutes, one run after the other
    python bench/tokenizers_compared.py novels.txt --minutes 10 --seeds 0 1 2    # two hours, with a range
    python bench/tokenizers_compared.py novels.txt --minutes 1 --together        # all at the same time, one thread each
    python bench/tokenizers_compared.py --table --out tokenizers                 # the tables again, nothing is trained

Each run is `jumok train` with the default settings but for the tokenizer, --val, --minutes and --patience 0. The
minutes include training the tokenizer. Then `jumok evaluate` predicts each character of the held-out part once, and
draws the loss by position of the runs of the first seed. The order of the tokenizers moves on by one from seed to seed,
so that each has its turn when the machine is slow.

Everything is in the folder --out. A command that was stopped goes on where it was when it is given again: finished runs
are kept, others are resumed. results.json has all figures, and the tables in English and Korean are made from it alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jumok.device import choose_device
from jumok.text import read
from speed import describe

TOKENIZERS: dict[str, list[str]] = {
    "char": ["--tokenizer", "char"],
    "jamo": ["--tokenizer", "jamo"],
    "bpe-2000": ["--tokenizer", "bpe", "--vocab-size", "2000"],
    "bpe-8000": ["--tokenizer", "bpe", "--vocab-size", "8000"],
}
HELD_OUT = 0.1
JUMOK = [sys.executable, "-m", "jumok.cli"]
HEADINGS = {
    "en": ("tokenizer", "vocabulary", "parameters", "tokens per character", "characters in the context",
           "passes over the text", "bits per character", "bits per byte"),
    "ko": ("토크나이저", "어휘 크기", "파라미터", "글자당 토큰 수", "컨텍스트의 글자 수", "텍스트를 본 횟수",
           "글자당 비트", "바이트당 비트"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", help="a text file")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("tokenizers"), help="folder of the runs and the results")
    parser.add_argument("--together", action="store_true", help="all runs of a seed at the same time, one thread each")
    parser.add_argument("--table", action="store_true", help="print the tables of the results in --out")
    args = parser.parse_args()
    if not args.table:
        if args.text is None:
            parser.error("name a text file")
        prepare(args.text, args.out, {"minutes": args.minutes, "together": args.together})
        for turn, seed in enumerate(args.seeds):
            names = list(TOKENIZERS)
            turned = names[turn % len(names) :] + names[: turn % len(names)]
            train(args.out, turned, seed, minutes=args.minutes, together=args.together)
            evaluate(args.out, seed, picture=turn == 0)
    show(json.loads((args.out / "results.json").read_text(encoding="utf-8")))


def prepare(text: str, out: Path, settings: dict[str, Any]) -> None:
    """Divide the text in two files, and begin results.json; the folder of other settings is refused."""
    given = "".join(read([text]).chunks())
    start = len(given) - int(HELD_OUT * len(given))
    about = {
        "text": Path(text).name, "sha256": hashlib.sha256(given.encode()).hexdigest(), "chars": len(given),
        "held_out_chars": len(given) - start, **settings,
    }  # fmt: skip
    results = out / "results.json"
    if results.exists():
        found = json.loads(results.read_text(encoding="utf-8"))
        if any(found[name] != value for name, value in about.items()):
            raise SystemExit(f"{out} holds the runs of another text or with other minutes; choose another --out.")
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / "train.txt").write_text(given[:start], encoding="utf-8")
    (out / "held-out.txt").write_text(given[start:], encoding="utf-8")
    results.write_text(json.dumps({**about, "machine": describe(choose_device()), "runs": {}}), encoding="utf-8")


def train(out: Path, names: list[str], seed: int, *, minutes: float, together: bool) -> None:
    """Train a run with each tokenizer, or finish those that were begun."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if together else None
    waiting = []
    for name in names:
        folder = out / f"{name}-{seed}"
        config = folder / "config.json"
        if config.exists():
            if "finished" in json.loads(config.read_text(encoding="utf-8")):
                continue
            command = [*JUMOK, "train", "--resume", "--out", str(folder)]
        else:
            text = [str(out / "train.txt"), "--val", str(out / "held-out.txt"), *TOKENIZERS[name]]
            length = ["--minutes", str(minutes), "--patience", "0", "--seed", str(seed)]
            command = [*JUMOK, "train", *text, *length, "--out", str(folder)]
        print(f"training {folder.name}", flush=True)
        log = (out / f"{folder.name}.log").open("a", encoding="utf-8")
        waiting.append((folder, subprocess.Popen(command, env=environment, stdout=log, stderr=log)))
        if not together:
            waiting[-1][1].wait()
    for folder, process in waiting:
        if process.wait() != 0:
            raise SystemExit(f"{folder.name} failed; see {folder}.log")


def evaluate(out: Path, seed: int, *, picture: bool) -> None:
    """Evaluate the runs of a seed in one table, and add their figures to results.json."""
    runs = [str(out / f"{name}-{seed}") for name in TOKENIZERS]
    where = ["--picture", str(out / ("loss-by-position.png" if picture else f"loss-by-position-{seed}.png"))]
    done = subprocess.run(
        [*JUMOK, "evaluate", *runs, str(out / "held-out.txt"), *where, "--json"],
        stdout=subprocess.PIPE, encoding="utf-8", check=True,
    )  # fmt: skip
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for found in json.loads(done.stdout.splitlines()[-1])["models"]:
        config = json.loads((Path(found["run"]) / "config.json").read_text(encoding="utf-8"))
        training, context = config["train"], config["model"]["context_length"]
        read_tokens = config["finished"]["step"] * training["batch_size"] * training["accumulate"] * context
        results["runs"][found["name"]] = {
            **{name: value for name, value in found.items() if name != "run"},
            "seed": seed,
            "steps": config["finished"]["step"],
            "passes": read_tokens / config["data"]["train_tokens"],
            "vocab_size": config["model"]["vocab_size"],
            "context_length": context,
        }
    (out / "results.json").write_text(json.dumps(results, ensure_ascii=False, indent=1), encoding="utf-8")


def show(results: dict[str, Any]) -> None:
    """Print what was measured, and the table for the documents in both languages."""
    print(results["machine"])
    seeds = sorted({run["seed"] for run in results["runs"].values()})
    together = "at the same time, one thread each" if results["together"] else "one after the other"
    print(
        f"{results['text']}, {results['chars']:,} characters, {results['held_out_chars']:,} of them held out; "
        f"{results['minutes']:g} minutes each, {together}; seeds {', '.join(map(str, seeds))}"
    )
    for headings in HEADINGS.values():
        print(f"\n| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
        for name in TOKENIZERS:
            runs = [run for key, run in results["runs"].items() if key.rpartition("-")[0] == name]
            if runs:
                print(f"| {' | '.join(row(name, runs))} |")


def row(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """The cells of a tokenizer: means over the seeds, with the range of the figure that is compared."""
    kind, first = f"`{name.partition('-')[0]}`", runs[0]

    def mean(figure: str) -> float:
        return float(sum(run[figure] for run in runs) / len(runs))

    bits = f"**{mean('bits_per_char'):.3f}**"
    if len(runs) > 1:
        low, high = (pick(run["bits_per_char"] for run in runs) for pick in (min, max))
        bits += f" ({low:.3f}–{high:.3f})"
    chars = first["context_length"] / first["tokens_per_char"]
    return [
        kind, f"{first['vocab_size']:,}", f"{first['parameters'] / 1e6:.1f} M", f"{first['tokens_per_char']:.2f}",
        f"{chars:.0f}", f"{mean('passes'):.1f}", bits, f"{mean('bits_per_byte'):.3f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
