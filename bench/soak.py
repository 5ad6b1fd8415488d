"""Kill and stop commands at random moments, for minutes to hours: python bench/soak.py --minutes 10 --seed 1

    python bench/soak.py                                     # every scenario, two minutes in all
    python bench/soak.py kills --count 1000 --minutes 30     # 1,000 kills, at most 30 minutes

Scenarios:

    kills      trainings of every task, killed by SIGKILL at random times and at random changes of the file system,
               continued, killed again; the end equals the uninterrupted run, bit for bit
    signals    SIGTERM, SIGINT, SIGHUP: the state is saved; SIGSTOP and SIGCONT: nothing changes

The commands run in forks of this process, which spares them the imports. The models are tiny, and a picture is one
pixel, so that a run takes less than a second. The references are trained first. The folder of a failure is kept, and
the exit code is then 1.
"""

from __future__ import annotations

import argparse
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
import tempfile
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
from speed import describe

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
    def err(self) -> str:
        """What it printed to stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def require(self, *codes: int) -> int:
        """Raise Failure unless it ended with one of these codes, without a traceback."""
        self.wait()
        if self.code not in codes or "Traceback" in self.err:
            raise Failure(f"exit code {self.code}, not {codes}: {self.err[-3000:]!r}")
        return self.code


def copy_of_this_process(work: Callable[[], int], log: Path) -> int:
    """Begin work() in a fork of this process that prints to the log; return its id."""
    sys.stdout.flush()
    gc.disable()
    child = os.fork()
    gc.enable()
    if child:
        return child
    code = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(handle, number)
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

    again: arguments that a resume needs, too.
    """

    name: str
    begin: list[str]
    again: list[str] = field(default_factory=list)


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    return [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]


def jobs(texts: Path, finished: Path) -> list[Job]:
    """A training of every task, tokenizer and way to begin."""
    tales, table, pairs = (str(texts / name) for name in ("tales.txt", "reviews.tsv", "numbers.tsv"))
    tiny, on_top = flags(TINY), flags({key: value for key, value in TINY.items() if key not in SHAPE})
    chat = flags({**TINY, "context_length": 64})
    score = f"--reward={texts / 'score.py'}"
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
        Job(name="chat", begin=[str(texts / "talk.jsonl"), *chat, "--task=chat", "--tokenizer=char"]),
        Job(name="preference", begin=[str(texts / "pairs.jsonl"), *on_top, "--task=preference",
                                      f"--init={finished / 'chat'}"]),
        Job(name="reward", begin=[str(texts / "talk.jsonl"), *on_top, "--task=reward", f"--init={finished / 'chat'}",
                                  score, "--prompts-per-step=4", "--answers-per-prompt=4", "--kl-weight=0.1"],
            again=[score]),
        Job(name="init", begin=[tales, *on_top, f"--init={finished / 'char'}"]),
        Job(name="lora", begin=[tales, *on_top, f"--init={finished / 'char'}", "--lora=4"]),
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
    (folder / "score.py").write_text(
        "def reward(messages, answer):\n    return len(set(answer)) % 5\n", encoding="utf-8"
    )
    asked = [(f"{number} + 1?", f"{number + 1}.", f"{number}.") for number in range(1, 91)]
    talks = [{"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": right}]}
             for question, right, _ in asked]  # fmt: skip
    pairs = [{"prompt": question, "chosen": right, "rejected": wrong} for question, right, wrong in asked]
    for name, written in (("talk", talks), ("pairs", pairs)):
        lines = "".join(json.dumps(row) + "\n" for row in written)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")


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
    """The step of the newest training state; -1 without one, or before config.json makes the folder a run.

    Raises Failure if a state is damaged.
    """
    if not (run / "config.json").is_file() or not (run / "state").is_dir():
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

    def start(self, arguments: list[str], *, first: Callable[[], None] = lambda: None) -> Command:
        """Begin `jumok ARGUMENTS` in a copy of this process, which calls first() before."""
        log = self.folder / "log"
        log.write_bytes(b"")

        def work() -> int:
            first()
            return jumok(*arguments)

        return Command(arguments, copy_of_this_process(work, log), log)

    def first_command(self, job: Job, run: Path) -> list[str]:
        """The arguments of a job's first command."""
        return ["train", *job.begin, "--out", str(run)]

    def next_command(self, job: Job, run: Path) -> list[str]:
        """The arguments with which a user begins or continues a job, after whatever happened to it."""
        begun = (run / "config.json").is_file()
        return ["train", "--resume", *job.again, "--out", str(run)] if begun else self.first_command(job, run)

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
                    commands.append(f"{shell('jumok', *command.arguments)}  # {how}")
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
    "signals": (signals, 40),
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
