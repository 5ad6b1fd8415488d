"""What the scenarios of bench/soak.py share: commands in copies of this process, the runs they train, the comparison.

A copy is a fork: it has everything imported, so that a command starts within milliseconds. This process computes with
one thread, and starts no other.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from jumok import cli
from jumok.corpora import numbers, stories
from jumok.files import write_atomic
from jumok.messages import shell
from jumok.runs.folder import RunFolder
from jumok.training.subscribers import pictures

LONGEST = 120  # seconds, after which a command hangs: it prints where, and ends by SIGALRM
DOT = b"\x89PNG\r\n\x1a\n"  # instead of a picture
LOOK = 0.002  # seconds between two looks at a process
TIMES = ("seconds", "remaining", "tokens_per_second", "seconds_per_step", "logs")  # differ between any two runs
CHANGES = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "tempfile.mkstemp"}

# Small enough for a run in a fraction of a second: every step is followed by a save, every fourth by a validation.
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 10, "eval_every": 4,
    "sample_tokens": 4, "save_every": 0, "precision": "float32", "compile": "off", "dropout": 0.1, "device": "cpu",
    "attention": "chunked",
}  # fmt: skip
SHAPE = ("n_layer", "n_head", "n_embd", "context_length")  # which a run with --init has from there


class Failure(Exception):
    """What came out is not what was promised."""


def prepare_process() -> None:
    """Keep this process to one thread, and draw one pixel for each picture, which otherwise takes most of the time."""
    torch.set_num_threads(1)
    os.environ.update(TOKENIZERS_PARALLELISM="false", JUMOK_NATIVE="0", JUMOK_LANG="en")
    import_module("torch._dynamo")  # an optimizer imports it, which would take each copy seconds
    pictures.draw_loss = lambda events, path, **_: write_atomic(path, DOT)  # type: ignore[assignment]
    Figure.savefig = lambda figure, path, **_: Path(path).write_bytes(DOT)  # type: ignore[assignment]


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass
class Command:
    """A running `jumok` command in a copy of this process."""

    arguments: list[str]
    pid: int
    log: Path
    code: int | None = None

    def done(self) -> bool:
        """Whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self, seconds: float = LONGEST + 10, until: Callable[[], bool] = lambda: False) -> int | None:
        """Wait until it has ended, or `until()`; the exit code, or None if it runs on."""
        end = time.monotonic() + seconds
        while not self.done() and time.monotonic() < end and not until():
            time.sleep(LOOK)
        return self.code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.done():
            os.kill(self.pid, number)

    def kill(self) -> bool:
        """Kill it; whether it was still running."""
        self.send(signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    @property
    def out(self) -> str:
        """What it printed to stdout."""
        return self.log.with_suffix(".out").read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        """What it printed to stderr."""
        return self.log.with_suffix(".err").read_text(encoding="utf-8", errors="replace")

    def require_told(self, code: int = 1) -> None:
        """Raise Failure unless it ended with this code, a message and no traceback."""
        self.wait()
        if self.code != code or "Traceback" in self.err or "jumok: " not in self.err:
            raise Failure(f"exit code {self.code}, not {code} with a message: {self.err[-3000:]!r}")

    def require(self, *codes: int) -> int:
        """Raise Failure unless it ended with one of these codes, without a traceback."""
        self.wait()
        if self.code not in codes or "Traceback" in self.err:
            raise Failure(f"exit code {self.code}, not {codes}: {self.err[-3000:]!r}")
        return self.code


def copy_of_this_process(work: Callable[[], int], log: Path) -> int:
    """Begin work() in a copy of this process that prints to log.out and log.err; returns its id."""
    sys.stdout.flush()
    for suffix in (".out", ".err"):
        log.with_suffix(suffix).write_bytes(b"")
    gc.disable()
    child = os.fork()
    gc.enable()
    if child:
        return child
    code = 70
    try:
        for number, suffix in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(log.with_suffix(suffix), os.O_WRONLY), number)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
        gc.freeze()
        faulthandler.register(signal.SIGALRM, file=sys.stderr, chain=True)
        signal.alarm(LONGEST)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
    finally:
        os._exit(code)


def jumok(*arguments: object) -> int:
    """Run a command in this process, which is a copy; returns its exit code."""
    sys.argv = ["jumok", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 70


def killed_at_operation(n: int, pipe: int | None) -> None:
    """Kill this process at its n-th change of the file system: before it, or by whom the pipe tells, soon after it."""
    left = n

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGES and not (event == "open" and isinstance(arguments[1], str) and arguments[1] != "r"):
            return
        left -= 1
        if left == 0 and pipe is None:
            os.kill(os.getpid(), signal.SIGKILL)
        elif left == 0 and pipe is not None:
            os.write(pipe, b"!")

    sys.addaudithook(look)


# --- what is trained --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training command, and how the run that it makes is continued after it was stopped.

    further: the arguments of another stage of the run in `base`, which is a copy of another job's finished run.
    """

    name: str
    begin: list[str]
    base: str = ""
    further: list[str] = field(default_factory=list)


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    return [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]


def jobs(texts: Path, finished: Path) -> list[Job]:
    """A training of every task, tokenizer and way to begin."""
    tales, table, pairs = (str(texts / name) for name in ("tales.txt", "reviews.tsv", "numbers.tsv"))
    tiny, on_top = flags(TINY), flags({key: value for key, value in TINY.items() if key not in SHAPE})
    small = flags({**TINY, "n_embd": 32, "head_dim": 8, "batch_size": 8, "context_length": 32})
    return [
        Job(name="char", begin=[tales, *tiny, "--tokenizer=char"]),
        Job(name="jamo", begin=[tales, *tiny, "--tokenizer=jamo", "--family=classic", "--accumulate=2"]),
        Job(name="bpe", begin=[tales, *tiny, "--tokenizer=bpe", "--vocab-size=300", f"--val={texts / 'held_out.txt'}"]),
        Job(name="larger", begin=[tales, *small, "--patience=2"]),
        Job(name="mlm", begin=[tales, *tiny, "--task=mlm"]),
        Job(name="classify", begin=[table, *tiny, "--task=classify", "--text=document", "--label=label",
                                    "--tokenizer=bpe", "--vocab-size=300", "--lm-weight=1"]),
        Job(name="seq2seq", begin=[pairs, *tiny, "--task=seq2seq", "--tokenizer=char"]),
        Job(name="init", begin=[tales, *on_top, f"--init={finished / 'char'}"]),
        Job(name="lora", begin=[tales, *on_top, f"--init={finished / 'char'}", "--lora=4"]),
        Job(name="stage", begin=[], base="char", further=["--steps=6"]),
    ]  # fmt: skip


def write_texts(folder: Path, seed: int) -> None:
    """The texts that are trained on."""
    folder.mkdir()
    tale = "".join(stories.write(9_000, seed=seed))
    (folder / "tales.txt").write_text(tale[:6_000], encoding="utf-8")
    (folder / "held_out.txt").write_text(tale[6_000:], encoding="utf-8")
    dice = random.Random(seed)
    sentences = [line for line in re.split(r"(?<=\.)\s", tale) if line.strip()][:120]
    rows = ["document\tlabel", *(f"{line.strip()}\t{dice.choice(('긍정', '부정'))}" for line in sentences)]
    (folder / "reviews.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    chosen = dice.sample(range(10_000), 200)
    made = ["source\ttarget", *(f"{number}\t{numbers.read_number(number)}" for number in chosen)]
    (folder / "numbers.tsv").write_text("\n".join(made) + "\n", encoding="utf-8")


# --- what came out ----------------------------------------------------------------------------------------------------


def events_of(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without times."""
    content = (run / "metrics.jsonl").read_text(encoding="utf-8")
    if not content.endswith("\n"):
        raise Failure("metrics.jsonl ends in the middle of a line")
    events = [json.loads(line) for line in content.split("\n")[:-1]]
    negative = [event for event in events if any(event.get(key, 0) < 0 for key in TIMES[:3])]
    if negative:
        raise Failure(f"a negative time: {negative[0]}")
    return [{key: value for key, value in event.items() if key not in TIMES} for event in events]


def require_same(run: Path, reference: Path) -> None:
    """Raise Failure unless parameters, training state, figures and samples are equal, bit for bit."""
    names = {path.name for path in reference.iterdir()}
    if (found := {path.name for path in run.iterdir()}) != names:
        raise Failure(f"the files {sorted(found ^ names)} are in one folder only")
    if leftovers := [str(path) for path in run.rglob("*.tmp")]:
        raise Failure(f"left over: {leftovers}")
    for name in sorted(names - {"state", "metrics.jsonl", "loss.png", "confusion.png"}):
        if (run / name).is_file() and (run / name).read_bytes() != (reference / name).read_bytes():
            raise Failure(f"{name} differs")
    (ours, bad), (theirs, _) = (RunFolder(folder).checkpoints.newest() for folder in (run, reference))
    if ours is None or theirs is None or bad or ours.step != theirs.step:
        raise Failure(f"the newest state is {ours}, not {theirs}; {bad}")
    if ours.tensors.keys() != theirs.tensors.keys() or not all(
        torch.equal(tensor, theirs.tensors[name]) for name, tensor in ours.tensors.items()
    ):
        raise Failure("a tensor of the training state differs")
    first, second = ({k: v for k, v in each.numbers.items() if k not in TIMES} for each in (ours, theirs))
    if first != second:
        raise Failure(f"numbers of the training state differ: {first}, {second}")
    if events_of(run) != events_of(reference):
        raise Failure("metrics.jsonl differs")


def newest_step(run: Path) -> int:
    """The step of the newest training state; -1 without one. Raises Failure if a state is damaged."""
    if not (run / "state").is_dir():
        return -1
    state, damaged = RunFolder(run).checkpoints.newest()
    if damaged:
        raise Failure(f"damaged: {damaged}")
    return -1 if state is None else state.step


# --- one soak ---------------------------------------------------------------------------------------------------------


class Soak:
    """Texts, references, random numbers and counts of one soak; the folders of failures are kept.

    counts: by scenario, what was injected, and what came out.
    """

    def __init__(self, folder: Path, seed: int, end: float) -> None:
        self.folder, self.dice, self.end, self.seed = folder, random.Random(seed), end, seed
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.failures: list[str] = []
        self.texts, self.finished = folder / "texts", folder / "finished"
        write_texts(self.texts, seed)
        self.finished.mkdir()
        self.jobs = {job.name: job for job in jobs(self.texts, self.finished)}
        self.seconds: dict[str, float] = {}  # of an uninterrupted run

    def prepare(self) -> None:
        """Train the references in this process, so that no copy has to import anything; then time each in a copy."""
        for job in self.jobs.values():
            with redirect_stderr(io.StringIO()) as said:
                code = jumok(*self.first_command(job, self.finished / job.name))
            if code:
                raise RuntimeError(f"the reference of {job.name} failed: {said.getvalue()}")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for job in self.jobs.values():
            run, began = self.folder / "timed", time.monotonic()
            self.start(self.first_command(job, run)).require(0)
            self.seconds[job.name] = time.monotonic() - began
            require_same(run, self.finished / job.name)
            shutil.rmtree(run)

    def more(self) -> bool:
        """Whether there is time for another round."""
        return time.monotonic() < self.end

    def count(self, scenario: str, injected: str, outcome: str) -> None:
        """Count one fault and what came out."""
        self.counts[scenario, injected, outcome] += 1

    def start(
        self, arguments: list[str], *, log: Path | None = None, first: Callable[[], None] = lambda: None
    ) -> Command:
        """Begin `jumok ARGUMENTS` in a copy of this process, which calls first() before."""
        log = log or self.folder / "log"

        def work() -> int:
            first()
            return jumok(*arguments)

        return Command(arguments, copy_of_this_process(work, log), log)

    def first_command(self, job: Job, run: Path) -> list[str]:
        """The arguments of a job's first command; the folder of another job is copied if it is further training."""
        if not job.base:
            return ["train", *job.begin, "--out", str(run)]
        shutil.copytree(self.finished / job.base, run, dirs_exist_ok=True)
        return self.next_command(job, run)

    def next_command(self, job: Job, run: Path) -> list[str]:
        """The arguments with which a user begins or continues a job, after whatever happened to it."""
        begun = (run / "config.json").is_file()
        if begun and job.base and "stages" not in RunFolder(run).read_config():
            return ["train", "--resume", *job.further, "--out", str(run)]
        return ["train", "--resume", "--out", str(run)] if begun else self.first_command(job, run)

    def resume(self, job: Job, run: Path) -> None:
        """Continue to the end, and compare with the uninterrupted run."""
        self.start(self.next_command(job, run)).require(0)
        require_same(run, self.finished / job.name)

    def attempt(self, scenario: str, injected: str, run: Path, round_of: Callable[[], str]) -> None:
        """One round: its outcome is counted; a Failure is kept with the folder."""
        try:
            outcome = round_of()
        except Failure as failure:
            outcome = "FAILED"
            kept = self.folder / f"failure-{len(self.failures) + 1}"
            with suppress(OSError):
                shutil.copytree(run, kept, symlinks=True)
            said = f"{scenario}, {injected}: {failure}\n  kept in {kept}"
            print(f"FAILED {said}", flush=True)
            self.failures.append(said)
        finally:
            shutil.rmtree(run, ignore_errors=True)
        self.count(scenario, injected, outcome)


def command_line(arguments: list[str]) -> str:
    """A command as a user types it."""
    return shell("jumok", *arguments)
