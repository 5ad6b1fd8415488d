"""Scenarios of bench/soak.py: the disk, the memory and the clocks fail a training."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from soak_jobs import TINY, Command, Failure, Job, Soak, flags, newest_step, require_same

JOBS = ("char", "bpe", "classify", "seq2seq", "lora", "stage")


# --- the disk ---------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Callable[[str], bool]]:
    """A tmpfs at `folder` inside the block; yields a function that changes its options, and says whether it could."""

    def mount(*words: str) -> bool:
        return subprocess.run(["mount", *words, str(folder)], capture_output=True, check=False).returncode == 0

    folder.mkdir(exist_ok=True)
    if not mount("-t", "tmpfs", "-o", options, "jumok-soak"):
        raise OSError(f"a tmpfs cannot be mounted at {folder}")
    try:
        yield lambda changed: mount("-o", f"remount,{changed}")
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def obstacle(soak: Soak) -> str:
    """Why no tmpfs can be mounted; "" if one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a tmpfs needs root on Linux"
    try:
        with small_disk(soak.folder / "disk", "size=1m"):
            return ""
    except OSError as error:
        return str(error)


def disk(soak: Soak, count: int) -> None:
    """A file system that is full, has no inodes, or becomes read-only; a run that vanishes or is renamed."""
    kinds: list[Callable[[Soak, Job, Path], str]] = [remove, rename]
    if why := obstacle(soak):
        print(f"disk: skipped for want of a small file system: {why}")
    else:
        kinds = [full, full, no_inodes, no_inodes, read_only, immutable, *kinds]
    turn = 0
    while turn < count and soak.more():
        kind, job = kinds[turn % len(kinds)], soak.jobs[soak.dice.choice(JOBS)]
        run = soak.folder / "run"
        turn += 1
        soak.attempt("disk", NAMES[kind], run, partial(kind, soak, job, run))


def _told_or_done(command: Command) -> str:
    """The outcome of a command that may or may not have met the fault."""
    command.wait()
    if command.code == 0:
        return "ended before it"
    command.require_told(1)
    return "told"


def _limited(soak: Soak, job: Job, run: Path, small: str, large: str) -> str:
    place = soak.folder / "disk"
    with small_disk(place, small) as change:
        inside, saved, told = place / "run", -1, ""
        if job.base:
            try:
                shutil.copytree(soak.finished / job.base, inside)
            except (OSError, shutil.Error):
                return "no room for the run that is trained further"
        for _ in range(2):  # also when it is tried again as it is
            before = saved
            command = soak.start(soak.next_command(job, inside))
            told = _told_or_done(command)
            if (saved := newest_step(inside)) < before:
                raise Failure(f"the newest state was that of step {before}, and is that of {saved}: {command.err}")
        if told == "told":
            _generate(soak, job, inside)
        if not change(large):
            raise Failure("the file system could not be made larger")
        try:
            soak.resume(job, inside)
        except Failure:
            shutil.copytree(inside, run)
            raise
        return f"{told}; equal after a resume with room" if told == "told" else told


def _generate(soak: Soak, job: Job, run: Path) -> None:
    """The model of a run whose training has failed is usable, if there is one yet."""
    if (run / "model.safetensors").exists() and job.name != "classify":
        soak.start(["generate", str(run), "옛날", "--tokens=3", "--device=cpu"]).require(0)


def full(soak: Soak, job: Job, run: Path) -> str:
    """A disk that is full at some point of the run."""
    whole = sum(path.stat().st_size for path in (soak.finished / job.name).rglob("*") if path.is_file()) / 1024
    return _limited(soak, job, run, f"size={int(soak.dice.uniform(4, 1.3 * whole))}k", "size=64m")


def no_inodes(soak: Soak, job: Job, run: Path) -> str:
    """A file system without free inodes at some point of the run."""
    return _limited(soak, job, run, f"size=64m,nr_inodes={soak.dice.randint(3, 34)}", "nr_inodes=10000")


def read_only(soak: Soak, job: Job, run: Path) -> str:
    """A run that was killed is continued on a read-only file system, generates there, and continues later."""
    place = soak.folder / "disk"
    with small_disk(place, "size=64m") as change:
        inside = place / "run"
        command = soak.start(soak.first_command(job, inside))
        command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
        command.kill()
        saved = newest_step(inside) if inside.exists() else -1
        if not change("ro"):
            raise Failure("the file system could not be made read-only")
        told = _told_or_done(soak.start(soak.next_command(job, inside)))
        _generate(soak, job, inside)
        if inside.exists() and newest_step(inside) != saved:
            raise Failure("the newest state has changed")
        change("rw")
        soak.resume(job, inside)
        return f"{told}; equal after a resume with rights"


def immutable(soak: Soak, job: Job, run: Path) -> str:
    """The folders of a run become immutable (chattr +i) while it is trained."""
    place = soak.folder / "disk"
    with small_disk(place, "size=64m"):
        inside = place / "run"
        command = soak.start(soak.first_command(job, inside))
        command.wait(soak.dice.uniform(0.1, soak.seconds[job.name]), lambda: newest_step_is_there(inside))
        command.wait(soak.dice.uniform(0, soak.seconds[job.name] / 2))
        folders = [str(folder) for folder in (inside, inside / "state") if folder.is_dir()]
        try:
            done = subprocess.run(["chattr", "+i", *folders], capture_output=True, text=True, check=False)
            if done.returncode or not folders:
                command.wait()
                return f"skipped: {done.stderr.splitlines()[0] if done.stderr else 'too early'}"
            told = _told_or_done(command)
        finally:
            subprocess.run(["chattr", "-i", *folders], capture_output=True, check=False)
        soak.resume(job, inside)
        return f"{told}; equal after a resume with rights"


def newest_step_is_there(run: Path) -> bool:
    """Whether there is a training state."""
    return any((run / "state").glob("step-*"))


def remove(soak: Soak, job: Job, run: Path) -> str:
    """`rm -rf` of the run while it is trained; the same command makes it again."""
    command = soak.start(soak.first_command(job, run))
    command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
    shutil.rmtree(run, ignore_errors=True)
    told = _told_or_done(command)
    shutil.rmtree(run, ignore_errors=True)
    soak.resume(job, run)
    return told


def rename(soak: Soak, job: Job, run: Path) -> str:
    """The run is renamed while it is trained, and continued under its new name."""
    command, new = soak.start(soak.first_command(job, run)), soak.folder / "renamed"
    command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
    with suppress(FileNotFoundError):
        run.rename(new)
    told = _told_or_done(command)
    try:
        left = sorted(path.name for path in run.iterdir()) if run.exists() and new.exists() else []
        soak.resume(job, new if new.exists() else run)
    except Failure:
        if new.exists():
            shutil.copytree(new, run, dirs_exist_ok=True)
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return f"{told}; equal after a resume under the new name" + (f"; left under the old one: {left}" if left else "")


NAMES = {
    full: "full disk", no_inodes: "no inodes", read_only: "resume on a read-only file system",
    immutable: "immutable folders", remove: "rm -rf of the run", rename: "rename of the run",
}  # fmt: skip


# --- the memory -------------------------------------------------------------------------------------------------------

BIG = {**TINY, "n_layer": 2, "n_embd": 128, "context_length": 128, "batch_size": 32, "steps": 4, "eval_every": 2}
CGROUP_1, CGROUP_2 = Path("/sys/fs/cgroup/memory/jumok-soak"), Path("/sys/fs/cgroup/jumok-soak")


def memory(soak: Soak, count: int) -> None:
    """A training that needs some hundred MB gets less; it says so or is killed, and continues with enough."""
    big = Job(name="big", begin=[str(soak.texts / "tales.txt"), *flags(BIG)])
    if big.name not in soak.jobs:
        soak.start(soak.first_command(big, soak.finished / "big")).require(0)
    cgroup, turn = _cgroup(), 0
    if cgroup is None:
        print("memory: no cgroup with a limit can be made here; only the address space is limited")
    while turn < count and soak.more():
        kind = (address_space, group)[turn % 2 if cgroup else 0]
        turn += 1
        run = soak.folder / "run"
        name = "limit of the address space" if kind == address_space else "memory of a cgroup"
        soak.attempt("memory", name, run, partial(kind, soak, big, run, cgroup))
    if cgroup is not None:
        with suppress(OSError):
            cgroup.parent.rmdir()


def _limited_once(soak: Soak, job: Job, run: Path, limit: Callable[[], None], codes: tuple[int, ...]) -> str:
    saved, outcomes = -1, []
    for _ in range(2):
        command = soak.start(soak.next_command(job, run), first=limit)
        command.wait()
        if command.code == 1:
            command.require_told(1)
        elif "Traceback" in command.err or command.code not in (0, *codes):
            raise Failure(f"exit code {command.code}: {command.err[-3000:]}")
        outcomes.append({0: "enough", 1: "told"}.get(command.code, f"ended by signal {-(command.code or 0)}"))
        before, saved = saved, newest_step(run)
        if saved < before:
            raise Failure(f"the newest state was that of step {before}, and is that of {saved}")
    soak.resume(job, run)
    command = soak.start(soak.dice.choice(reading(soak, run)), first=limit)
    if command.wait() == 1:
        command.require_told(1)
    elif "Traceback" in command.err or command.code not in (0, *codes):
        raise Failure(f"{command.arguments[0]}: exit code {command.code}: {command.err[-3000:]}")
    return f"{outcomes[-1]}; equal after a resume with memory"


def reading(soak: Soak, run: Path) -> list[list[str]]:
    """Commands that read a run."""
    words = ["--device=cpu", "--quiet"]
    return [
        ["generate", str(run), "옛날", "--samples=32", *words],
        ["evaluate", str(run), str(soak.texts / "tales.txt"), *words],
        ["view", str(run), "옛날", "--out", str(soak.folder / "page.html"), "--force", *words],
    ]


def address_space(soak: Soak, job: Job, run: Path, cgroup: Path | None) -> str:
    """RLIMIT_AS, `ulimit -v`: allocations fail."""
    more = int(2 ** soak.dice.uniform(0, 9.5)) << 20  # up to 700 MB, small ones more often

    def limit() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))

    return _limited_once(soak, job, run, limit, (-signal.SIGABRT,))


def group(soak: Soak, job: Job, run: Path, cgroup: Path | None) -> str:
    """A cgroup with little memory: the system kills the process."""
    assert cgroup is not None
    cgroup.write_text(str(soak.dice.randint(30 << 20, 600 << 20)))

    def limit() -> None:
        (cgroup.parent / "cgroup.procs").write_text(str(os.getpid()))

    return _limited_once(soak, job, run, limit, (-signal.SIGKILL,))


def _cgroup() -> Path | None:
    """The file with the limit of a new cgroup; None if there can be none."""
    for folder, name in ((CGROUP_2, "memory.max"), (CGROUP_1, "memory.limit_in_bytes")):
        with suppress(OSError):
            if folder.parent.is_dir():
                folder.mkdir(exist_ok=True)
                if (folder / name).exists():
                    return folder / name
                folder.rmdir()
    return None


# --- the clocks -------------------------------------------------------------------------------------------------------

CLONE_NEWTIME = 0x80
ZONES = ("Asia/Seoul", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "UTC")


def clock(soak: Soak, count: int) -> None:
    """Clocks that jump or differ; a run by steps ends equal, one by minutes ends."""
    turn = 0
    while turn < count and soak.more():
        kind = (wall_clock, other_boot, by_minutes)[turn % 3]
        turn += 1
        run, job = soak.folder / "run", soak.jobs[soak.dice.choice(JOBS)]
        name = {wall_clock: "the wall clock jumps, the time zone changes", other_boot: "resume with another uptime",
                by_minutes: "the wall clock jumps in a run by minutes"}[kind]  # fmt: skip
        soak.attempt("clock", name, run, partial(kind, soak, job, run))


def jumping(soak: Soak) -> Callable[[], None]:
    """Makes the wall clock of a copy jump by up to ten years at each look, and sets a time zone."""
    seed, zone = soak.dice.randint(0, 1 << 30), soak.dice.choice(ZONES)

    def jump() -> None:
        import random

        os.environ["TZ"] = zone
        time.tzset()
        dice, now = random.Random(seed), time.time
        time.time = lambda: max(0.0, now() + dice.uniform(-3e8, 3e8))
        time.time_ns = lambda: int(time.time() * 1e9)

    return jump


def wall_clock(soak: Soak, job: Job, run: Path) -> str:
    """Three parts of a run, each with a jumping clock and a time zone of its own."""
    for _ in range(2):
        command = soak.start(soak.next_command(job, run), first=jumping(soak))
        command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
        if not command.kill():
            command.require(0)
    soak.start(soak.next_command(job, run), first=jumping(soak)).require(0)
    require_same(run, soak.finished / job.name)
    return "equal"


def other_boot(soak: Soak, job: Job, run: Path) -> str:
    """A run is continued where the monotonic clock stands elsewhere, as after a reboot (a time namespace)."""
    command = soak.start(soak.next_command(job, run))
    command.wait(soak.dice.uniform(0, soak.seconds[job.name]))
    if not command.kill():
        command.require(0)
    now = int(time.monotonic())
    offset = max(soak.dice.choice((-1, 1)) * soak.dice.randint(60, 2 * now + 100), 1 - now)  # not before the boot
    arguments = soak.next_command(job, run)

    def work() -> None:
        """Enter a time namespace, in a child of this copy: the setting holds for new processes only."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWTIME):
            os._exit(77)
        Path("/proc/self/timens_offsets").write_text(f"monotonic {offset} 0\nboottime {offset} 0\n")
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    command = soak.start(arguments, first=work)
    if command.wait() == 77:
        return "skipped: no time namespace can be made here"
    command.require(0)
    require_same(run, soak.finished / job.name)
    return "equal"


def by_minutes(soak: Soak, job: Job, run: Path) -> str:
    """A run by minutes ends in time, whatever the wall clock says; its figures have no negative time."""
    from soak_jobs import events_of

    arguments = [each for each in soak.jobs["char"].begin if not each.startswith("--steps")]
    began = time.monotonic()
    command = soak.start(["train", *arguments, "--minutes=0.05", "--out", str(run)], first=jumping(soak))
    command.require(0)
    if time.monotonic() - began > 30:
        raise Failure("it took more than 30 s")
    if events_of(run)[-1]["event"] != "finish":
        raise Failure("it has not finished")
    return "ended in time"
