"""File operations that fail, in every command that writes: python bench/disk_faults.py --count 500 --seed 1

A library in C (bench/disk_faults.c, built here, loaded by LD_PRELOAD) makes one write, fsync, rename, link, open for
writing, mkdir or truncate of a command fail with EIO, ENOSPC or EDQUOT, be interrupted (EINTR), or write half of its
bytes; "full" writes half, and nothing from then on. The operations of each command are counted first. Then `train`,
`train --resume`, `convert --to hf` and `share` run with a fault at a random operation. Each has to end in one of two
ways: exit code 0 and the result of the undisturbed command, or exit code 1, a message and no traceback; then nothing
that was there before is damaged, and the same command or `--resume` without a fault comes to the same result, bit for
bit.

Commands run in copies of one process (forks), as in soak.py; `--processes` of them run as `python -m jumok`. A fault
that was not injected is a failure. Folders of failures are kept, and the exit code is then 1. Linux with cc only.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from soak_jobs import LONGEST, Command, Failure, Job, Soak, command_line, newest_step, prepare_process, require_same
from speed import describe

SOURCE = Path(__file__).with_suffix(".c")
KINDS = ("write", "fsync", "rename", "link", "open", "mkdir", "truncate")  # in the order of the library
SHORT, FULL = -1, -2
FAULTS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EINTR": errno.EINTR, "short": SHORT,
          "full": FULL}  # fmt: skip
ERRORS = ("EIO", "ENOSPC", "EDQUOT")
POSSIBLE = dict.fromkeys(KINDS, ERRORS) | {
    "write": (*ERRORS, "EINTR", "short", "full"),
    "fsync": (*ERRORS, "EINTR"),
    "open": (*ERRORS, "EINTR"),
}
HARMLESS = ("EINTR", "short")  # a command goes on after these
TRAINED = ("char", "bpe", "classify", "seq2seq", "lora", "stage")


def obstacle() -> str:
    """Why the library cannot be used here; "" if it can."""
    if sys.platform != "linux":
        return "LD_PRELOAD and /proc are those of Linux"
    return "" if shutil.which("cc") else "there is no C compiler, cc"


def build(folder: Path) -> Path:
    """Compile the library into a folder."""
    library = folder / "disk_faults.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return library


class Shim:
    """The library, which this process was started with."""

    def __init__(self, library: str) -> None:
        self.library = library
        loaded = ctypes.CDLL(library)  # the same again
        self._arm = loaded.disk_faults_arm
        loaded.disk_faults_counts.restype = ctypes.POINTER(ctypes.c_long)
        self._counts = loaded.disk_faults_counts()

    def arm(self, folder: Path, kind: str = "write", n: int = 0, fault: str = "EIO") -> None:
        """Let the n-th operation of a kind in a folder fail in this process; 0: only count."""
        self._arm(os.fsencode(folder), KINDS.index(kind), ctypes.c_long(n), FAULTS[fault])

    @property
    def counts(self) -> dict[str, int]:
        """How many operations of each kind there were since a copy of this process called `arm`, and "injected"."""
        return dict(zip((*KINDS, "injected"), self._counts[: len(KINDS) + 1], strict=True))


def contents(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


# --- one command with one fault ---------------------------------------------------------------------------------------


class Case:
    """A command that writes: its folder, what lies there before, how its end is judged.

    counts: its operations, by kind.
    """

    def __init__(self, soak: Soak, shim: Shim, verb: str, job: Job) -> None:
        self.soak, self.shim, self.verb, self.job = soak, shim, verb, job
        self.before = soak.folder / "before" / f"{verb} {job.name}"
        self.before.mkdir(parents=True)
        self.place = soak.folder / "work"
        self.run = self.place / "run"
        self.counts: dict[str, int] = {}
        self.expected: dict[str, str] = {}

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.verb}, {self.job.name}"

    @property
    def target(self) -> Path | None:
        """What `convert` and `share` write."""
        return {"convert": self.place / "hf", "share": self.place / "page.html"}.get(self.verb.removesuffix(" over"))

    def prepare(self) -> None:
        """Make what lies there before, and count the operations of the undisturbed command."""
        if self.verb == "train" and self.job.base:
            shutil.copytree(self.soak.finished / self.job.base, self.before / "run")
        elif self.verb == "resume":
            self.fresh()
            self.start("write", 60, "full", self.soak.first_command(self.job, self.run)).require_told(1)
            if newest_step(self.run) < 0:
                raise RuntimeError(f"{self.name}: the run was not begun")
            self.run.rename(self.before / "run")
        elif self.target is not None:
            shutil.copytree(self.soak.finished / self.job.name, self.before / "run")
            if self.verb.endswith("over"):
                self.fresh()
                self.start("write", 0).require(0)
                self.target.rename(self.before / self.target.name)
        self.fresh()
        self.start("write", 0).require(0)
        self.counts = self.shim.counts
        if self.target is not None:
            self.expected = contents(self.place)
        self.require_result()

    def fresh(self) -> None:
        """The place as it is before the command."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.before, self.place)

    @property
    def arguments(self) -> list[str]:
        """The command, which is also what a user tries again."""
        run, target, over = str(self.run), str(self.target), ["--force"] if self.verb.endswith("over") else []
        if self.verb.startswith("convert"):
            return ["convert", run, target, "--to=hf"]
        if self.verb.startswith("share"):
            return ["share", run, "--out", target, *over]
        return self.soak.next_command(self.job, self.run)

    def start(self, kind: str, n: int, fault: str = "EIO", arguments: list[str] | None = None) -> Command:
        """Run the command in a copy of this process, with a fault."""
        given = self.arguments if arguments is None else arguments
        command = self.soak.start(given, first=lambda: self.shim.arm(self.place, kind, n, fault))
        command.wait()
        return command

    def start_process(self, kind: str, n: int, fault: str) -> tuple[int, str, int]:
        """Run it as `python -m jumok`; the exit code, what it said, and how many faults were injected."""
        counts = self.soak.folder / "counts"
        counts.write_bytes(bytes(8 * (len(KINDS) + 1)))
        environment = {
            **os.environ, "LD_PRELOAD": self.shim.library, "DISK_FAULTS_FOLDER": str(self.place),
            "DISK_FAULTS_COUNTS": str(counts), "DISK_FAULTS_PLAN": f"{KINDS.index(kind)} {n} {FAULTS[fault]}",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "jumok", *self.arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False)
        return done.returncode, done.stderr, struct.unpack(f"{len(KINDS) + 1}l", counts.read_bytes())[-1]

    def require_result(self) -> None:
        """Raise Failure unless the end is that of the undisturbed command."""
        if self.target is None:
            require_same(self.run, self.soak.finished / self.job.name)
        elif (found := contents(self.place)) != self.expected:
            names = {name for name in found.keys() | self.expected.keys() if found.get(name) != self.expected.get(name)}
            raise Failure(f"these differ from the undisturbed command's: {sorted(names)}")

    def require_undamaged(self, saved: int) -> None:
        """Raise Failure unless what was there before a command that has failed is there, and whole."""
        if self.target is None:
            if (now := newest_step(self.run)) < saved:
                raise Failure(f"the newest state was that of step {saved}, and is that of {now}")
            return
        found, old = contents(self.place), contents(self.before)
        if found not in (old, self.expected):  # the new one is there if the fsync after the rename has failed
            names = {name for name in found.keys() | old.keys() if found.get(name) != old.get(name)}
            raise Failure(f"it failed, and these changed: {sorted(names)}")

    def inject(self, kind: str, n: int, fault: str, *, process: bool = False) -> str:
        """Run it with a fault; what came out. Raises Failure."""
        self.fresh()
        saved, line = newest_step(self.run) if self.run.exists() else -1, command_line(self.arguments)
        try:
            if process:
                code, said, injected = self.start_process(kind, n, fault)
            else:
                command = self.start(kind, n, fault)
                code, said, injected = command.code or 0, command.err, self.shim.counts["injected"]
            if not injected:
                raise Failure("the fault was not injected")
            if code == 0 and kind == "fsync" and fault in ERRORS:
                raise Failure("an fsync failed, and nothing was said: what was promised may not be on the disk")
            if code == 0 and "Traceback" not in said:
                self.require_result()
                return "went on"
            if code != 1 or "Traceback" in said or "jumok: " not in said:
                raise Failure(f"exit code {code}, not 1 with a message: {said[-3000:]}")
            if fault in HARMLESS:
                raise Failure(f"it did not go on: {said[-3000:]}")
            self.require_undamaged(saved)
            self.soak.start(self.arguments).require(0)
            self.require_result()
        except Failure as failure:
            raise Failure(f"{line}  # {kind} {n}: {fault}; {failure}") from failure
        return "told, then equal"


def cases(soak: Soak, shim: Shim, few: bool) -> list[Case]:
    """The commands, each with its operations counted; those of one training only if few."""
    if few:
        soak.jobs = {"char": soak.jobs["char"]}
    soak.prepare()
    verbs = [("train", name) for name in TRAINED] + [("resume", name) for name in TRAINED if name != "stage"]
    verbs += [(verb, "char") for verb in ("convert", "share", "share over")]
    made = [Case(soak, shim, verb, soak.jobs[name]) for verb, name in verbs if name in soak.jobs]
    for case in made:
        case.prepare()
    return made


# --- the program ------------------------------------------------------------------------------------------------------


def inject_all(soak: Soak, shim: Shim, given: argparse.Namespace) -> int:
    """Faults at random operations, the commands in turn; returns how many there were."""
    found = cases(soak, shim, given.few)
    for case in found:
        print(f"{case.name}: " + ", ".join(f"{n} {kind}" for kind, n in case.counts.items() if n), flush=True)
    done = 0
    while done < given.count and soak.more():
        case = found[done % len(found)]
        kind = soak.dice.choice([kind for kind in KINDS if case.counts[kind]])
        n, fault = soak.dice.randint(1, case.counts[kind]), soak.dice.choice(POSSIBLE[kind])
        process = done < given.processes

        def round_of(
            case: Case = case, kind: str = kind, n: int = n, fault: str = fault, process: bool = process
        ) -> str:
            return case.inject(kind, n, fault, process=process)

        soak.attempt(f"{kind} {fault}", case.verb.removesuffix(" over"), case.place, round_of)
        done += 1
    return done


def show(counts: Counter[tuple[str, str, str]]) -> None:
    """The table by operation and fault."""
    print(
        "\n| operation | fault | injected | went on, equal | told, then equal | failures |\n|---|---|---|---|---|---|"
    )
    for kind in KINDS:
        for fault in POSSIBLE[kind]:
            outcomes: Counter[str] = Counter()
            for (scenario, _, outcome), times in counts.items():
                outcomes[outcome] += times * (scenario == f"{kind} {fault}")
            columns = [outcomes.total(), *(outcomes[each] for each in ("went on", "told, then equal", "FAILED"))]
            print(f"| {kind} | {fault} | " + " | ".join(map(str, columns)) + " |")


def with_library(work: Callable[[Path], int], folder: Path) -> int:
    """Call work(library) in a process that has loaded the library: this one, or a new one with the same arguments."""
    if library := os.environ.get("JUMOK_DISK_FAULTS"):
        os.environ.pop("LD_PRELOAD", None)
        return work(Path(library))
    library = str(build(folder))
    environment = {**os.environ, "LD_PRELOAD": library, "JUMOK_DISK_FAULTS": library}
    return subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment, check=False).returncode


def main() -> int:
    """Inject the faults; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="faults [500]")
    parser.add_argument("--processes", type=int, default=8, help="of them into new processes, python -m jumok [8]")
    parser.add_argument("--few", action="store_true", help="the commands of one training, not of six")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all of them at most [10]")
    parser.add_argument("--folder", type=Path, help="a new folder to work in, which is kept [a temporary one]")
    given = parser.parse_args()
    if why := obstacle():
        parser.error(why)

    def work(library: Path) -> int:
        if given.folder:
            given.folder.mkdir(parents=True)
        folder = (given.folder or Path(tempfile.mkdtemp(prefix="jumok-disk-"))).resolve()
        began = time.monotonic()
        prepare_process()
        print(describe(torch.device("cpu")))
        print(f"python bench/disk_faults.py {' '.join(sys.argv[1:])}; seed {given.seed}", flush=True)
        soak = Soak(folder, given.seed, began + 60 * given.minutes)
        done = inject_all(soak, Shim(str(library)), given)
        show(soak.counts)
        print(f"\n{done} faults, {len(soak.failures)} failures, {time.monotonic() - began:.0f} s in all")
        for failure in soak.failures:
            print(f"- {failure}")
        if not soak.failures and not given.folder:
            shutil.rmtree(folder, ignore_errors=True)
        return 1 if soak.failures or not done else 0

    built = Path(tempfile.mkdtemp(prefix="jumok-disk-library-"))
    try:
        return with_library(work, built)
    finally:
        with suppress(OSError):
            shutil.rmtree(built)


if __name__ == "__main__":
    sys.exit(main())
