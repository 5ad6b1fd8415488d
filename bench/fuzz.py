"""Mutated files and requests for every reader of jumok: python bench/fuzz.py

    python bench/fuzz.py --inputs 10000 --seed 1          # of each target; an expensive one gets a share of them
    python bench/fuzz.py --target tokenizer --minutes 5
    python bench/fuzz.py --target tokenizer --again 4711  # one input once more, with its traceback
    python bench/fuzz.py --long --out findings            # 10^6 inputs in all

The targets are in bench/fuzz_targets.py and bench/fuzz_server.py, the mutations in bench/fuzz_mutation.py. An input
follows from the seed, the target and its number alone, on any machine. For each input the reader must answer or raise a
JumokError, the server must answer with a status below 500, within 10 seconds of processor time and 2 GB of memory.
Nothing may be executed, connected to, or written outside the folder of the target.

Inputs run in forked children of a process that has imported everything, some hundreds in each child. The system ends a
child that takes too long (timers) or refuses its memory (RLIMIT_AS); an audit hook of Python watches the rest.
The hook does not see files that native libraries open. A finding is printed and kept with its input; exit code 1.

Mutations are plain and seeded, rather than guided by coverage (atheris): the parsers that read first are native
(json, tokenizers, safetensors, pyarrow), which atheris does not instrument; a mutation that knows JSON passes them;
libFuzzer stops at the first finding, and does not survive a child that dies; and nothing needs to be installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from fuzz_mutation import mutated
from jumok.errors import JumokError

SECONDS = 10  # of processor time for one input
WAITING = 30  # seconds for one input that waits
MEMORY = 2 << 30  # bytes that an input may ask for
BATCH = 400  # inputs of one child
KEPT = 3  # findings of one kind that are kept
LONG = 10**6  # inputs of --long

Read = Callable[[str, bytes], object]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is fuzzed.

    Fields:
        prepare: makes the valid files in a folder, and returns them by name; called once.
        open: returns the function that reads one input, given the name of the file and its content; called in each
            child, with the folder.
        cost: of one input, relative to a small JSON file: the target gets 1 / cost of the inputs.
    """

    name: str
    prepare: Callable[[Path], dict[str, bytes]]
    open: Callable[[Path], Read]
    cost: int = 1


class Unexpected(Exception):
    """The reader answered, and the answer is wrong; or the server answered with a status of 500 or more."""


class Forbidden(BaseException):
    """Something was executed, connected to, or written outside the folder."""


@dataclass
class Tally:
    """What came of the inputs of one target."""

    inputs: int = 0
    answers: int = 0
    refusals: int = 0
    findings: int = 0
    slowest: float = 0.0  # seconds
    memory: float = 0.0  # bytes, of a child at its peak
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        for name in ("inputs", "answers", "refusals", "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.memory = max(self.slowest, other.slowest), max(self.memory, other.memory)
        self.kinds += other.kinds


def made(target: str, seed: int, number: int, files: dict[str, bytes]) -> tuple[str, bytes]:
    """The name and the content of an input."""
    random = Random(f"{seed}/{target}/{number}")
    name = random.choice(sorted(files))
    return name, mutated(name, files[name], random)


# --- in a child -------------------------------------------------------------------------------------------------------

EXECUTES = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen",
            "socket.connect", "socket.bind", "socket.sendto", "webbrowser.open",
            "pickle.find_class", "ctypes.dlopen"}  # fmt: skip
CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
           "shutil.rmtree", "shutil.move", "shutil.copyfile"}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def watch(folder: Path) -> None:
    """Raise Forbidden for what an input must not bring about; this cannot be undone in a process."""
    inside = (str(folder) + os.sep, str(folder.resolve()) + os.sep)

    def hook(event: str, given: tuple[object, ...]) -> None:
        if event == "exec":
            name = getattr(given[0], "co_filename", "")
            caller = sys._getframe(1).f_code.co_filename  # typing evaluates annotations of the code
            if not (os.path.isfile(name) or name.startswith("<frozen") or caller == typing.__file__):
                raise Forbidden(f"exec of {name}")
        elif event in EXECUTES:
            if event == "pickle.find_class" and str(given[0]).partition(".")[0] in ("torch", "collections"):
                return
            raise Forbidden(f"{event} {given}"[:200])
        elif event == "open":
            path, _, flags = given
            if isinstance(flags, int) and flags & WRITING and isinstance(path, str | bytes) and path != os.devnull:
                _require_inside(event, path, inside)
        elif event in CHANGES:
            paths = given[:2] if event in ("os.rename", "os.link", "shutil.move") else given[:1]
            for path in paths:
                if isinstance(path, str | bytes):
                    _require_inside(event, path, inside)

    sys.addaudithook(hook)


def _require_inside(event: str, path: str | bytes, inside: tuple[str, ...]) -> None:
    name = os.path.abspath(os.fsdecode(path))
    if not (name + os.sep).startswith(inside):
        raise Forbidden(f"{event} outside the folder: {name}")


def limit() -> None:
    """Let the system end this process when the current input takes too long. Python need not run for it."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)


def kind_of(error: BaseException) -> str:
    """By what findings are counted: the type, and the innermost line of jumok."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if f"{os.sep}jumok{os.sep}" in frame.f_code.co_filename:
            place = f"{frame.f_code.co_filename.rpartition(os.sep + 'jumok' + os.sep)[2]}:{line}"
    return f"{type(error).__name__} at {place or 'no line of jumok'}"


@dataclass
class Child:
    """Runs numbered inputs and leaves what came of them in memory that its parent shares."""

    target: Target
    seed: int
    folder: Path
    files: dict[str, bytes]
    out: Path
    shared: mmap.mmap

    def run(self, numbers: range) -> None:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        now = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, now[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(self.folder)
        tempfile.tempdir = str(self.folder)
        os.environ["RUST_BACKTRACE"] = "0"
        os.environ["JUMOK_CACHE"] = str(self.folder / ".cache")  # without compiled code
        read = self.target.open(self.folder)
        limit()
        for name, content in self.files.items():  # what is loaded when it is first needed is loaded now
            with suppress(JumokError):
                read(name, content)
        watch(self.folder)
        answers = refusals = findings = 0
        slowest = 0.0
        for number in numbers:
            STATE.pack_into(self.shared, 0, number, answers, refusals, findings, slowest)
            name, content = made(self.target.name, self.seed, number, self.files)
            limit()
            began = time.process_time()
            try:
                read(name, content)
                answers += 1
            except JumokError:
                refusals += 1
            except BaseException as error:
                limit()
                findings += 1
                keep(self.out, self.target.name, number, name, content, kind_of(error), traceback.format_exc())
            slowest = max(slowest, time.process_time() - began)
        limit()
        STATE.pack_into(self.shared, 0, numbers.stop, answers, refusals, findings, slowest)


STATE = struct.Struct("<qqqqd")  # the number of the input, answers, refusals, findings, the slowest


def keep(out: Path, target: str, number: int, name: str, content: bytes, kind: str, said: str) -> None:
    """Keep the first few findings of a kind: the input, and what happened. All are counted in a log."""
    with os.fdopen(os.open(out / f"{target}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as log:
        log.write(json.dumps([number, kind]) + "\n")
    digest = hashlib.sha256(f"{target} {kind}".encode()).hexdigest()[:8]
    stem = f"{target}-{digest}"
    if len(list(out.glob(f"{stem}-*.txt"))) < KEPT:
        (out / f"{stem}-{number}.{name.replace('/', '+')}").write_bytes(content)
        (out / f"{stem}-{number}.txt").write_text(
            f"{kind}\n{name}\n{said}", encoding="utf-8", errors="backslashreplace"
        )


# --- in the parent ----------------------------------------------------------------------------------------------------


def fuzz(
    target: Target,
    numbers: range,
    *,
    seed: int,
    out: Path,
    folder: Path,
    until: float = float("inf"),
    batch: int = BATCH,
) -> Tally:
    """Run the numbered inputs of a target in children, one after the other.

    Args:
        out: a folder for findings. folder: for the files of the target; only this may be written to.
        until: of `time.monotonic`, when to stop.
    """
    files = target.prepare(folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{target.name}.log").unlink(missing_ok=True)
    tally, shared = Tally(), mmap.mmap(-1, STATE.size)
    at = numbers.start
    while at < numbers.stop and time.monotonic() < until:
        stop = min(at + batch, numbers.stop)
        STATE.pack_into(shared, 0, at, 0, 0, 0, 0.0)
        # A file in `out` is written by the hook's own process, so it must be inside.
        child = Child(target, seed, folder, files, folder / ".findings", shared)
        child.out.mkdir(exist_ok=True)
        status, memory = _forked(lambda child=child, at=at, stop=stop: child.run(range(at, stop)))
        reached, answers, refusals, findings, slowest = STATE.unpack_from(shared)
        tally.add(Tally(reached - at, answers, refusals, findings, slowest, memory))
        at = reached
        if status:
            name, content = made(target.name, seed, at, files)
            kind = f"the process ended: {_ending(status)}"
            keep(child.out, target.name, at, name, content, kind, "")
            tally.add(Tally(inputs=1, findings=1, slowest=SECONDS if "PROF" in kind else 0))
            for name, content in files.items():  # which the child can have left in another state
                if (folder / name).is_file():
                    (folder / name).with_name(".put").write_bytes(content)
                    os.replace((folder / name).with_name(".put"), folder / name)
            at += 1
    log = folder / ".findings" / f"{target.name}.log"
    if log.is_file():
        tally.kinds.update(json.loads(line)[1] for line in log.read_text().splitlines())
        shutil.copytree(folder / ".findings", out, dirs_exist_ok=True)
    return tally


def _forked(run: Callable[[], None]) -> tuple[int, float]:
    """Run a function in a child; return the status of its end, and its peak memory in bytes."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    try:
        _, status, used = os.wait4(pid, 0)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    return status, used.ru_maxrss * 1024.0


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"


# --- command line -----------------------------------------------------------------------------------------------------


def shares(targets: Sequence[Target], total: int) -> dict[str, int]:
    """How many of `total` inputs each target gets: in inverse proportion to its cost."""
    weights = {target.name: 1 / target.cost for target in targets}
    return {name: max(1, round(total * weight / sum(weights.values()))) for name, weight in weights.items()}


def line(name: str, tally: Tally) -> str:
    return (
        f"| {name} | {tally.inputs:,} | {tally.answers:,} | {tally.refusals:,} | {tally.findings:,} | "
        f"{tally.slowest:.2f} s | {tally.memory / 1e6:,.0f} MB |"
    )


HEAD = "| target | inputs | answers | refusals | findings | slowest | peak memory |\n|---|---|---|---|---|---|---|"


def work(targets: Sequence[Target], counts: dict[str, int], given: argparse.Namespace) -> Iterator[tuple[str, Tally]]:
    """Fuzz the targets one after the other, in the order of their names."""
    began = time.monotonic()
    for done, target in enumerate(targets):
        until = float("inf")
        if given.minutes is not None:  # what is left is for the targets that are left, in equal parts
            left = began + 60 * given.minutes - time.monotonic()
            until = time.monotonic() + left / (len(targets) - done)
        with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as folder:
            numbers = range(given.start, given.start + counts[target.name])
            yield (
                target.name,
                fuzz(
                    target,
                    numbers,
                    seed=given.seed,
                    out=given.out,
                    folder=Path(folder).resolve(),
                    until=until,
                    batch=max(BATCH, 4_000 // target.cost),
                ),
            )


def several(targets: Sequence[Target], counts: dict[str, int], given: argparse.Namespace) -> list[tuple[str, Tally]]:
    """The same in `given.processes` processes, each with its share of the targets."""
    found: list[tuple[str, Tally]] = []
    order = sorted(targets, key=lambda one: -counts[one.name] * one.cost)
    pipes = []
    for place in range(given.processes):
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                for name, tally in work(order[place :: given.processes], counts, given):
                    print(line(name, tally), flush=True)
                    pipe.write(json.dumps([name, vars(tally)]) + "\n")
            os._exit(0)
        os.close(writing)
        pipes.append((pid, os.fdopen(reading)))
    for pid, pipe in pipes:
        with pipe:
            for text in pipe:
                name, values = json.loads(text)
                found.append((name, Tally(**{**values, "kinds": Counter(values["kinds"])})))
        os.waitpid(pid, 0)
    return sorted(found)


def again(target: Target, number: int, seed: int) -> None:
    """Read one input in this process, and let its exception out."""
    with tempfile.TemporaryDirectory(prefix="fuzz-again-") as folder:
        path = Path(folder).resolve()
        files = target.prepare(path)
        name, content = made(target.name, seed, number, files)
        print(f"{name}: {len(content):,} bytes: {content[:2000]!r}")
        print("answer:", repr(target.open(path)(name, content))[:2000])


def interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    from fuzz_targets import TARGETS

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", action="append", choices=[one.name for one in TARGETS], help="[all]")
    options.add_argument("--inputs", type=int, default=20_000, help="of all targets together [20,000]")
    options.add_argument("--long", action="store_true", help=f"{LONG:,} inputs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--start", type=int, default=0, help="the number of the first input")
    options.add_argument("--minutes", type=float, help="stop after this time")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "jumok-findings")
    options.add_argument("--again", type=int, metavar="N", help="read input N of one target once more")
    given = options.parse_args(words)
    targets = [one for one in TARGETS if given.target is None or one.name in given.target]
    if given.again is not None:
        again(targets[0], given.again, given.seed)
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    counts = shares(targets, LONG if given.long else given.inputs)
    print(f"seed {given.seed}, Python {sys.version.split()[0]}, {os.cpu_count()} processors\n{HEAD}", flush=True)
    if given.processes > 1:
        found = several(targets, counts, given)
        print(HEAD)
        for name, tally in found:
            print(line(name, tally))
    else:
        found = []
        for name, tally in work(targets, counts, given):
            print(line(name, tally), flush=True)
            found.append((name, tally))
    total = Tally()
    for name, tally in found:
        total.add(tally)
        for kind, times in tally.kinds.most_common():
            print(f"{name}: {times:,} times: {kind}")
    print(line("all", total))
    if total.findings:
        print(f"findings are in {given.out}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
