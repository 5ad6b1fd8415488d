"""Faults injected into jumok, for minutes to hours: python bench/soak.py --minutes 10 --seed 1

    python bench/soak.py                                     # every scenario, two minutes in all
    python bench/soak.py kills --count 1000 --minutes 30     # 1,000 kills, at most 30 minutes
    python bench/soak.py disk memory --minutes 5 --folder /tmp/soak

Scenarios:

    kills      trainings of every task, killed by SIGKILL at random times and at random changes of the file system,
               continued, killed again; the end equals the uninterrupted run, bit for bit
    processes  the same with new processes, `python -m jumok train`, with pictures
    signals    SIGTERM, SIGINT, SIGHUP: the state is saved; SIGSTOP and SIGCONT: nothing changes
    disk       a full disk, no inodes, a read-only file system, immutable folders, a run that is removed or renamed
    memory     a limit on the address space, a cgroup with little memory
    clock      the wall clock jumps; the monotonic clock and the time zone differ when a run is continued
    second     other commands on a run that is being trained, and thousands of loads
    use        generate, evaluate, view, convert and serve, killed at random times

The commands run in copies of this process (forks), which spares them the imports. The models are tiny, and a picture is
one pixel, so that a run takes less than a second. The references are trained first. What needs root or is absent on
this machine is skipped, with the reason. The folder of a failure is kept, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

import soak_faults
import soak_use
from soak_jobs import (
    Command,
    Failure,
    Job,
    Soak,
    command_line,
    killed_at_operation,
    newest_step,
    prepare_process,
    require_same,
)
from speed import describe

PROCESS_STARTS = 6.0  # seconds at most into which the kills of new processes fall


# --- kills ------------------------------------------------------------------------------------------------------------


def kills(soak: Soak, count: int) -> None:
    """SIGKILL at random times, and at random changes of the file system; the jobs in turn."""
    names, done, turn = list(soak.jobs), 0, 0
    while done < count and soak.more():
        job = soak.jobs[names[turn % len(names)]]
        turn += 1
        run, injected = soak.folder / "run", 0

        def round_of(job: Job = job, run: Path = run, most: int = count - done) -> str:
            nonlocal injected
            commands: list[str] = []
            saved = -1
            try:
                while injected < most:
                    command, how = _start_to_be_killed(soak, job, run)
                    commands.append(f"{command_line(command.arguments)}  # {how}")
                    if not command.kill():  # it had ended before
                        command.require(0)
                        break
                    injected += 1
                    soak.count("kills", f"SIGKILL {how.split(',')[0]}, {job.name}", "killed")
                    if (now := newest_step(run)) < saved:
                        raise Failure(f"the newest state was that of step {saved}, and is that of {now}")
                    saved = now
                else:
                    soak.start(soak.next_command(job, run)).require(0)
                require_same(run, soak.finished / job.name)
            except Failure as failure:
                raise Failure(f"{failure}\n  " + "\n  ".join(commands)) from failure
            return "equal"

        soak.attempt("kills", f"runs of {job.name}", run, round_of)
        done += injected


def _start_to_be_killed(soak: Soak, job: Job, run: Path) -> tuple[Command, str]:
    """Begin or continue a job, and wait for the moment of its kill; the command, and what moment that is."""
    dice, arguments = soak.dice, soak.next_command(job, run)
    if dice.random() < 0.5:
        seconds = dice.uniform(0, soak.seconds[job.name] * dice.choice((0.3, 1.0)))
        command = soak.start(arguments)
        command.wait(seconds)
        return command, f"at a random time, after {seconds:.3f} s"
    n, soon = int(1.15 ** dice.uniform(0, 38)), dice.random() < 0.5  # 1 to 200, small ones as often as large ones
    if not soon:
        command = soak.start(arguments, first=lambda: killed_at_operation(n, None))
        command.wait()
        return command, f"before a file operation, the {n}th"
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    command = soak.start(arguments, first=lambda: killed_at_operation(n, writing))
    os.close(writing)

    def told() -> bool:
        try:
            return os.read(reading, 1) == b"!"
        except BlockingIOError:
            return False

    command.wait(until=told)
    os.close(reading)
    return command, f"during or after a file operation, the {n}th"


def processes(soak: Soak, count: int) -> None:
    """New processes, killed at random times; 8 for each run."""
    names, done, turn = ["char", "classify", "seq2seq", "lora"], 0, 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run_it(arguments: list[str], seconds: float | None) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "jumok", *arguments], env=environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            said = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return -signal.SIGKILL
        if process.returncode:
            raise Failure(f"exit code {process.returncode}: {said[-3000:]}")
        return 0

    while done < count and soak.more():
        job, run, injected = soak.jobs[names[turn % len(names)]], soak.folder / "run", 0
        turn += 1

        def round_of(job: Job = job, run: Path = run, most: int = min(8, count - done)) -> str:
            nonlocal injected
            while injected < most:
                if run_it(soak.next_command(job, run), soak.dice.uniform(0.2, PROCESS_STARTS)) == 0:
                    break
                injected += 1
                soak.count("processes", f"SIGKILL, {job.name}", "killed")
                newest_step(run)
            else:
                run_it(soak.next_command(job, run), None)
            require_same(run, soak.finished / job.name)
            return "equal"

        soak.attempt("processes", f"runs of {job.name}", run, round_of)
        done += max(1, injected)


# --- signals ----------------------------------------------------------------------------------------------------------


def signals(soak: Soak, count: int) -> None:
    """A signal at a random time; the state is saved then, and the run continues to the same end."""
    turn = 0
    while turn < count and soak.more():
        job = soak.jobs[soak.dice.choice(list(soak.jobs))]
        number = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP)[turn % 4]
        run = soak.folder / "run"
        turn += 1

        def ask(job: Job = job, run: Path = run, number: signal.Signals = number) -> str:
            before = -1
            command = soak.start(soak.next_command(job, run))
            command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
            before = newest_step(run)
            command.send(number)
            code = command.wait()
            if code == -number and not (run / "metrics.jsonl").exists():  # before the command line was ready for it
                soak.resume(job, run)
                return "ended before it began; equal after a new start"
            saved = "The training state is saved" in command.err
            if command.require(0, 130) == 130 and not saved and "interrupted" not in command.err:
                raise Failure(f"exit code 130 without a word: {command.err}")
            if saved and newest_step(run) < max(before, 0):
                raise Failure("it says that the state is saved, and there is none, or an older one")
            soak.resume(job, run)
            return "saved, exit code 130; equal" if saved else "had ended; equal" if code == 0 else "undone; equal"

        def pause(job: Job = job, run: Path = run) -> str:
            command = soak.start(soak.next_command(job, run))
            for _ in range(soak.dice.randint(1, 4)):
                command.wait(soak.dice.uniform(0, soak.seconds[job.name] / 2))
                command.send(signal.SIGSTOP)
                time.sleep(soak.dice.uniform(0, 0.1))
                command.send(signal.SIGCONT)
            command.require(0)
            require_same(run, soak.finished / job.name)
            return "equal"

        stopped = number == signal.SIGSTOP
        soak.attempt("signals", "SIGSTOP, SIGCONT" if stopped else number.name, run, pause if stopped else ask)


# --- the program ------------------------------------------------------------------------------------------------------

Scenario = Callable[[Soak, int], None]
SCENARIOS: dict[str, tuple[Scenario, int]] = {  # and how many faults by default
    "kills": (kills, 100),
    "processes": (processes, 8),
    "signals": (signals, 40),
    "disk": (soak_faults.disk, 40),
    "memory": (soak_faults.memory, 20),
    "clock": (soak_faults.clock, 12),
    "second": (soak_use.second, 8),
    "use": (soak_use.use, 40),
}


def show(counts: Counter[tuple[str, str, str]], failures: list[str]) -> None:
    """The table of what was injected how often, and what came out."""
    print("\n| scenario | injected | what came out | times |\n|---|---|---|---|")
    for (scenario, injected, outcome), times in sorted(counts.items()):
        print(f"| {scenario} | {injected} | {outcome} | {times} |")
    killed = sum(times for (_, _, outcome), times in counts.items() if outcome == "killed")
    print(f"\n{killed} trainings killed; {len(failures)} failures")
    for failure in failures:
        print(f"- {failure}")


def main() -> int:
    """Run the scenarios; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)} [all]")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all scenarios together [2]")
    parser.add_argument("--count", type=int, help="faults of each scenario [by scenario]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new folder to work in, which is kept [a temporary one]")
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    if given.folder:
        given.folder.mkdir(parents=True)
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="jumok-soak-"))).resolve()
    began, chosen = time.monotonic(), given.scenarios or list(SCENARIOS)
    prepare_process()
    print(describe(torch.device("cpu")))
    print(f"python bench/soak.py {' '.join(sys.argv[1:])}; seed {given.seed}", flush=True)
    soak = Soak(folder, given.seed, 0.0)
    soak.prepare()
    print("references: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in soak.seconds.items()), flush=True)
    end = time.monotonic() + 60 * given.minutes
    for number, name in enumerate(chosen):
        scenario, usual = SCENARIOS[name]
        now = time.monotonic()
        soak.end = now + (end - now) / (len(chosen) - number)  # what is left is shared by those to come
        soak.dice = random.Random(f"{given.seed} {name}")
        scenario(soak, given.count or usual)
        print(f"{name}: {time.monotonic() - now:.0f} s, {len(soak.failures)} failures so far", flush=True)
    show(soak.counts, soak.failures)
    print(f"{time.monotonic() - began:.0f} s in all")
    if not soak.failures and not given.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
