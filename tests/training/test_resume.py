"""A run that is stopped, killed or damaged goes on, and ends in the same bits."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from distributed_runs import begin, finish

from conftest import TINY, assert_same, run_until, tiny_run
from jumok import text as reader
from jumok.errors import ResumeError, RunError
from jumok.runs.events import Eval, Event, Finish, Notice, Save, Step
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

Start = Callable[..., Trainer]

Finished = Callable[..., Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Finished:
    """The folder of a run with these settings that nothing interrupted; look, and leave it as it is."""

    @cache
    def run(**settings: Any) -> Path:
        folder = tmp_path_factory.mktemp("finished") / "run"
        list(tiny_run(folder, reader.from_string(tales), **settings).run())
        return folder

    return run


@pytest.mark.slow
@pytest.mark.parametrize("task", ["mlm", "classify", "seq2seq", "chat"])
def test_a_stopped_run_of_each_task_ends_in_the_same_bits(tmp_path: Path, task: str) -> None:
    """Also where a step takes several passes, each with a dropout of its own."""
    settings = {"task": task, "steps": 5, "dropout": 0.1, "val": 0.2, "eval_every": 2, "sample_tokens": 4}
    finish(begin(tmp_path / "whole", **settings))
    finish(begin(tmp_path / "run", **settings), stop_after=3)
    finish(Trainer.resume(tmp_path / "run", device="cpu"))
    assert_same(tmp_path / "run", tmp_path / "whole")


# --- damaged states ---


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    run = tmp_path_factory.mktemp("resume") / "stopped"
    trainer = tiny_run(run, reader.from_string(tales), save_every=0.0)
    for event in trainer.run():
        if isinstance(event, Save) and event.step == 6:
            trainer.request_stop()
    states = sorted(path.name for path in (run / "state").glob("step-*"))
    assert states == ["step-000000005", "step-000000006.1"]
    return run


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A run that was stopped after step 6 of 8, with states of steps 5 and 6; step 6 was saved twice."""
    return Path(shutil.copytree(stopped_once, tmp_path / "run"))


def truncate(state: Path) -> None:
    path = state / "tensors.safetensors"
    os.truncate(path, path.stat().st_size // 2)


def flip(state: Path, name: str = "tensors.safetensors") -> None:
    data = bytearray((state / name).read_bytes())
    data[-5] ^= 1
    (state / name).write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncated tensors": truncate,
    "one bit of a number": lambda state: flip(state, "numbers.json"),
    "manifest of another kind": lambda state: (state / "manifest.json").write_text("[1, 2]"),
    "empty folder": lambda state: [path.unlink() for path in state.iterdir()] and None,  # type: ignore[func-returns-value]
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_falls_back_to_the_one_before(stopped: Path, finished: Finished, damage: str) -> None:
    DAMAGES[damage](stopped / "state" / "step-000000006.1")
    resumed = Trainer.resume(stopped, device="cpu")
    assert resumed.step == 5
    events = list(resumed.run())
    assert isinstance(events[0], Notice)
    assert "step-000000006.1 is damaged" in events[0].text
    assert "was skipped" in events[0].text
    assert_same(stopped, finished(save_every=0.0))


def test_all_states_damaged(stopped: Path) -> None:
    """What is wrong with each is told; nothing is changed, and the best parameters can begin another run."""
    for state in (stopped / "state").glob("step-*"):
        flip(state)
    before = (stopped / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"6\.1 is damaged .*5 is damaged .*init=.* begins it") as caught:
        Trainer.resume(stopped, device="cpu")
    assert "no whole training state left" in str(caught.value)
    assert (stopped / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("metrics"), "damaged .'metrics'"),
        (lambda config: config["metrics"].pop("nats_per_char"), "damaged: metrics lacks 'nats_per_char'"),
        (lambda config: config["finished"].pop("reason"), "damaged .'reason'"),
        (lambda config: config["machine"].pop("versions"), "damaged .'versions'"),
    ],
    ids=["no metrics", "no figure", "no reason", "no versions"],
)
def test_a_damaged_record_of_the_end_is_named(
    tmp_path: Path, finished: Finished, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """A finished run whose config.json lacked an entry ended with Python's KeyError (fuzzing, seed 3)."""
    run = Path(shutil.copytree(finished(), tmp_path / "run"))
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    change(config)
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(RunError, match=message):
        Trainer.resume(run, device="cpu")


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "step"}',
        '{"event": "step", "step": 2, "skipped": false, "loss": "1"}',
        '{"event": "eval", "step": 2}',
    ],
)
def test_an_incomplete_event_is_skipped(tmp_path: Path, stopped_once: Path, line: str) -> None:
    """A line of metrics.jsonl without its numbers ended each resume with a KeyError (fuzzing, seed 3)."""
    run = Path(shutil.copytree(stopped_once, tmp_path / "run"))
    log = run / "metrics.jsonl"
    lines = log.read_text(encoding="utf-8").split("\n")
    lines[2] = line.ljust(len(lines[2]))  # the sizes of logs are in the state
    log.write_text("\n".join(lines), encoding="utf-8")
    assert RunFolder(run).logs.has_damaged_metrics()
    assert Trainer.resume(run, device="cpu").step == 6


def test_a_damaged_state_goes_before_a_whole_one(stopped: Path) -> None:
    """With the newest one damaged, the next save dropped the oldest, which was the only whole one."""
    flip(stopped / "state" / "step-000000006.1")
    trainer = Trainer.resume(stopped, device="cpu")
    for event in trainer.run():
        if isinstance(event, Save):
            trainer.close()
            break
    states = sorted(path.name for path in (stopped / "state").glob("step-*"))
    assert states == ["step-000000005", "step-000000006.2"]


# --- the best parameters belong to the state ---


@pytest.mark.long
def test_best_weights_of_a_lost_branch_are_taken_back(start: Start, tmp_path: Path) -> None:
    """A kill after better parameters and before the next state: parameters of step 8 were told as those of step 4."""
    run = tmp_path / "run"
    run_until(start(steps=12), 6)
    before = (run / "model.safetensors").read_bytes()
    trainer = Trainer.resume(run, device="cpu")
    assert trainer.validation.best_step == 4
    for event in trainer.run():
        if isinstance(event, Eval):
            assert (event.step, event.best) == (8, True)
            trainer.close()  # like a kill: nothing is saved
            break
    assert (run / "model.safetensors").read_bytes() != before
    resumed = Trainer.resume(run, device="cpu")
    assert (resumed.step, resumed.validation.best_step, resumed.notices) == (6, 4, [])
    assert (run / "model.safetensors").read_bytes() == before
    assert resumed.folder.read_config()["metrics"]["step"] == 4
    list(resumed.run())
    list(start("reference", steps=12).run())
    assert_same(run, tmp_path / "reference")


# --- one trainer at a time ---


def test_two_trainers_of_one_folder(stopped: Path) -> None:
    """Both could be made, and the second then went on from a stale state and deleted what the first had saved."""
    first = Trainer.resume(stopped, device="cpu")
    with pytest.raises(RunError, match="another Trainer"):
        Trainer.resume(stopped, device="cpu")
    list(first.run())
    assert Trainer.resume(stopped, device="cpu").step == 8


def test_a_trainer_lets_go(stopped: Path) -> None:
    """As a context manager, when nobody refers to it any more, and from another thread."""
    with Trainer.resume(stopped, device="cpu") as trainer:
        assert trainer.step == 6
    forgotten = Trainer.resume(stopped, device="cpu")
    del forgotten
    closed = Trainer.resume(stopped, device="cpu")
    thread = threading.Thread(target=closed.close)
    thread.start()
    thread.join()
    assert Trainer.resume(stopped, device="cpu").step == 6


def test_a_closed_trainer_does_not_run(stopped: Path) -> None:
    """It would go on from what it remembers, while another one may have changed the folder."""
    trainer = Trainer.resume(stopped, device="cpu")
    events = trainer.run()
    assert isinstance(next(events), Step)
    trainer.close()
    with pytest.raises(RunError, match=r"ended its run.*Trainer\.resume"):
        next(events)
    with pytest.raises(RunError, match="ended its run"):
        list(trainer.run())
    assert Trainer.resume(stopped, device="cpu").step == 6


@pytest.mark.long
@pytest.mark.parametrize("place", [Notice, Step, Eval, Finish])
def test_a_break_saves_like_an_interrupt(start: Start, finished: Finished, tmp_path: Path, place: type[Event]) -> None:
    """What came after the last save was lost, and a validation that was due never came."""
    trainer = start()
    trainer.notices.append("Something to know.")
    for event in trainer.run():
        if isinstance(event, place) and (place is not Step or event.step == 4):
            step = event.step
            break
    assert list((tmp_path / "run").rglob("*.tmp")) == []
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    assert resumed.step == step
    list(resumed.run())
    assert_same(tmp_path / "run", finished())


def test_an_error_in_the_loop_saves(start: Start, tmp_path: Path) -> None:
    """The error is the one that is raised."""

    def fail_at(step: int) -> None:
        for event in start().run():
            if event.step == step:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at(5)
    assert Trainer.resume(tmp_path / "run", device="cpu").step == 5


# --- damaged logs ---

LOG_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda log: log[: len(log) // 2] + bytes(len(log) - len(log) // 2),
    "another kind of JSON": lambda log: b"[1, 2]\n" + log[7:],
    "not UTF-8": lambda log: log[:60] + b"\xff\xfe" + log[62:],
    "nothing": lambda log: b"",
}


@pytest.mark.parametrize("damage", LOG_DAMAGES)
def test_a_damaged_log_is_told_and_stops_nothing(stopped: Path, finished: Finished, damage: str) -> None:
    """After a power cut every resume ended in a traceback at the first drawing."""
    path = stopped / "metrics.jsonl"
    path.write_bytes(LOG_DAMAGES[damage](path.read_bytes()))
    resumed = Trainer.resume(stopped, device="cpu")
    (notice,) = resumed.notices
    assert notice.startswith("A part of metrics.jsonl was lost or damaged")
    assert resumed.step == 6
    assert isinstance(list(resumed.run())[-1], Finish)
    assert (stopped / "loss.png").is_file()
    assert [event["step"] for event in RunFolder(stopped).logs.metrics()][-3:] == [8, 8, 8]
    for name in ("model.safetensors", "samples.txt"):
        assert (stopped / name).read_bytes() == (finished(save_every=0.0) / name).read_bytes()


@pytest.mark.parametrize("name", ["train.npy", "val.npy"])
def test_ids_that_are_gone_or_damaged(stopped: Path, name: str) -> None:
    """A truncated train.npy came as a ValueError about mmap; a missing one as a bare FileNotFoundError."""
    path = stopped / "state" / name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunError, match=rf"{name}.*start a new run"):
        Trainer.resume(stopped, device="cpu")
    path.unlink()
    with pytest.raises(RunError, match=rf"{name}.*start a new run"):
        Trainer.resume(stopped, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("val", [0.0, 0.1])
def test_best_weights_gone(start: Start, tmp_path: Path, finished: bool, val: float) -> None:
    """The advice was to resume so that they are written anew, but a finished run only failed once more."""
    trainer = start(val=val)
    for event in trainer.run():
        if event.step == 6 and not finished:
            trainer.request_stop()
    weights = tmp_path / "run" / "model.safetensors"
    os.truncate(weights, 100)
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    (notice,) = resumed.notices
    assert "model.safetensors is damaged" in notice
    assert "chosen anew" in notice
    assert isinstance(list(resumed.run())[-1], Finish)
    assert Trainer.resume(tmp_path / "run", device="cpu").notices == []


# --- what a resume refuses, and what it leaves alone ---


def test_another_text_is_refused(stopped: Path) -> None:
    other = reader.from_string("다른 글이다. " * 200, name="other.txt")
    with pytest.raises(ResumeError, match=r"started with another text .<string>, sha256 \w{12}….*other\.txt"):
        Trainer.resume(stopped, other, device="cpu")


def test_the_same_text_is_welcome(stopped: Path, story_text: Text) -> None:
    assert Trainer.resume(stopped, story_text, **{**TINY, "save_every": 0.0}, device="cpu").step == 6


def test_another_held_out_text_is_refused(start: Start, tmp_path: Path) -> None:
    texts = [reader.from_string(word * 60, name=word) for word in ("가나다 ", "라마바 ")]
    start("with", val_text=texts[0])
    start("without")
    with pytest.raises(ResumeError, match=r"not started with this held-out text \(라마바"):
        Trainer.resume(tmp_path / "with", val_text=texts[1], device="cpu")
    with pytest.raises(ResumeError, match=r"not started with this held-out text \(라마바"):
        Trainer.resume(tmp_path / "without", val_text=texts[1], device="cpu")
    assert Trainer.resume(tmp_path / "with", val_text=texts[0], device="cpu").step == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_layer": 2}, "n_layer=1, not 2"),
        ({"minutes": 1.0}, "minutes=None, not 1.0"),
        ({"family": "classic", "batch_size": 8}, "family='modern', not 'classic'; batch_size=4, not 8"),
    ],
)
def test_another_setting_is_refused(stopped: Path, settings: dict[str, Any], message: str) -> None:
    """All of them are named, with both values."""
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*")}
    with pytest.raises(ResumeError, match=message):
        Trainer.resume(stopped, **settings, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in stopped.rglob("*")} == before


@pytest.mark.long
def test_a_model_that_was_saved_alone(start: Start, tmp_path: Path) -> None:
    from jumok import load, save

    list(start().run())
    save(load(tmp_path / "run"), tmp_path / "model")
    with pytest.raises(ResumeError, match="no training to continue"):
        Trainer.resume(tmp_path / "model", device="cpu")


@pytest.mark.parametrize(
    "damage",
    [{"train": {"steps": "many"}}, {"data": {"sha256": ""}}, {"model": {"type": "gpt"}}],
    ids=str,
)
def test_a_config_of_the_wrong_shape(stopped: Path, damage: dict[str, Any]) -> None:
    config = json.loads((stopped / "config.json").read_text(encoding="utf-8"))
    (stopped / "config.json").write_text(json.dumps({**config, **damage}), encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.json"):
        Trainer.resume(stopped, device="cpu")
