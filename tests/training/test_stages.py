"""A finished run is trained further: another stage from its best parameters, and can be interrupted like the first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file

from conftest import TINY, Jumok, events_of, only, run_until, state_of
from jumok.errors import ResumeError, RunError
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.events import Eval, Finish, Notice, Stage, Step, Verdict
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

Start = Callable[..., Trainer]


def resume(run: Path, **settings: Any) -> Trainer:
    return Trainer.resume(run, **settings, device="cpu")


def config_of(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run / "config.json").read_text(encoding="utf-8"))
    return config


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.fixture
def run(start: Start, tmp_path: Path) -> Path:
    """A finished run of 8 steps."""
    list(start().run())
    return tmp_path / "run"


@pytest.mark.long
def test_a_finished_run_is_trained_further(run: Path) -> None:
    """It could only be started anew: a resume told the result again, and another length was refused."""
    before = RunFolder(run).logs.metrics()
    numbers: list[int] = []
    trainer = resume(run, steps=6)
    batch = trainer.task.batch
    trainer.task.batch = lambda number: (numbers.append(number), batch(number))[1]  # type: ignore[method-assign, func-returns-value]
    events = list(trainer.run())
    [stage] = only(events, Stage)
    assert (stage.step, stage.number, stage.best_step, stage.steps) == (8, 2, 8, 6)
    assert [step.step for step in only(events, Step)] == list(range(9, 15))
    taken = [number for number in numbers if number != 0]  # the alarms look at the first one
    assert taken == list(range(8, 14)), "the batches go on, for those of the first stage were seen"
    rates = [step.rate for step in only(events, Step)]
    assert rates[0] == max(rates) > 0.9 > 0.1 > rates[-1] > 0, "a rate that rises and falls anew"
    assert [step.progress for step in only(events, Step)] == pytest.approx([n / 6 for n in range(1, 7)])
    finish = events[-1]
    assert (finish.step, finish.reason) == (14, "done")
    logged = RunFolder(run).logs.metrics()
    assert logged[: len(before)] == before
    assert [line["event"] for line in logged[len(before) :]][:2] == ["stage", "eval"]
    assert [line["step"] for line in logged if line["event"] == "step"] == list(range(1, 15))
    config = config_of(run)
    assert (config["train"]["steps"], config["finished"]) == (8, {"step": 14, "reason": "done"})
    [recorded] = config["stages"]
    assert (recorded["step"], recorded["best_step"], recorded["ended"]) == (8, 8, "done")
    assert recorded["train"]["steps"] == 6
    assert recorded["metrics"]["nats_per_char"] > config["metrics"]["nats_per_char"]
    list(resume(run, steps=2).run())
    assert [stage["step"] for stage in config_of(run)["stages"]] == [8, 14]


def test_it_begins_with_the_best_weights_and_fresh_optimizers(run: Path) -> None:
    trainer = resume(run, steps=6)
    [before] = [e for e in RunFolder(run).logs.metrics() if e["event"] == "eval" and e["step"] == 8]
    steps = trainer.run()
    first = next(event for event in steps if isinstance(event, Eval))
    assert first.figures == before["figures"]
    assert all(not optimizer.state for optimizer in trainer.optimizers)
    steps.close()  # type: ignore[attr-defined]


@pytest.mark.long
def test_weights_are_replaced_by_better_ones_alone(run: Path) -> None:
    """With rates that destroy the model nothing better can come."""
    before = (run / "model.safetensors").read_bytes()
    metrics = config_of(run)["metrics"]
    events = list(resume(run, steps=8, learning_rate=3.0, matrix_learning_rate=3.0).run())
    assert [event.best for event in only(events, Eval)] == [True, False, False], "the first is of the parameters before"
    [verdict] = only(events, Verdict)
    assert verdict.kind == "diverged"
    assert "The parameters of step 8 are kept." in verdict.text
    assert (run / "model.safetensors").read_bytes() == before
    assert config_of(run)["metrics"] == metrics
    assert only(events, Finish)[0].figures["nats_per_char"] == metrics["nats_per_char"]


@pytest.mark.long
def test_patience_looks_at_the_stage_alone(run: Path) -> None:
    """While its rate is high a stage is worse than the parameters before; that once ended it within a tenth of it."""
    losses = iter([1.0, 5.0, 4.0, 3.0, 2.0, 1.5, 1.2])  # of the parameters before, then of the stage
    trainer = resume(run, steps=24, patience=2, sample_tokens=8)
    figures = dict(config_of(run)["metrics"])
    trainer.task.validate = lambda *_: figures | {"loss": next(losses)}  # type: ignore[method-assign]
    assert list(trainer.run())[-1].step == 32


@pytest.mark.long
@pytest.mark.parametrize("stop", [8, 11])
def test_an_interrupted_stage_ends_in_the_same_bits(start: Start, tmp_path: Path, stop: int) -> None:
    """At its very beginning, too, where the state of the first stage has the same number of steps."""
    for out in ("run", "reference"):
        list(start(out, save_every=0.0).run())
    run, reference = tmp_path / "run", tmp_path / "reference"
    list(resume(reference, steps=8).run())
    trainer = resume(run, steps=8)
    for event in trainer.run():
        if event.step == stop and isinstance(event, Step | Eval):
            trainer.request_stop()
    again = resume(run)
    assert again.step == stop
    assert (again.clock.stage, again.config.steps) == (1, 8)
    list(again.run())
    ours, theirs = state_of(run), state_of(reference)
    assert ours.step == theirs.step == 16
    assert all(torch.equal(ours.tensors[name], tensor) for name, tensor in theirs.tensors.items())
    for name in ("model.safetensors", "samples.txt"):
        assert (run / name).read_bytes() == (reference / name).read_bytes()
    assert events_of(run) == events_of(reference)


@pytest.mark.long
@pytest.mark.parametrize(("lost", "begun"), [(b"half", True), (None, False)])
def test_a_stage_mends_the_weights_it_begins_with(run: Path, lost: bytes | None, begun: bool) -> None:
    """Damaged weights at the start of a stage ended in advice to resume, which failed again; the state has a copy."""
    weights = (run / "model.safetensors").read_bytes()
    if begun:
        for event in (trainer := resume(run, steps=4)).run():
            if isinstance(event, Stage):
                trainer.close()  # like a kill: nothing is saved
                break
    (run / "model.safetensors").unlink()
    if lost is not None:
        (run / "model.safetensors").write_bytes(lost)
    metrics = config_of(run)["metrics"]
    trainer = resume(run) if begun else resume(run, steps=4)
    assert (run / "model.safetensors").read_bytes() == weights
    assert config_of(run)["metrics"] == metrics
    assert len(only(list(trainer.run()), Step)) == 4
    logged = [line["event"] for line in RunFolder(run).logs.metrics()]
    assert (logged.count("stage"), logged.count("step")) == (1, 12)  # it is begun again, once


def test_a_stage_that_is_mended_from_an_earlier_state_has_its_figures(start: Start, tmp_path: Path) -> None:
    """The state of the end is damaged, too: the parameters are those of the state before, and so are the figures."""
    run = tmp_path / "run"
    list(start(save_every=0.0).run())
    damage(max((run / "state").glob("step-*")))
    (run / "model.safetensors").write_bytes(b"half")
    with resume(run, steps=4) as trainer:
        saved, _ = trainer.folder.checkpoints.newest()
        assert saved is not None
        assert trainer.folder.has_parameters_of(saved)
        assert config_of(run)["metrics"] == trainer.validation.best_metrics == saved.numbers["best_metrics"]


def test_the_time_of_earlier_stages_is_not_that_of_the_stage(run: Path) -> None:
    state = next((run / "state").glob("step-*8"))
    before = json.loads((state / "numbers.json").read_text())["seconds"]
    with resume(run, minutes=1) as trainer:
        assert trainer.clock.stage_began == before > 0


@pytest.mark.long
def test_minutes_count_from_the_beginning_of_the_stage(run: Path) -> None:
    """The time of the first stage, however long, is not taken from them."""
    state = state_of(run)
    numbers = {**state.numbers, "seconds": 1e6}
    RunFolder(run).write_checkpoint(Checkpoint(step=state.step, tensors=state.tensors, numbers=numbers))
    events = run_until(resume(run, minutes=60.0), state.step + 1)
    assert len(only(events, Step)) == 1
    assert events[-1].seconds > 1e6
    assert "gone before training" not in "".join(event.text for event in only(events, Notice))


# --- what is refused, and what is left alone ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 80}, r"steps=8, not 80.*not finished; once it is, minutes=N or steps=N trains it further"),
        ({"minutes": 3}, r"minutes=None, not 3.*not finished"),
    ],
)
def test_an_unfinished_run_keeps_its_length(
    start: Start, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    run_until(start(), 6)
    with pytest.raises(ResumeError, match=message):
        resume(tmp_path / "run", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.001}, r"learning_rate=0\.005, not 0\.001.*is finished: minutes=N or steps=N"),
        ({"steps": 4, "n_layer": 2}, "n_layer=1, not 2"),
        ({"steps": 4, "seed": 2}, "seed=0, not 2"),
    ],
)
def test_what_a_stage_cannot_change(run: Path, settings: dict[str, Any], message: str) -> None:
    before = contents(run)
    with pytest.raises(ResumeError, match=message):
        resume(run, **settings)
    assert contents(run) == before


def test_a_finished_run_is_left_as_it_is(run: Path) -> None:
    """A resume of it wrote its state, its figures and its picture again."""
    before = contents(run)
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != "lock"}
    trainer = resume(run)
    verdict, finish = list(trainer.run())
    assert isinstance(verdict, Verdict)
    assert isinstance(finish, Finish)
    assert (finish.step, finish.reason) == (8, "done")
    [recorded] = [event for event in RunFolder(run).logs.metrics() if event["event"] == "verdict"]
    assert (verdict.kind, verdict.numbers) == (recorded["kind"], recorded["numbers"])
    assert contents(run) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.slow
def test_a_goal_holds_for_one_stage(start: Start, tmp_path: Path) -> None:
    """Or a run that has reached it would end with the first look."""
    list(start(stop_at=5.9, steps=60, dropout=0.0, eval_every=10, sample_tokens=0).run())
    run = tmp_path / "run"
    assert config_of(run)["finished"]["reason"] == "reached"
    trainer = resume(run, steps=3)
    assert trainer.config.stop_at is None
    assert list(trainer.run())[-1].reason == "done"  # type: ignore[union-attr]


# --- on another machine ---


def test_a_resume_elsewhere_says_so(start: Start, tmp_path: Path) -> None:
    """Another number of threads adds up in another order, and nobody was told."""
    run_until(start(), 6)
    run = tmp_path / "run"
    config = config_of(run)
    assert config["machine"]["versions"].keys() == {"jumok", "python", "torch", "numpy", "tokenizers"}
    assert config["machine"].keys() >= {"system", "processor", "instructions", "threads", "device"}
    assert resume(run).notices == []
    config["machine"]["threads"] = 64
    config["machine"]["versions"] |= {"torch": "1.0", "python": "2.7"}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    [notice] = resume(run).notices
    assert "threads: 64 before, " in notice
    assert "torch: 1.0 before, " in notice
    assert "python" not in notice, "it adds nothing up"
    assert "last bits" in notice


# --- the command line ---


@pytest.mark.long
def test_the_command_names_the_one_that_trains_further(jumok: Jumok, run: Path) -> None:
    end = jumok("train", "--resume", "--out", "run", "--device=cpu")
    assert end.code == 0
    assert "run is finished; there is nothing to continue." in end.err
    assert "jumok train --resume --steps 200 --out run" in end.err  # 8 were too few
    end = jumok("train", "--resume", "--steps", "8", "--out", "run", "--json", "--device=cpu")
    assert (end.code, end.json["steps"], end.json["reason"]) == (0, 16, "done")
    assert "Training run further" in end.err


# --- where stages, states and parameters meet ---


def damage(state: Path) -> None:
    (state / "numbers.json").write_bytes(b"{}")


def test_a_finished_run_whose_end_is_damaged_is_not_finished(run: Path) -> None:
    """Its parameters were put back to those of the state before, and the result of the others was told for them."""
    weights = (run / "model.safetensors").read_bytes()
    damage(run / "state" / "step-000000008")
    trainer = resume(run)
    if trainer.result is None:  # the state before has other parameters
        assert "finished" not in config_of(run)
        assert list(trainer.run())[-1].step == 8
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_run_that_began_with_other_weights_keeps_them_when_it_is_killed_early(
    run: Path, tmp_path: Path, story_text: Text
) -> None:
    """Killed before the first save, it went on from random parameters: no seed makes those of --init again."""
    out = tmp_path / "tuned"
    settings = {name: TINY[name] for name in ("batch_size", "steps", "eval_every", "precision", "compile", "attention")}
    trainer = Trainer.start(out, story_text, **settings, init=run, device="cpu")
    first = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.close()  # like a kill before the first step
    again = resume(out)
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.model.state_dict().items())
    assert again.clock.planned_tokens == trainer.clock.planned_tokens > 0
    again.close()
    for state in (out / "state").glob("step-*"):
        damage(state)
    with pytest.raises(RunError, match="no whole training state left"):
        resume(out)


@pytest.mark.parametrize("init", [True, False])
def test_a_start_with_other_weights_that_was_killed_can_be_repeated(
    run: Path, tmp_path: Path, story_text: Text, start: Start, monkeypatch: pytest.MonkeyPatch, init: bool
) -> None:
    """Killed between config.json and its first state, it could be neither resumed nor started again."""
    out = tmp_path / "tuned"
    settings = {name: TINY[name] for name in ("batch_size", "steps", "eval_every", "precision", "compile", "attention")}

    def tune() -> Trainer:
        return Trainer.start(out, story_text, **settings, init=run, device="cpu")

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "discard", lambda _: None)  # like a kill
        patch.setattr(RunFolder, "write_config", kill)
        with pytest.raises(KeyboardInterrupt):
            tune()
    assert len(list((out / "state").glob("step-*"))) == 1
    assert not (out / "config.json").exists()
    with tune() if init else start("tuned"):
        assert len(list((out / "state").glob("step-*"))) == init  # no state of another start


def test_a_goal_that_is_reached_already_ends_the_stage_with_its_weights(run: Path) -> None:
    """The first look that still met the goal replaced better parameters by worse ones."""
    weights = (run / "model.safetensors").read_bytes()
    events = list(resume(run, steps=40, stop_at=99.0).run())
    assert only(events, Step) == []
    assert events[-1].reason == "reached"
    kept, wanted = load_file(run / "model.safetensors"), load(weights)
    assert kept.keys() == wanted.keys()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in kept.items())


def test_figures_go_with_the_weights_that_had_them(start: Start, tmp_path: Path) -> None:
    """A kill between a validation and the first state left the figures of lost parameters in config.json."""
    trainer = start()
    for event in trainer.run():
        if isinstance(event, Eval):
            trainer.close()  # like a kill: nothing is saved
            break
    assert config_of(tmp_path / "run")["metrics"]
    again = resume(tmp_path / "run")
    assert config_of(tmp_path / "run")["metrics"] == {}
    assert list(again.run())[-1].step == 8


def test_an_interrupt_keeps_the_weights_of_a_run_that_holds_nothing_out(start: Start, tmp_path: Path) -> None:
    """Ctrl-C in the first steps of a stage replaced the finished model by one in the middle of its warm-up."""
    list(start(val=0.0).run())
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    trainer = resume(tmp_path / "run", steps=40)
    for event in trainer.run():
        if isinstance(event, Step):
            trainer.request_stop()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
