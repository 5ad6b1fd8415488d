"""Several processes on this machine: that they learn the same as one, and how fast they are.

    python bench/distributed.py                 # agreement and speed; some minutes on two slow cores
    python bench/distributed.py --only speed    # or agreement
    python bench/distributed.py --quick         # few steps, to see that it runs

Agreement: the largest relative difference of the losses of 2 and of 4 processes from those of one, for each task, with
two batches in a step, without dropout, with AdamW and with Muon. In float64, RMSNorm included, whose statistics are
float32 otherwise, what is left is rounding. In float32 each
difference of the last bit grows from step to step, as it does between any two orders of summation; the column "threads"
shows one process with one thread against one with two, which is the same computation in another order.

Speed: tokens a second of one process with all cores, and of two and four that share them, with and without shards, and
the seconds of a process in Muon. One process pays for three calls that do nothing; their time is shown, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from jumok import text as reader
from jumok.corpora import stories
from jumok.models import build
from jumok.nn.layers import RMSNorm
from jumok.processors import processors
from jumok.runs.events import Step
from jumok.text import Table, Text
from jumok.training import start
from jumok.training.distributed import Command, Order, World
from jumok.training.follower import follow
from jumok.training.joining import joined
from jumok.training.optim import Muon
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

TASKS = ("lm", "mlm", "classify", "seq2seq")
# Steps and nothing else; one passes over batches of a few short rows, so that some ranks have no row of a part.
SMALL: dict[str, Any] = {
    "n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 24, "batch_size": 6, "accumulate": 2, "dropout": 0.0,
    "val": 0.0, "sample_tokens": 0, "save_every": 1e9, "compile": "off", "attention": "fused", "precision": "float32",
}  # fmt: skip
LARGE = {**SMALL, "n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256, "batch_size": 8, "accumulate": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("agreement", "speed"))
    parser.add_argument("--cases", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="float32", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cases:
        work(options.cases, options.dtype)
        return
    steps = 3 if options.quick else options.steps
    print(f"python {' '.join(sys.argv)}", flush=True)
    if options.only != "speed":
        show_agreement(steps)
    if options.only != "agreement":
        show_speed(3 if options.quick else 12)
    print(f"one process: {idle_microseconds():.1f} µs a step for what only several processes need")


def show_agreement(steps: int) -> None:
    cases = {
        f"{task} {optimizer}": {"task": task, "optimizer": optimizer, "steps": steps}
        for task in TASKS
        for optimizer in ("adamw", "muon")
    }
    print(f"\n{steps} steps: largest relative difference from the losses of one process")
    print("| dtype | task | optimizer | 2 processes | 4 processes | threads |\n|---|---|---|---|---|---|")
    for dtype in ("float64", "float32"):
        one, *others = (launch(count, cases, dtype) for count in (1, 2, 4))
        others.append(launch(1, {name: {**case, "threads": 2} for name, case in cases.items()}, dtype))
        for name in cases:
            found = (difference(runs[name]["losses"], one[name]["losses"]) for runs in others)
            print(f"| {dtype} | {' | '.join(name.split())} | {' | '.join(f'{value:.1e}' for value in found)} |")


def difference(losses: list[float], reference: list[float]) -> float:
    """The largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def show_speed(steps: int) -> None:
    cores = processors()
    case = {**LARGE, "task": "lm", "optimizer": "muon", "steps": steps}
    print("\n| processes | threads each | shards | tokens/s | seconds of a process in Muon |\n|---|---|---|---|---|")
    for count in (1, 2, 4):
        threads = max(1, cores // count)
        cases = {"no": {**case, "threads": threads}, "yes": {**case, "threads": threads, "shard": True}}
        for name, found in launch(count, cases if count > 1 else {"no": cases["no"]}).items():
            per_step = case["batch_size"] * case["context_length"]
            speed = f"{per_step / found['seconds']:,.0f}"
            print(f"| {count} | {threads} | {name} | {speed} | {found['muon']:.3f} |", flush=True)


def idle_microseconds(calls: int = 10_000) -> float:
    """What the calls of a step cost that do nothing in a process alone."""
    world, model, part = World(), torch.nn.Linear(2, 2), (torch.zeros(4, 2),)
    began = time.perf_counter()
    for number in range(calls):
        with world.command(Order(command=Command.STEP, number=number, rate=0.5)):
            world.share(part)
            world.sum_gradients(model, [0.0])
    return 1e6 * (time.perf_counter() - began) / calls


# --- the processes ----------------------------------------------------------------------------------------------------


def launch(count: int, cases: Mapping[str, Mapping[str, Any]], dtype: str = "float32") -> dict[str, Any]:
    """Run all cases, one after the other, in so many processes; what `measured` returns for each."""
    with TemporaryDirectory(prefix="jumok-") as folder:
        path = Path(folder) / "cases.json"
        path.write_text(json.dumps(cases), encoding="utf-8")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        command = [*torchrun, __file__, "--cases", str(path), "--dtype", dtype]
        done = subprocess.run(
            command,
            env={"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        found: dict[str, Any] = json.loads(path.with_suffix(".found").read_text(encoding="utf-8"))
        return found


def work(path: Path, dtype: str) -> None:
    """Run the cases of a file, in each process of a launch."""
    cases = json.loads(path.read_text(encoding="utf-8"))
    with joined() as world:
        start.build = lambda shape: build(shape).to(getattr(torch, dtype))  # type: ignore[attr-defined]
        if dtype == "float64":
            RMSNorm.forward = exact_norm  # type: ignore[method-assign]
        if world.rank:
            follow(world, torch.device("cpu"))
            return
        found = {}
        for name, case in cases.items():
            found[name] = measured(world, path.parent / name.replace(" ", "-"), **case)
        path.with_suffix(".found").write_text(json.dumps(found), encoding="utf-8")


def exact_norm(self: RMSNorm, x: Tensor) -> Tensor:
    """`RMSNorm` in the dtype of x. In float32 it turns a difference of 1e-16 into one of 1e-8, or into none."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def measured(world: World, out: Path, *, task: str, steps: int, threads: int = 1, **settings: Any) -> dict[str, Any]:
    """The losses of a run, the median seconds of its steps, and those that this process spends in Muon."""
    torch.set_num_threads(threads)
    given = {**SMALL, **settings, "task": task, "steps": steps, "eval_every": steps + 1}
    losses, seconds, muon = [], [], 0.0
    source: Any = material(task)
    with Trainer.start(out, source, **configurations(given), device="cpu", world=world) as trainer:
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, Muon):
                spent = timed(optimizer)
        began = time.perf_counter()
        for event in trainer.run():
            if isinstance(event, Step):
                losses.append(event.loss)
                seconds.append(time.perf_counter() - began)
                began = time.perf_counter()
    if settings["optimizer"] == "muon":
        muon = statistics.median(spent)
    return {"losses": losses, "seconds": statistics.median(seconds[1:]), "muon": muon}


def timed(optimizer: Muon) -> list[float]:
    """The seconds of each step of an optimizer, which the list gets as they are taken."""
    plain, spent = optimizer.step, []

    def step(*arguments: Any) -> None:
        began = time.perf_counter()
        plain(*arguments)
        spent.append(time.perf_counter() - began)

    optimizer.step = step  # type: ignore[method-assign]
    return spent


def material(task: str) -> Text | Table:
    """Something to learn, with rows of very different lengths."""
    if task in ("lm", "mlm"):
        return reader.from_string("".join(stories.write(12_000, seed=1)))
    return reader.from_rows(("text", "label") if task == "classify" else ("source", "target"), list(rows(task)))


def rows(task: str) -> Iterator[tuple[str, str]]:
    draw = random.Random(1)
    for _ in range(80):
        number = str(draw.randrange(10 ** draw.randrange(1, 9)))
        if task == "classify":
            yield f"수 {number} {'참 ' * draw.randrange(4)}", "짝" if int(number[-1]) % 2 == 0 else "홀"
        else:
            yield number, " ".join("영일이삼사오육칠팔구"[int(digit)] for digit in number)


if __name__ == "__main__":
    main()
