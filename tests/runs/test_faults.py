"""Every operation on files of a short run fails once, or is its last; afterwards nothing is lost.

A run is a sequence of writes, flushes, renames and removals. Here the n-th of them fails (no room on the disk, an
input/output error, Ctrl-C) or the process is killed in the middle of it. Whatever n: every state that was reported as
saved is there, and the run goes on from the newest one to the same weights and the same figures, bit for bit.

JUMOK_ALL_FAULTS=1 tries every fault at every operation, which takes minutes; without it one operation in seven has one
fault, in turns.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, assert_same, fork, state_of
from jumok import text as reader
from jumok.errors import JumokError
from jumok.files import write_atomic
from jumok.interop.huggingface import folder as export
from jumok.runs import state as states
from jumok.runs import weights as weight_files
from jumok.runs.events import Eval, Event, Save
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training import pictures
from jumok.training.settings import configurations, given_again
from jumok.training.trainer import Trainer

FAULTS = ("full", "error", "interrupt", "kill")
STRIDE = 7  # otherwise one operation in so many fails, by one fault after the other
ALL = bool(os.environ.get("JUMOK_ALL_FAULTS"))
RUN = {**TINY, "n_embd": 8, "context_length": 8, "steps": 3, "eval_every": 1, "sample_tokens": 1, "save_every": 0.0}
CHANGING = ("replace", "rename", "unlink", "rmdir", "mkdir", "link", "truncate", "chmod", "fsync")
TAKING_ROOM = {"write", "flush", "open", "mkdir", "link", "fsync"}


class Disk:
    """Counts what is done to files, and lets the n-th operation fail. n=None: none.

    A full disk stays full for whatever takes room; an input/output error and Ctrl-C come once.
    """

    def __init__(self, n: int | None, fault: str) -> None:
        self.n, self.fault, self.count = n, fault, 0

    def passes(self, operation: str) -> bool:
        """Whether this operation is to be done; raises what it fails with, and does not return from a kill."""
        self.count += 1
        if self.n is None or self.count - 1 < self.n:
            return True
        if self.fault == "full":
            if operation in TAKING_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return True
        if self.count - 1 == self.n:
            match self.fault:
                case "error":
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                case "interrupt":
                    raise KeyboardInterrupt
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        return True


class WatchedFile:
    """A file that is open for writing; half of a write that fails is in it."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> int:
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()  # so that it is there when the process is killed
        self._disk.passes("write")
        self._file.write(content[half:])
        return len(content)

    def flush(self) -> None:
        self._disk.passes("flush")
        self._file.flush()

    def __enter__(self) -> WatchedFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def watched(n: int | None = None, fault: str = "error") -> Iterator[Disk]:
    """All that Python does to files inside the block goes through a `Disk`; so do the pictures, made cheap."""
    disk = Disk(n, fault)
    opened = io.open

    def open_watched(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+"):
            return opened(file, mode, *arguments, **options)
        disk.passes("open")
        return WatchedFile(opened(file, mode, *arguments, **options), disk)

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            disk.passes(name)
            return function(*arguments, **options)

        return call

    def save_watched(tensors: dict[str, torch.Tensor], path: Path, **options: Any) -> None:
        saved(tensors, path, **options)
        content = path.read_bytes()
        with opened(path, "wb") as file:
            WatchedFile(file, disk).write(content)

    saved = states.save_file
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGING:
            patch.setattr(os, name, guarded(name, getattr(os, name)))
        patch.setattr(tempfile, "mkstemp", guarded("open", tempfile.mkstemp))
        patch.setattr(io, "open", open_watched)
        patch.setattr(builtins, "open", open_watched)
        for module in (states, weight_files, export):
            patch.setattr(module, "save_file", save_watched)
        patch.setattr(pictures, "draw_loss", lambda events, path, label: write_atomic(path, f"{len(events)}"))
        patch.setattr(pictures, "DRAW_EVERY", 0.0)
        yield disk


# --- what a run does in one go ---

Act = Callable[[Path, Text], Iterator[Event]]


def trainer_of(run: Path, text: Text) -> Trainer:
    """What a user asks for after something went wrong, too: begin, or resume what has begun."""
    if (run / "config.json").exists():
        return Trainer.resume(run, device="cpu")
    return Trainer.start(run, text, **configurations(RUN), device="cpu")


def run_to_the_end(run: Path, text: Text) -> Iterator[Event]:
    return trainer_of(run, text).run()


def stop_at_once(run: Path, text: Text) -> Iterator[Event]:
    """Ctrl-C before the first step."""
    trainer = trainer_of(run, text)
    trainer.request_stop()
    return trainer.run()


def train_further(run: Path, text: Text) -> Iterator[Event]:
    """What a user asks for who wants a finished run to go on: a stage more, or the end of one that has begun."""
    begun = "stages" in RunFolder(run).read_config()
    return Trainer.resume(run, training=given_again(run, {} if begun else {"steps": 3}), device="cpu").run()


def attempt(act: Act, run: Path, text: Text, n: int | None, fault: str) -> tuple[int, int]:
    """Do it with a fault at operation n. Returns the last step that was reported as saved, and how many operations."""
    saved, disk = 0, None
    try:
        with watched(n, fault) as disk:
            for event in act(run, text):
                if isinstance(event, Save):
                    saved = event.step
    except (JumokError, KeyboardInterrupt):
        assert n is not None
    assert disk is not None
    return saved, disk.count


def killed(act: Act, run: Path, text: Text, n: int) -> int:
    """The same in a child process that is killed. Returns the last step that it reported as saved."""
    reader, writer = os.pipe()

    def work() -> None:
        for event in act(run, text):
            if isinstance(event, Save):
                os.write(writer, bytes([event.step]))

    die_in_child(work, n)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return max(pipe.read(), default=0)


def die_in_child(work: Callable[[], None], n: int) -> None:
    """Do it in a child process, which ends by SIGKILL at operation n."""

    def until_killed() -> int:
        with watched(n, "kill"):
            work()
        return 1

    child = fork(until_killed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture(scope="module")
def text(tales: str) -> Text:
    return reader.from_string(tales[:600])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text: Text) -> Path:
    """A run that was left alone."""
    run = tmp_path_factory.mktemp("faults") / "finished"
    attempt(run_to_the_end, run, text, None, "error")
    return run


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory, finished: Path, text: Text) -> Path:
    """The same, trained further, and left alone."""
    run = tmp_path_factory.mktemp("faults") / "extended"
    shutil.copytree(finished, run)
    attempt(train_further, run, text, None, "error")
    return run


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, text: Text) -> Path:
    """A run that has taken no step."""
    run = tmp_path_factory.mktemp("faults") / "begun"
    trainer_of(run, text).close()
    return run


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory, begun: Path, text: Text) -> Path:
    """A run that was killed between better weights and the state that would have told of them."""
    run = tmp_path_factory.mktemp("faults") / "torn"
    shutil.copytree(begun, run)
    with watched():
        for wanted, step in ((Save, 1), (Eval, 2)):
            trainer = trainer_of(run, text)
            for event in trainer.run():
                if isinstance(event, wanted) and event.step == step:
                    trainer.close()  # like a kill: nothing is saved
                    break
    folder = RunFolder(run)
    assert state_of(run).step == 1
    assert not folder.has_weights_of(state_of(run))
    return run


# The folder there is before, what is done to it, how it goes on after a fault, and where it ends.
SCENARIOS: dict[str, tuple[str | None, Act, Act, str]] = {
    "a run is begun": (None, stop_at_once, run_to_the_end, "finished"),
    "a run is trained": ("begun", run_to_the_end, run_to_the_end, "finished"),
    "a finished run is trained further": ("finished", train_further, train_further, "extended"),
    "a run is stopped right after its resume": ("torn", stop_at_once, run_to_the_end, "finished"),
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork, which this system has not")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_fault_loses_anything(scenario: str, tmp_path: Path, text: Text, request: pytest.FixtureRequest) -> None:
    """A kill between the removal of a state and the renaming of the next left none, and a finished run began anew."""
    base, act, go_on, end = SCENARIOS[scenario]
    run, reference = tmp_path / "run", request.getfixturevalue(end)

    def prepare() -> int:
        shutil.rmtree(run, ignore_errors=True)
        if base is None:
            return 0
        shutil.copytree(request.getfixturevalue(base), run)
        return 0 if base == "begun" else state_of(run).step

    prepare()
    _, operations = attempt(act, run, text, None, "error")
    assert operations > 20
    tried = dict.fromkeys(FAULTS, 0)
    for n in range(0, operations, 1 if ALL else STRIDE):
        for fault in FAULTS if ALL else [FAULTS[n // STRIDE % len(FAULTS)]]:
            before = prepare()
            saved = killed(act, run, text, n) if fault == "kill" else attempt(act, run, text, n, fault)[0]
            place = f"{fault} at operation {n}"
            if max(before, saved):
                assert state_of(run).step >= max(before, saved), place
            with watched():
                list(go_on(run, text))
            assert_same(run, reference)
            assert list(run.rglob("*.tmp")) == [], place
            tried[fault] += 1
    print(f"{scenario}: {operations} operations, faults tried: {tried}")


# --- exports ---


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork, which this system has not")
def test_an_export_is_there_whatever_fails(tmp_path: Path) -> None:
    """Ctrl-C between two renames removed the older export together with the newer one."""
    target = tmp_path / "export"

    def write(number: int) -> None:
        export.write_folder(target, {"config.json": {"number": number}}, None, {"a": torch.full((3,), float(number))})

    def number_in(folder: Path) -> int:
        number = json.loads((folder / "config.json").read_text(encoding="utf-8"))["number"]
        assert export.read_tensors(folder)["a"].tolist() == [number] * 3
        return int(number)

    write(0)
    with watched() as disk:
        write(1)
    for n in range(disk.count):
        for fault in FAULTS:
            shutil.rmtree(target)
            write(1)
            if fault == "kill":
                die_in_child(lambda: write(2), n)
                if not target.exists():  # between the two renames: both are beside it
                    (old,) = tmp_path.glob(".export-*.tmp/old")
                    old.rename(target)
            else:
                with suppress(JumokError, KeyboardInterrupt), watched(n, fault):
                    write(2)
            assert number_in(target) in (1, 2), f"{fault} at operation {n}"
            for leftover in tmp_path.glob(".export-*.tmp"):
                shutil.rmtree(leftover)
