"""Faults in every file operation of a short run; nothing that was saved is lost.

A run is a sequence of writes, flushes, renames and removals. The n-th of them fails (disk full, input/output error,
Ctrl-C), or the process is killed during it. For every n, all states that were reported as saved exist, and the run
resumes from the newest one to the same parameters and figures, bit for bit.

Or the power is cut before the n-th operation, on a disk that loses what was not flushed (`faulty_disk`).

JUMOK_ALL_FAULTS=1 tests every fault at every operation, which takes minutes; otherwise every seventh operation has one
of the faults, in turn.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from conftest import TINY, assert_same, fork, state_of
from faulty_disk import Recorder, after_power_cut, recorded, watched
from jumok import text as reader
from jumok.errors import JumokError
from jumok.interop.huggingface import folder as export
from jumok.runs.events import Eval, Event, Save
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.trainer import Trainer

FAULTS = ("full", "error", "interrupt", "kill")
STRIDE = 7  # otherwise one operation in this number fails, with one fault after the other
ALL = bool(os.environ.get("JUMOK_ALL_FAULTS"))
RUN = {**TINY, "n_embd": 8, "context_length": 8, "steps": 3, "eval_every": 1, "sample_tokens": 1, "save_every": 0.0}
# --- what a run does in one go ---

Act = Callable[[Path, Text], Iterator[Event]]


def trainer_of(run: Path, text: Text) -> Trainer:
    """Start the run, or resume it if it exists, as a user does after a fault."""
    if (run / "config.json").exists():
        return Trainer.resume(run, device="cpu")
    return Trainer.start(run, text, **RUN, device="cpu")


def run_to_the_end(run: Path, text: Text) -> Iterator[Event]:
    return trainer_of(run, text).run()


def stop_at_once(run: Path, text: Text) -> Iterator[Event]:
    """Ctrl-C before the first step."""
    trainer = trainer_of(run, text)
    trainer.request_stop()
    return trainer.run()


def attempt(act: Act, run: Path, text: Text, n: int | None, fault: str) -> tuple[int, int]:
    """Run with a fault at operation n; return the last step reported as saved, and the number of operations."""
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
    """The same in a child process that is killed; return the last step that it reported as saved."""
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
    """Run in a child process that is killed by SIGKILL at operation n."""

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
    """A run without faults."""
    run = tmp_path_factory.mktemp("faults") / "finished"
    attempt(run_to_the_end, run, text, None, "error")
    return run


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, text: Text) -> Path:
    """A run before its first step."""
    run = tmp_path_factory.mktemp("faults") / "begun"
    trainer_of(run, text).close()
    return run


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory, begun: Path, text: Text) -> Path:
    """A run that was killed after saving better parameters and before the next state."""
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
    assert not folder.has_parameters_of(state_of(run))
    return run


# The folder before, the operation, how it is continued after a fault, and the result.
SCENARIOS: dict[str, tuple[str | None, Act, Act, str]] = {
    "a run is begun": (None, stop_at_once, run_to_the_end, "finished"),
    "a run is trained": ("begun", run_to_the_end, run_to_the_end, "finished"),
    "a run is stopped right after its resume": ("torn", stop_at_once, run_to_the_end, "finished"),
}


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork, which this system has not")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_fault_loses_anything(scenario: str, tmp_path: Path, text: Text, request: pytest.FixtureRequest) -> None:
    """A kill between the removal of a state and the rename of the next left no state; a finished run started again."""
    base, act, go_on, end = SCENARIOS[scenario]
    run, reference = tmp_path / "run", request.getfixturevalue(end)
    shutil.copytree(request.getfixturevalue("finished"), tmp_path / "first")

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


# --- power cuts ---

CUTS = 5 if ALL else 1  # trials of what survives, besides that nothing does


def try_power_cuts(scenario: str, tmp_path: Path, text: Text, request: pytest.FixtureRequest, stride: int) -> int:
    """Cut the power before every operation, or one in `stride`; return how many trials were made."""
    base, act, go_on, end = SCENARIOS[scenario]
    before, after, reference = tmp_path / "before", tmp_path / "after", request.getfixturevalue(end)
    before.mkdir()
    shutil.copytree(request.getfixturevalue("finished"), before / "first")
    if base is not None:
        shutil.copytree(request.getfixturevalue(base), before / "run")
    saved = 0 if base in (None, "begun") else state_of(before / "run").step
    with recorded(before) as disk:
        disk.saved = saved
        for event in act(before / "run", text):
            if isinstance(event, Save):
                disk.saved = event.step
    trials = 0
    for n in range(0, len(disk.moments), stride):
        for seed in (None, *range(CUTS)):
            shutil.rmtree(after, ignore_errors=True)
            after_power_cut(disk.moments, n, after, None if seed is None else random.Random(1000 * n + seed))
            run, promised = after / "run", disk.moments[n].saved
            place = f"power cut at operation {n}, seed {seed}"
            if promised:
                assert state_of(run).step >= promised, place
            with watched():
                list(go_on(run, text))
            assert_same(run, reference)
            assert list(run.rglob("*.tmp")) == [], place
            trials += 1
    return trials


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_power_cut_loses_anything(scenario: str, tmp_path: Path, text: Text, request: pytest.FixtureRequest) -> None:
    """What was flushed is there after a power cut; of the rest anything can be, in any order."""
    trials = try_power_cuts(scenario, tmp_path, text, request, 1 if ALL else STRIDE)
    print(f"{scenario}: {trials} power cuts")
    assert trials > 5


@pytest.mark.long
@pytest.mark.parametrize("what", ["files", "folders"])
def test_a_flush_that_is_missing_is_found(
    what: str, tmp_path: Path, text: Text, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above would pass on any code if the disk that it simulates lost nothing."""
    flush = Recorder.flush

    def forget(disk: Recorder, handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode) == (what == "files"):
            flush(disk, handle)

    monkeypatch.setattr(Recorder, "flush", forget)
    with pytest.raises((AssertionError, JumokError, OSError)):
        try_power_cuts("a run is trained", tmp_path, text, request, 3)


# --- exports ---


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork, which this system has not")
def test_a_fault_leaves_an_export(tmp_path: Path) -> None:
    """Ctrl-C between two renames removed the older export together with the newer one."""
    target = tmp_path / "export"

    def write(number: int) -> None:
        export.write_folder(target, {"config.json": {"number": number}}, {}, {"a": torch.full((3,), float(number))})

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
                if not target.exists():  # between the two renames: both are in the temporary folder
                    (old,) = tmp_path.glob(".export-*.tmp/old")
                    old.rename(target)
            else:
                with suppress(JumokError, KeyboardInterrupt), watched(n, fault):
                    write(2)
            assert number_in(target) in (1, 2), f"{fault} at operation {n}"
            for leftover in tmp_path.glob(".export-*.tmp"):
                shutil.rmtree(leftover)
