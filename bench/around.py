"""Where the time of `jumok train` goes apart from its steps, by phases.

    python bench/around.py novels.txt --minutes 1 --out /tmp/run    # any arguments of jumok train
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python bench/around.py ...    # as without AVX-512 and AMX
    JUMOK_CACHE=/tmp/empty MPLCONFIGDIR=/tmp/empty python bench/around.py ...    # as on a new machine

It runs the command in this process with a stopwatch around the functions of `PHASES`. A phase is without the phases
inside it; what belongs to none is "rest"; "torch" is its import. Seconds are of the wall, and of this process's CPU
time (all threads). "at" is when the phase first began, since the process did: "first step" is the line of steps. An
interrupted run (`timeout -s INT 30 python bench/around.py ...`) prints what it has.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from jumok.cli.process import process_seconds
from jumok.memory import collecting_nothing
from jumok.processors import waiting_threads

PHASES = {
    "reading": ["jumok.cli.train_request:read_material"],
    "tokenizer": ["jumok.training.tasks.language_modelling:LanguageModelling.make_tokenizer"],
    "tokens": ["jumok.training.tasks.language_modelling:LanguageModelling.prepare"],
    "measuring": ["jumok.training.policy:measure_step"],
    "model": ["jumok.training.start:new_run"],
    "compiling": ["jumok.training.takeover:compile_training"],
    "steps": ["jumok.training.loop:Loop.take_step"],
    "validations": ["jumok.training.validation:Validation.figures"],
    "samples": ["jumok.training.tasks.language_modelling:LanguageModelling.sample"],
    "alarms": ["jumok.training.alarms:Alarms._findings"],
    "best parameters": ["jumok.training.validation:Validation.keep_best"],
    "saves": ["jumok.training.checkpoint:write_checkpoint"],
    "pictures": ["jumok.training.subscribers.pictures:Pictures._try"],
    "log": ["jumok.training.subscribers.event_log:EventLog.__call__"],
    "last figures": ["jumok.training.validation:Validation.final"],
}


class Stopwatch:
    """Seconds by phase, each without the phases inside it."""

    def __init__(self) -> None:
        self.wall, self.cpu = defaultdict[str, float](float), defaultdict[str, float](float)
        self.calls, self.first = defaultdict[str, int](int), dict[str, float]()
        self._stack, self._since = ["rest"], (time.perf_counter(), time.process_time())

    def _turn(self) -> None:
        wall, cpu = self._since
        self._since = time.perf_counter(), time.process_time()
        self.wall[self._stack[-1]] += self._since[0] - wall
        self.cpu[self._stack[-1]] += self._since[1] - cpu

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens in the block."""
        self._turn()
        self.first.setdefault(name, process_seconds())
        self.calls[name] += 1
        self._stack.append(name)
        try:
            yield
        finally:
            self._turn()
            self._stack.pop()

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted; the time of a generator is that of its steps."""

        @wraps(work)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.phase(name):
                found = work(*args, **kwargs)
                return list(found) if hasattr(found, "send") else found

        return counted


def heading() -> str:
    """Return the kind of processor, as PyTorch uses it: its speed depends on the instructions more than on its name."""
    import torch

    from jumok.device import describe_machine, multiplies_bfloat16
    from jumok.processors import processors

    cpu = torch.device("cpu")
    found = describe_machine(cpu)
    bfloat16 = "bfloat16 products" if multiplies_bfloat16(cpu) else "no bfloat16 products"
    return "{processor}, {cores} cores, {threads} threads, {instructions}, {bfloat16}".format(
        **found, cores=processors(), bfloat16=bfloat16
    )


def main() -> None:
    before = process_seconds()
    waiting_threads()
    watch = Stopwatch()
    with collecting_nothing(), watch.phase("torch"):
        importlib.import_module("torch")
    with collecting_nothing(), watch.phase("imports"):
        importlib.import_module("jumok.training.trainer")
        from jumok.cli import main as run_command

        for name, places in PHASES.items():
            for place in places:
                module, _, path = place.partition(":")
                owner = importlib.import_module(module)
                *parts, last = path.split(".")
                for part in parts:
                    owner = getattr(owner, part)
                if last in vars(owner):
                    work = vars(owner)[last]
                    static = isinstance(work, staticmethod | classmethod)
                    counted = watch.around(name, work.__func__ if static else work)
                    setattr(owner, last, type(work)(counted) if static else counted)
    try:
        sys.argv = ["jumok", "train", *sys.argv[1:]]
        run_command()
    finally:
        with watch.phase("rest"):
            pass
        print(heading(), file=sys.stderr)
        print(f"{'phase':16}{'at':>8}{'wall':>9}{'CPU':>9}{'times':>7}", file=sys.stderr)
        print(f"{'Python':16}{0:8.2f}{before:9.2f}", file=sys.stderr)
        for name in sorted(watch.wall, key=lambda name: watch.first.get(name, 0)):
            row = f"{name:16}{watch.first.get(name, 0):8.2f}{watch.wall[name]:9.2f}{watch.cpu[name]:9.2f}"
            print(f"{row}{watch.calls[name]:7}", file=sys.stderr)
        print(f"{'whole process':16}{process_seconds():17.2f}{time.process_time():9.2f}", file=sys.stderr)


if __name__ == "__main__":
    main()
