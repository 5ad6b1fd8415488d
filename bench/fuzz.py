"""Give mutated files and requests to the readers of jumok: python bench/fuzz.py

    python bench/fuzz.py --inputs 100000 --seed 1         # of all targets together; an expensive target gets fewer
    python bench/fuzz.py --target tokenizer --minutes 5
    python bench/fuzz.py --target tokenizer --again 4711  # one input once more, with its traceback

An input follows from the seed, the target and its number alone, on any machine. For each input the reader must answer
or raise a JumokError, and the server must answer with a status below 500, within 10 seconds of processor time and 2 GB
of memory. Nothing may be executed, connected to, or written outside the folder of the target.

Inputs run in forked children of a process that has imported everything, some hundreds in each child. The system ends a
child that takes too long (timers) or refuses its memory (RLIMIT_AS); an audit hook of Python watches the rest. The hook
does not see files that native libraries open. A finding is printed and kept with its input; the exit code is then 1.

Mutations are plain and seeded, rather than guided by coverage (atheris): the parsers that read first are native (json,
tokenizers, safetensors, pyarrow), which atheris does not instrument; a mutation that knows JSON passes them; libFuzzer
stops at the first finding, and does not survive a child that dies; and nothing needs to be installed.
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
from typing import Any

import torch

from fuzz_targets import TARGETS, Target, put
from jumok.errors import JumokError

SECONDS = 10  # of processor time for one input
WAITING = 30  # seconds for one input that waits
MEMORY = 2 << 30  # bytes that an input may ask for
BATCH = 400  # inputs of one child
KEPT = 3  # findings of one kind that are kept


class Forbidden(BaseException):
    """Something was executed, connected to, or written outside the folder."""


# --- mutations --------------------------------------------------------------------------------------------------------

NESTED = 3_000  # levels, more than Python recurses
INTEGERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32_767, 65_536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1,
            2**63, -(2**63) - 1, 2**64, 10**9, 10**18, 10**400)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, 1e400, -1e400, float("nan"), 1e-5, 3.0000000001)
STRINGS = ("", " ", "\0", "가", "\ud800", "\udcff", "\U0010ffff", "../../etc/passwd", "/dev/zero", "C:\\x", "a/b", ".",
           "\x1b[31m", "</script>", "<!--", "{0}", "{name}", "{{", "%s", "[MASK]", "[EOS]", "auto", "null", "1e9", "-1",
           "x" * 300, "ᄀ" * 5_000, "\u202e", "\ufeff", "a\r\nb", "e\u0301", "'; --", "lm", "cuda", "=1+1")  # fmt: skip
MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\x1a", b"\r", b'"', b"\t", b",", b"\n", b"\xc0\x80", b"{", b"[")


class Raw:
    """A piece of a JSON document that is written as it is."""

    def __init__(self, text: str) -> None:
        self.text = text


def hostile(random: Random) -> Any:
    """Return a value that a reader may not expect."""
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    depth = random.choice((20, 100, NESTED))
    raw = (opening * depth + "1" + closing * depth, "9" * 5_000, "NaN", "-Infinity", "1e999", "0" * 9, "")
    containers = ([], {}, [[]], {"": None}, [None], [1, "a", None], {"a": {"a": 1}}, [0] * 1_000)
    kinds = (INTEGERS, INTEGERS, STRINGS, STRINGS, FLOATS, (None, True, False), containers, tuple(map(Raw, raw)))
    return random.choice(random.choice(kinds))


def dumps(value: Any, *, ascii_only: bool = True) -> bytes:
    """Write JSON, in which each `Raw` stands as it is."""
    raw: list[str] = []

    def mark(found: Raw) -> str:
        raw.append(found.text)
        return f"@raw {len(raw) - 1}@"

    text = json.dumps(value, default=mark, ensure_ascii=ascii_only)
    for at, content in enumerate(raw):
        text = text.replace(f'"@raw {at}@"', content)
    return text.encode(errors="surrogatepass")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys; without recursion, because it may nest deeply."""
    waiting = [value]
    while waiting:
        container = waiting.pop()
        for key, part in container.items() if isinstance(container, dict) else enumerate(container):
            yield container, key
            if isinstance(part, dict | list):
                waiting.append(part)


def mutated_json(content: bytes, random: Random) -> bytes:
    """Change one to three values or names of a JSON document."""
    try:
        document = [json.loads(content)]
    except ValueError:
        return mutated_bytes(content, random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        container, key = random.choice(list(places(document)))
        match random.randrange(8):
            case 0 if container is not document:
                del container[key]
            case 1 if isinstance(container, dict):
                container[random.choice((*STRINGS, *map(str, container)))] = container.pop(key)
            case 2 if type(container[key]) is int:
                container[key] += random.choice((-1, 1, 2**32, -(10**6)))
            case 3 if isinstance(container[key], list):
                container[key] = container[key] * random.choice((2, 50))
            case _:
                container[key] = hostile(random)
    return dumps(document[0], ascii_only=random.random() < 0.8)


def mutated_lines(content: bytes, random: Random) -> bytes:
    """Change, repeat or remove one line of JSON lines."""
    lines = content.split(b"\n")
    place = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            lines.insert(place, random.choice(lines))
        case 1:
            del lines[place]
        case 2:
            lines[place] = dumps(hostile(random))
        case _:
            lines[place] = mutated_json(lines[place], random)
    return b"\n".join(lines)


def mutated_toml(content: bytes, random: Random) -> bytes:
    """Change the value or the key of one line of TOML, or add a line."""
    lines = content.split(b"\n")
    place = random.randrange(len(lines))
    key, equals, value = lines[place].partition(b"=")
    key = key.strip() or b"steps"
    depth = random.choice((50, NESTED))
    others = (b"inf", b"-nan", b"1979-05-27", b"07:32:00", b"0x" + b"f" * 40, b"1_000", b"{a = 1}", b"'''",
              b'"\\u0000"', b"9" * 5_000, b"[" * depth + b"]" * depth)  # fmt: skip
    match random.randrange(5):
        case 0:
            lines.insert(place, random.choice(lines))
        case 1:
            lines[place] = key + b".x = " + value if equals else b"[a.b]"
        case 2:
            lines[place] = key + b" = " + random.choice(others)
        case _:
            lines[place] = key + b" = " + dumps(hostile(random))
    return b"\n".join(lines)


def mutated_safetensors(content: bytes, random: Random) -> bytes:
    """Change the header of a safetensors file: its length, or a name, type, shape or offset in it."""
    size = struct.unpack_from("<Q", content)[0]
    header, rest = content[8 : 8 + size], content[8 + size :]
    if random.random() < 0.15:
        return struct.pack("<Q", random.choice((0, 1, size - 1, size + 1, 2**31, 2**63, 2**64 - 1))) + header + rest
    if random.random() < 0.3:  # another type or shape of the same size, which is read and then does not fit
        document = json.loads(header)
        entry = document[random.choice([name for name in document if name != "__metadata__"])]
        if random.random() < 0.5:
            entry["dtype"] = random.choice(("F32", "I32", "U32", "F16", "BF16", "F64", "I64", "BOOL", "F8_E4M3", "C64"))
        else:
            entry["shape"] = random.choice(([*entry["shape"], 1], entry["shape"][::-1], [], [0], [2**40, 0], [-1]))
        header = json.dumps(document).encode()
    else:
        header = mutated_json(header, random)
    return struct.pack("<Q", len(header)) + header + rest


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Make one to four changes: bits flipped, parts cut, repeated, moved or replaced, numbers at boundaries."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(9):
            case 0:
                data = data[:at]
            case 1 if data:
                data[min(at, len(data) - 1)] ^= 1 << random.randrange(8)
            case 2:
                data[at : at + random.randrange(1, 9)] = random.randbytes(random.randrange(9))
            case 3:
                del data[at : at + random.choice((1, 2, 16, 256))]
            case 4:
                part = data[at : at + random.choice((1, 4, 64))] or b"\0"
                data[at:at] = bytes(part) * random.choice((2, 100, 20_000 // len(part)))
            case 5:
                other = random.randrange(len(data) + 1)
                data[at:at] = data[other : other + random.randrange(64)]
            case 6:
                number = random.choice(INTEGERS[:-1]) & (2**64 - 1)
                width = random.choice((1, 2, 4, 8))
                data[at : at + width] = number.to_bytes(8, random.choice(("little", "big")))[:width]
            case 7:
                data[at:at] = random.choice(STRINGS).encode(errors="surrogatepass")
            case _:
                data[at:at] = random.choice(MARKS) * random.choice((1, 2, 5_000))
    return bytes(data)


MUTATIONS: dict[str, Callable[[bytes, Random], bytes]] = {
    ".json": mutated_json, ".jsonl": mutated_lines, ".toml": mutated_toml, ".safetensors": mutated_safetensors,
}  # fmt: skip


def mutated(name: str, content: bytes, random: Random) -> bytes:
    """Return a mutation of a file; the name says its format. One in 50 is the file as it is.

    A text format is mutated in its own terms more often than as bytes: such inputs pass the parser, and reach the code
    that reads the values.
    """
    if random.random() < 0.02:
        return content
    known = MUTATIONS.get(Path(name).suffix)
    return mutated_bytes(content, random) if known is None or random.random() < 0.3 else known(content, random)


def made(target: str, seed: int, number: int, files: dict[str, bytes]) -> tuple[str, bytes]:
    """Return the name and the content of an input."""
    random = Random(f"{seed}/{target}/{number}")
    name = random.choice(sorted(files))
    return name, mutated(name, files[name], random)


# --- children ---------------------------------------------------------------------------------------------------------


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
        """Add the counts of other inputs."""
        for name in ("inputs", "answers", "refusals", "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.memory = max(self.slowest, other.slowest), max(self.memory, other.memory)
        self.kinds += other.kinds


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
    """Return the kind of a finding, which is its type and the innermost line of jumok."""
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
        """Read the inputs, under the limits and the hook."""
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


# --- the parent -------------------------------------------------------------------------------------------------------


def fuzz(target: Target, numbers: range, *, seed: int, out: Path, folder: Path, until: float = float("inf")) -> Tally:
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
        stop = min(at + BATCH, numbers.stop)
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
                    put(folder / name, content)
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
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the threads of the library did not come along
            run()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status, used = os.wait4(pid, 0)
    return status, used.ru_maxrss * 1024.0


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.WEXITSTATUS(status)}"


# --- the program ------------------------------------------------------------------------------------------------------

HEAD = "| target | inputs | answers | refusals | findings | slowest | peak memory |\n|---|---|---|---|---|---|---|"


def shares(targets: Sequence[Target], total: int) -> dict[str, int]:
    """Divide `total` inputs among the targets, in inverse proportion to their costs."""
    weights = {target.name: 1 / target.cost for target in targets}
    return {name: max(1, round(total * weight / sum(weights.values()))) for name, weight in weights.items()}


def row(name: str, tally: Tally) -> str:
    """Return the line of the table for a target."""
    return (
        f"| {name} | {tally.inputs:,} | {tally.answers:,} | {tally.refusals:,} | {tally.findings:,} | "
        f"{tally.slowest:.2f} s | {tally.memory / 1e6:,.0f} MB |"
    )


def again(target: Target, number: int, seed: int) -> None:
    """Read one input in this process, and let its exception out."""
    with tempfile.TemporaryDirectory(prefix="fuzz-again-") as folder:
        path = Path(folder).resolve()
        name, content = made(target.name, seed, number, target.prepare(path))
        print(f"{name}: {len(content):,} bytes: {content[:2000]!r}")
        print("answer:", repr(target.open(path)(name, content))[:2000])


def main() -> int:
    """Fuzz the targets; 1 if something was found."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", action="append", choices=[one.name for one in TARGETS], help="[all]")
    options.add_argument("--inputs", type=int, default=20_000, help="of all targets together [20,000]")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    options.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "jumok-findings")
    options.add_argument("--again", type=int, metavar="N", help="read input N of one target once more")
    given = options.parse_args()
    targets = [one for one in TARGETS if given.target is None or one.name in given.target]
    if given.again is not None:
        again(targets[0], given.again, given.seed)
        return 0
    print(f"seed {given.seed}, Python {sys.version.split()[0]}, {os.cpu_count()} processors\n{HEAD}", flush=True)
    counts, total, end = shares(targets, given.inputs), Tally(), time.monotonic() + 60 * given.minutes
    for done, target in enumerate(targets):
        now = time.monotonic()
        until = now + (end - now) / (len(targets) - done)  # what is left is for the targets that are left
        with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as folder:
            place, numbers = Path(folder).resolve(), range(counts[target.name])
            tally = fuzz(target, numbers, seed=given.seed, out=given.out, folder=place, until=until)
        print(row(target.name, tally), flush=True)
        total.add(tally)
    print(row("all", total))
    for kind, times in total.kinds.most_common():
        print(f"{times:,} times: {kind}")
    if total.findings:
        print(f"findings are in {given.out}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
