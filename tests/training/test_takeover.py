"""When a run takes over compiled code, and the process that compiles it beside the steps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from conftest import only, run_until, state_of
from jumok.device import has_compiler
from jumok.nn.blocks import Block
from jumok.runs.events import Event, Notice, Step
from jumok.training import clock as timing
from jumok.training import takeover
from jumok.training.compilation import failed
from jumok.training.policy import least_memory
from jumok.training.takeover import Compiler
from jumok.training.tasks.language_modelling import LanguageModelling
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]
BY_MINUTES: dict[str, Any] = {"steps": None, "minutes": 2.0, "passes": 0, "compile": "on"}


class Played:
    """A compiler that is ready after three steps."""

    ready_after = 3
    ends_with = ""
    made: ClassVar[list[Played]] = []

    def __init__(self, *_: Any) -> None:
        self.looks, self.closed = 0, False
        self.made.append(self)

    @property
    def has_ended(self) -> bool:
        self.looks += 1
        return self.looks >= self.ready_after

    def failure(self) -> str:
        return self.ends_with

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Play the compiler; what is filled is how often this process has compiled."""
    calls: list[int] = []
    cache = tmp_path / "torchinductor"
    cache.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    monkeypatch.setattr(takeover, "compile_training", lambda *_: calls.append(1) or "")
    monkeypatch.setattr(takeover, "Compiler", Played)
    monkeypatch.setattr(Played, "made", [])
    return calls


def said(events: list[Event]) -> list[str]:
    """What was said of compiling."""
    return [event.text for event in only(events, Notice) if "ompil" in event.text]


def compiled_after(trainer: Trainer, calls: list[int], steps: int) -> tuple[list[int], list[Event]]:
    """Run so many steps more: how often this process had compiled at each of them, and all events."""
    found, events, end = [], [], trainer.step + steps
    for event in trainer.run():
        events.append(event)
        if isinstance(event, Step):
            found.append(len(calls))
            if event.step == end:
                trainer.request_stop()
    return found, events


def test_steps_count_while_the_compiler_is_at_work(start: Start, compiled: list[int]) -> None:
    """A run waited for the compiler before its first step: 15 s on two cores."""
    found, events = compiled_after(start(**BY_MINUTES), compiled, 5)
    assert found == [0, 0, 0, 1, 1]
    assert said(events) == []
    (process,) = Played.made
    assert process.closed


def test_code_that_was_made_before_is_taken_at_once(start: Start, compiled: list[int], tmp_path: Path) -> None:
    compiled_after(start(**BY_MINUTES), compiled, 4)
    found, _ = compiled_after(start("again", **BY_MINUTES), compiled, 1)
    assert (found, len(Played.made)) == ([2], 1)
    compiled_after(Trainer.resume(tmp_path / "run", device="cpu"), compiled, 1)
    assert (len(compiled), len(Played.made)) == (3, 1)
    for settings in ({"n_embd": 32}, {"batch_size": 8}, {"dropout": 0.2}, {"precision": "bfloat16"}):  # other code
        found, _ = compiled_after(start(str(settings), **BY_MINUTES, **settings), compiled, 1)
        assert found == [3]
    assert len(Played.made) == 5


def test_code_is_known_by_the_batch_before_the_first_step(
    start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later batches of a run with rewards are as long as its answers. Each run compiled its code anew."""
    whole = LanguageModelling.parts

    def parts(task: LanguageModelling, number: int) -> list[tuple[Any, ...]]:
        begun = any(process.looks for process in Played.made)
        return [tuple(each[:1] for each in part) if begun else part for part in whole(task, number)]

    monkeypatch.setattr(LanguageModelling, "parts", parts)
    compiled_after(start(**BY_MINUTES), compiled, 4)
    (process,) = Played.made
    process.looks = 0
    assert compiled_after(start("again", **BY_MINUTES), compiled, 1)[0] == [2]


def test_a_run_by_steps_is_compiled_before_its_first(start: Start, compiled: list[int]) -> None:
    """The step of the takeover would depend on the machine, and the last bits of the parameters on the step."""
    found, _ = compiled_after(start(compile="on"), compiled, 2)
    assert found == [1, 1]
    assert Played.made == []


def test_a_run_that_fits_once_is_compiled_before_its_first_step(
    start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system ended one of two processes, or both, that each held a whole pass."""
    trainer = start(**BY_MINUTES)
    least = int(sum(least_memory(trainer.model.config, trainer.config, trainer.task).values()))
    monkeypatch.setattr(takeover, "free_memory", lambda _: 2 * least - 1)
    assert compiled_after(trainer, compiled, 1)[0] == [1]
    assert Played.made == []


def test_a_run_that_is_not_compiled_starts_no_process(start: Start, compiled: list[int]) -> None:
    found, _ = compiled_after(start(**{**BY_MINUTES, "compile": "off"}), compiled, 4)
    assert (found, Played.made) == ([0, 0, 0, 0], [])


def test_a_failure_beside_costs_a_sentence(start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    text = failed(RuntimeError("no compiler here"))
    monkeypatch.setattr(Played, "ends_with", text)
    found, events = compiled_after(start(**BY_MINUTES), compiled, 5)
    assert said(events) == [text]
    assert found == [0] * 5
    compiled_after(start("again", **BY_MINUTES), compiled, 1)
    assert len(Played.made) == 2  # it is not taken for code that was made


def test_no_place_for_the_code(start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(takeover, "Compiler", full)
    found, events = compiled_after(start(**BY_MINUTES), compiled, 2)
    assert found == [0, 0]
    assert said(events) == [failed(OSError("no space left"))]


def test_a_run_that_ends_first_ends_the_process(start: Start, compiled: list[int]) -> None:
    run_until(start(**BY_MINUTES), 1)
    for event in (trainer := start("left", **BY_MINUTES)).run():
        if isinstance(event, Step):
            break
    del trainer
    assert [process.closed for process in Played.made] == [True, True]
    assert compiled == []


def test_code_that_comes_late_is_not_taken(
    start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A resumed run, too, does not spend its last seconds on compiling."""
    left = {"seconds": 31.0}
    monkeypatch.setattr(timing.Clock, "remaining", lambda _: left["seconds"])
    trainer = start(**BY_MINUTES)
    for event in trainer.run():
        if event.step == 2:
            left["seconds"] = 29.0
        if event.step == 5:
            trainer.request_stop()
    assert compiled == []
    _, events = compiled_after(Trainer.resume(tmp_path / "run", device="cpu"), compiled, 1)
    assert said(events) == ["What is left of the run is too short to compile."]
    left["seconds"] = 31.0
    compiled_after(Trainer.resume(tmp_path / "run", device="cpu"), compiled, 4)
    assert (len(compiled), len(Played.made)) == (1, 2)


def test_steps_beside_the_compiler_change_no_plan(
    start: Start, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take longer than those after it; a run by minutes was planned anew with them, and said so."""
    watched: list[float] = []
    monkeypatch.setattr(timing.Clock, "watch", lambda _, seconds: watched.append(seconds) or iter(()))
    compiled_after(start(**BY_MINUTES), compiled, 5)
    assert len(watched) == 2


def play_compiling(model: nn.Module, task: object, one_pass: Callable[[], object]) -> str:
    """Let the blocks compute something else in training, as compiled ones do in the last bits, and try it."""
    for block in model.modules():
        if isinstance(block, Block):
            block._compiled_call_impl = partial(
                lambda call, *args, **named: 1.01 * call(*args, **named), block._call_impl
            )
    one_pass()
    return ""


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    "stops", [(2, 6), (3, 4), (1, 2, 3, 8)]
)  # before the code is taken over, at that, and after it
def test_a_run_stopped_around_the_takeover_equals_one_that_was_not(
    start: Start,
    compiled: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stops: tuple[int, ...],
    killed: bool,
) -> None:
    """The same steps by the compiled code, at the same rates, which follow from the clock, give the same bits.

    The pass with which the code is tried changes neither gradients nor moments nor random numbers.
    """
    monkeypatch.setattr(takeover, "compile_training", play_compiling)
    monkeypatch.setattr(timing.Clock, "rate", lambda clock: 1 / (2 + clock.step))
    settings = {**BY_MINUTES, "minutes": 10_000.0, "dropout": 0.1, "save_every": 0.0}
    taken: dict[int, bool] = {}  # whether the last one to take a step used compiled code

    def take(trainer: Trainer, until: int) -> None:
        blocks = [part for part in trainer.model.modules() if isinstance(part, Block)]
        for event in trainer.run():
            if not isinstance(event, Step):
                continue
            taken[event.step] = blocks[0]._compiled_call_impl is not None
            if event.step == until:
                if killed:  # what came after the last save is lost: this step
                    trainer.close()
                    break
                trainer.request_stop()

    take(start(**settings), stops[0])
    for until in (*stops[1:], 10):
        take(Trainer.resume(tmp_path / "run", device="cpu"), until)
    interrupted, after = state_of(tmp_path / "run"), taken.copy()
    assert sorted(after) == list(range(1, 11))
    assert list(after.values()) != [True] * 10
    for mark in (tmp_path / "torchinductor").rglob("jumok-*"):
        mark.unlink()
    monkeypatch.setattr(Played, "ready_after", min(step for step, own in after.items() if own) - 1)
    take(start("reference", **settings), 10)
    reference = state_of(tmp_path / "reference")
    assert taken == after
    assert interrupted.step == reference.step
    assert interrupted.tensors.keys() == reference.tensors.keys()
    different = [name for name, one in interrupted.tensors.items() if not torch.equal(one, reference.tensors[name])]
    assert different == []


# --- the process itself ---


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """Let the process run another program."""
    popen = subprocess.Popen

    def use(code: str) -> Path:
        file = tmp_path / "program.py"
        file.write_text(code, encoding="utf-8")
        monkeypatch.setattr(subprocess, "Popen", lambda _, **how: popen([sys.executable, str(file)], **how))
        return file

    return use


def ended(compiler: Compiler) -> str:
    """Wait for a process, close it, and return its message."""
    while not compiler.has_ended:
        time.sleep(0.01)
    failure = compiler.failure()
    compiler.close()
    return failure


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "its process ended with 3"),
        ("print('not JSON')", "its process ended with 0"),
        ("print('[]')", "its process ended with 0"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended with -9"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_process_that_fails_is_told(start: Start, program: Callable[[str], Path], code: str, reason: str) -> None:
    program(code)
    with start() as trainer:
        assert ended(Compiler(trainer.folder.path, trainer.config)).endswith(f"without ({reason}).")


def test_the_process_has_a_processor_meanwhile(start: Start, program: Callable[[str], Path]) -> None:
    program("import json, sys; sys.stdin.readline(); print(json.dumps({'failure': ''}))")
    before = torch.get_num_threads()
    torch.set_num_threads(takeover.processors())
    try:
        with start() as trainer:
            compiler = Compiler(trainer.folder.path, trainer.config)
            assert torch.get_num_threads() == max(1, takeover.processors() - 1)
            assert ended(compiler) == ""
            assert torch.get_num_threads() == takeover.processors()
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(os.name != "posix", reason="groups of processes")
def test_ctrl_c_does_not_reach_the_process(start: Start, program: Callable[[str], Path]) -> None:
    """It has a group of its own, in the session of the training: another session would have an equal share."""
    program("import os, sys; sys.exit(10 * (os.getpgid(0) == os.getpid()) + (os.getsid(0) == os.getsid(os.getppid())))")
    with start() as trainer:
        assert ended(Compiler(trainer.folder.path, trainer.config)).endswith("ended with 11).")


@pytest.mark.long
@pytest.mark.compile
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_process_compiles_and_ends_with_its_training(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not has_compiler(torch.device("cpu")):
        pytest.skip("there is no C++ compiler for torch.compile here")
    cache = tmp_path / "cache"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    with start(dropout=0.1) as trainer:
        compiler = Compiler(trainer.folder.path, trainer.config)
        assert ended(compiler) == ""
        assert list(cache.glob("*/fxgraph/*/*/*"))
        left = Compiler(trainer.folder.path, trainer.config)
        time.sleep(1)
        assert left._process.stdin is not None
        left._process.stdin.close()  # as when the training was killed
        assert left._process.wait(120) == 1
        left.close()
