"""Memory of training a model with and without adapters: python bench/lora_memory.py

A model of random parameters is saved (125 million parameters: the shape of GPT-2; 350 million: that of its next size),
and each way trains it for a few steps of the same batches, in a process of its own: all parameters with Muon and with
AdamW, and adapters of rank 8. Told is the peak of the memory of the process, twice: while it starts, with the model of
--init in memory, and while it trains (VmHWM, which begins anew before the first step; pages of mapped files count), and
the seconds of a step. Nothing is left to be measured before the run, which would build the model once more. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

from jumok.device import choose_device
from speed import describe

SHAPES = {  # of the modern family, with a vocabulary of 32,000
    "125M": {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 256},
    "350M": {"n_layer": 24, "n_head": 16, "n_embd": 1024, "context_length": 256},
}
WAYS = {"muon": [], "adamw": ["--optimizer", "adamw"], "lora": ["--lora", "8"]}

MAKE = """
import sys, json, torch, jumok
from jumok import tokenizers
from jumok.corpora import stories
text = "".join(stories.write(60_000))
open(sys.argv[2], "w", encoding="utf-8").write(text)
tokenizer = jumok.train_tokenizer(text, "char")
model = jumok.GPT(jumok.GPTConfig(vocab_size=32_000, **json.loads(sys.argv[3])))
model.tokenizer = tokenizer
jumok.save(model, sys.argv[1])
print(model.parameter_count())
"""
TRAIN = """
import os, sys, time
from pathlib import Path
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

init, text, out, steps, batch, *flags = sys.argv[1:]
settings = dict(zip((flag.removeprefix("--") for flag in flags[::2]), flags[1::2]))
if "lora" in settings:
    settings["lora"] = int(settings["lora"])
settings |= {"steps": int(steps), "batch_size": int(batch), "compile": "off", "precision": "float32",
             "attention": "chunked", "sample_tokens": 0, "eval_every": 10**6, "val": 0.01}

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

trainer = Trainer.start(Path(out), Path(text), **configurations(settings, init=init), init=init, device="cpu")
started = peak()
Path("/proc/self/clear_refs").write_text("5")
times = []
began = time.perf_counter()
for event in trainer.run():
    if type(event).__name__ == "Step":
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
        if event.step == int(steps):
            print(f"{started:.0f} {peak():.0f} {min(times):.2f}", flush=True)
            os._exit(0)  # neither validated nor saved
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1, help="windows of 256 tokens")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="to train; lora: of rank 8")
    args = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    print(describe(choose_device()))
    print(f"batch {args.batch} x 256 tokens, {args.threads} threads, float32, seed 0")
    for name in args.shapes:
        with tempfile.TemporaryDirectory() as folder:
            init, text = f"{folder}/init", f"{folder}/text.txt"
            made = call([sys.executable, "-c", MAKE, init, text, json.dumps(SHAPES[name])], environment)
            print(f"{name}: {int(made):,} parameters", flush=True)
            for way in args.ways:
                given = [init, text, f"{folder}/{way}", str(args.steps), str(args.batch), *WAYS[way]]
                start, training, seconds = call([sys.executable, "-c", TRAIN, *given], environment).split()
                print(f"  {way:6} start {start:>6} MB, training {training:>6} MB, {seconds} s a step", flush=True)


def call(command: list[str], environment: dict[str, str]) -> str:
    """The last line that a process prints."""
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
