"""Steps beside other programs, with threads that sleep where they wait, that spin for a while, and that spin on.

    python bench/waiting.py            # ten minutes on two slow cores
    python bench/waiting.py --steps 2 --rounds 1 --model toy   # to see that it runs

Four kinds of load: nothing, a busy loop for each processor at nice 19, one busy loop of the same priority, two. Beside
each, processes with the three policies take the same steps of `bench/training.py`'s default model, uncompiled, in
float32, in an order that turns round each round: OMP_WAIT_POLICY=PASSIVE, GOMP_SPINCOUNT=20000, OMP_WAIT_POLICY=ACTIVE.
The seconds are those of the steps alone, without the first one, which is not counted. Start it while nothing else runs:
what runs beside it is a fifth load. In the end it says what `jumok train` chooses beside each load after a minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from jumok.processors import WAITING_POLICIES, processors

POLICIES = {
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spincount 20000": {"GOMP_SPINCOUNT": "20000"},
    "active": {"OMP_WAIT_POLICY": "ACTIVE"},
}
LOADS = {"nothing": (0, 0), "nice 19": (processors(), 19), "one loop": (1, 0), "two loops": (2, 0)}
MINUTE = 60.0
CHOICE = "from jumok.processors import waiting_threads; print(waiting_threads())"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", default="default", choices=("default", "toy"))
    parser.add_argument("--no-choice", action="store_true", help="leave out the minute of each load at the end")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(take_steps(options.model, options.steps))
        return
    load = " ".join(f"{one:.2f}" for one in os.getloadavg())
    print(f"python {' '.join(sys.argv)}\n{processors()} processors; load before: {load}", flush=True)
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(options.rounds):
        for name, (count, nice) in LOADS.items():
            with busy_loops(count, nice):
                for policy in sorted(POLICIES, reverse=bool(number % 2)):
                    seconds.setdefault((name, policy), []).append(measure(policy, options))
    print(f"seconds of {options.steps} steps, median and range of {options.rounds}")
    print(f"{'':12}" + "".join(f"{policy:>26}" for policy in POLICIES))
    for name in LOADS:
        print(f"{name:12}" + "".join(f"{shown(seconds[name, policy]):>26}" for policy in POLICIES), flush=True)
    for name, (count, nice) in LOADS.items() if not options.no_choice else ():
        with busy_loops(count, nice):
            time.sleep(MINUTE)
            print(f"{name:12}{run([sys.executable, '-c', CHOICE], {})}", flush=True)


@contextmanager
def busy_loops(count: int, nice: int) -> Iterator[None]:
    """Run loops beside what is in the block."""
    with ExitStack() as stack:
        for _ in range(count):
            code = f"import os; os.nice({nice})\nwhile True: pass"
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", code]))
            stack.callback(loop.kill)
        yield


def measure(policy: str, options: argparse.Namespace) -> float:
    """Return the seconds of the steps of a process with a policy."""
    command = [sys.executable, __file__, "--worker", "--steps", str(options.steps), "--model", options.model]
    return float(run(command, POLICIES[policy]))


def run(command: list[str], policy: dict[str, str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in WAITING_POLICIES}
    return subprocess.run(
        command, env=environment | policy, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def take_steps(model: str, steps: int) -> float:
    """Take steps in this process, and return their seconds."""
    from speed import our_training
    from training import MODELS, text_with

    settings = {**MODELS[model], "precision": "float32", "compile": "off"}
    with our_training(text_with(1540, 400_000), settings, "cpu", tokenizer_options={"min_count": 1}) as training:
        training.step()
        began = time.perf_counter()
        for _ in range(steps):
            training.step()
        return time.perf_counter() - began


def shown(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
