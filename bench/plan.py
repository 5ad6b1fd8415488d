"""What `jumok plan` predicts against what training takes, in 1, 2 and 4 processes: python bench/plan.py

    python bench/plan.py --recompute
    python bench/plan.py --shard --processes 2 4

Memory: all tensors of rank 0 that are alive are counted at every operation of two real steps, and their largest sum is
the measured peak; with --shard the model is gathered once in between, as for a validation. The count is exact for
tensors, and does not see the insides of kernels, of gloo and of the allocator.

Time: each process measures the parts of a step (`jumok.training.planning.rehearsal`) with its rows and its threads, all
processes at the same time, because they share the machine; the slowest one counts. The time of the exchange is the
bytes that are sent, divided by the speed of an all-reduce among the same processes just before. Then real steps are
taken. Predictions and steps take turns in several launches, and the shortest time of each is taken, because other
programs can only lengthen it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jumok import text as reader
from jumok.config import ModelConfig, TrainConfig
from jumok.corpora import stories
from jumok.processors import processors
from jumok.runs.events import Step
from jumok.training.distributed import World
from jumok.training.follower import follow
from jumok.training.joining import joined
from jumok.training.planning.activations import Pass
from jumok.training.planning.footprint import memory, sizes_of
from jumok.training.planning.rehearsal import Rehearsal, rehearse
from jumok.training.planning.work import all_reduce_bytes, exchanged_bytes
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

CPU = torch.device("cpu")
SENT = 1 << 22  # floats, to measure the speed of the exchange
ALONE: dict[str, Any] = {
    "steps": 100_000, "val": 0.0, "eval_every": 1_000_000, "sample_tokens": 0, "save_every": 1e9, "dropout": 0.0,
    "attention": "chunked", "compile": "off", "patience": 0,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "nano, modern": {"size": "nano", "precision": "float32"},
    "nano, bfloat16, accumulate 2": {"size": "nano", "precision": "bfloat16", "accumulate": 2},
    "micro, classic, dropout": {"size": "micro", "family": "classic", "precision": "float32", "dropout": 0.1,
                                "batch_size": 8},
    "long context": {"n_layer": 2, "n_embd": 128, "context_length": 1024, "batch_size": 4, "precision": "float32"},
    "large vocabulary": {"size": "nano", "precision": "float32", "tokenizer_options": {"alphabet": "hangul"}},
    "small": {"size": "small", "precision": "bfloat16", "batch_size": 4},
    "classify": {"task": "classify", "n_embd": 128, "n_layer": 2, "context_length": 64, "batch_size": 16,
                 "precision": "float32", "token_dropout": 0.0},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append", help="repeatable [all]")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--rounds", type=int, default=2, help="launches of each row")
    parser.add_argument("--steps", type=int, default=6, help="of each launch")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.out:
        work(args)
        return
    cores = processors()
    print(f"python {' '.join(sys.argv)}: {cores} cores, torch {torch.__version__}")
    print("| shape | processes | peak, predicted | measured | difference | step, predicted | measured | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.case or CASES:
        for count in args.processes:
            found = [launch(name, count, max(1, cores // count), args) for _ in range(args.rounds)]
            print("| " + " | ".join([name, str(count), *cells(found)]) + " |", flush=True)


def launch(name: str, count: int, threads: int, args: argparse.Namespace) -> dict[str, float]:
    """The figures of one run in so many new processes."""
    with TemporaryDirectory(prefix="jumok-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, __file__, "--case", name, "--steps", str(args.steps), "--out", f"{folder}/run"]
        command += ["--recompute"] * args.recompute + ["--shard"] * args.shard
        given = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": threads}
        common = {**os.environ, **{key: str(value) for key, value in given.items()}, "OMP_WAIT_POLICY": "PASSIVE"}
        ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(count)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            raise SystemExit(f"{name}, {count} processes: failed")
        figures: dict[str, float] = json.loads(Path(f"{folder}/run.json").read_text(encoding="utf-8"))
        return figures


def cells(found: list[dict[str, float]]) -> list[str]:
    """Megabytes and milliseconds."""
    kinds = (("peak", "alive", 1e6, "MB"), ("predicted", "step", 1e-3, "ms"))
    row = []
    for predicted, measured, unit, name in kinds:
        one, other = (min(figures[kind] for figures in found) / unit for kind in (predicted, measured))
        row += [f"{one:,.1f} {name}", f"{other:,.1f} {name}", f"{one / other - 1:+.1%}"]
    return row


# --- in each process --------------------------------------------------------------------------------------------------


def work(args: argparse.Namespace) -> None:
    """Measure the parts of a step, then take steps; rank 0 writes the figures."""
    settings = {**ALONE, **CASES[args.case[0]], "recompute": args.recompute, "shard": args.shard}
    with joined() as world:
        shape, config, begin = prepared(args.out, settings, world)
        one = Pass(
            rows=-(-config.batch_size // world.size),
            length=shape.context_length,
            size=4 if config.precision == "float32" else 2,
            attention="chunked",
            recompute=config.recompute,
        )
        sizes, options = sizes_of(shape, config), {"devices": world.size, "shard": config.shard}
        predicted = slowest(world, shape, config, one)
        if world.size > 1:
            predicted += exchanged_bytes(sizes, config, one, **options) * seconds_per_byte(world)  # type: ignore[arg-type]
        if world.rank:
            follow(world, CPU)
            return
        peak = memory(shape, config, one, accumulate=config.accumulate, **options).peak  # type: ignore[arg-type]
        figures = {"peak": peak, "predicted": predicted, **taken(begin(), args.steps)}
        args.out.with_suffix(".json").write_text(json.dumps(figures), encoding="utf-8")


def slowest(world: World, shape: ModelConfig, config: TrainConfig, one: Pass) -> float:
    """Seconds of the passes and of the update of a step, without what is sent, in the slowest process."""

    def of_step(found: Rehearsal) -> float:
        return config.accumulate * found.of_passes(one) + found.of_update(world.size)

    found = [of_step(rehearse(shape, config, one, CPU))] * world.size
    if world.size > 1:
        dist.all_gather_object(found, found[0])
    return max(found)


def seconds_per_byte(world: World) -> float:
    """The reciprocal of the speed of an all-reduce."""
    flat, times = torch.ones(SENT), []
    for _ in range(5):
        dist.barrier()
        began = perf_counter()
        dist.all_reduce(flat)
        times.append(perf_counter() - began)
    return min(times) / all_reduce_bytes(4 * SENT, world.size)


def taken(trainer: Trainer, steps: int) -> dict[str, float]:
    """The peak of two steps, and the seconds of the shortest of several ones."""
    with trainer:
        run = trainer._run
        events, times = (event for event in trainer.run() if isinstance(event, Step)), []
        with Alive(run.trained) as alive:
            list(islice(events, 2))
            with run.whole():
                pass
        for _ in range(steps):
            began = perf_counter()
            next(events)
            times.append(perf_counter() - began)
        trainer.request_stop()
        list(events)
    return {"alive": alive.peak, "step": min(times)}


def prepared(
    out: Path, settings: dict[str, Any], world: World
) -> tuple[ModelConfig, TrainConfig, Callable[[], Trainer]]:
    """The configurations of a run of nothing but steps, on built-in stories, and how to begin it.

    Texts to classify fill the context.
    """
    size, options = settings.pop("size", None), settings.pop("tokenizer_options", {})
    tales = "".join(stories.write(300_000))
    text: Any = reader.from_string(tales, name="stories")
    if settings.get("task") == "classify":
        wide = 2 * settings["context_length"]
        pieces = [tales[at : at + wide] for at in range(0, len(tales) - wide, wide)]
        text = reader.from_rows(["text", "label"], [(piece, str(n % 2)) for n, piece in enumerate(pieces)])

    def begin(out: Path, world: World) -> Trainer:
        given = configurations(settings, size=size)
        return Trainer.start(out, text, **given, tokenizer="char", tokenizer_options=options, device="cpu", world=world)

    alone = out.with_name(f"alone-{world.rank}")  # for the vocabulary and the labels
    with begin(alone, World()) as trainer:
        shape, config = trainer.model.config, trainer.config
    return shape, config, lambda: begin(out, world)


class Alive(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive; `peak` is the most there were."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.peak = 0
        for tensor in model.parameters():
            self._add(tensor)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor)
        # Shards are freed by a storage of size 0, so sizes are read anew.
        living = [storage for one in self.storages.values() if (storage := one()) is not None]
        self.peak = max(self.peak, sum(storage.nbytes() for storage in living))
        return found

    def _add(self, tensor: torch.Tensor) -> None:
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        key = storage._cdata
        if key in self.storages and self.storages[key]() is not None:
            return
        self.storages[key] = weakref.ref(storage, lambda _: self.storages.pop(key, None))


if __name__ == "__main__":
    main()
