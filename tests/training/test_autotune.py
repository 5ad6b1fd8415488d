"""What is measured before a run and watched during it, and what `jumok train --explain` says."""

from __future__ import annotations

import json
import math
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, Jumok, run_until
from jumok.config import Precision, TrainConfig
from jumok.device import processor_name
from jumok.errors import ConfigError, ResumeError, TrainingError
from jumok.nn.attention import Implementation, ScaledDotProductAttention
from jumok.runs.events import Eval, Event, Notice, Step
from jumok.text import Text
from jumok.training import autotune as tuning
from jumok.training import clock as timing
from jumok.training import loop as loops
from jumok.training import policy as planning
from jumok.training.autotune import Cost
from jumok.training.compilation import Compilation
from jumok.training.policy import KEPT_SPEED, Explanation, explain, require_possible
from jumok.training.tasks.language_modelling import LanguageModelling
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]
OPEN = {"precision": "auto", "attention": "auto", "compile": "auto"}


@pytest.fixture(autouse=True)
def _multiplies_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not depend on the processor."""
    processor(monkeypatch, bfloat16=True)


def processor(monkeypatch: pytest.MonkeyPatch, *, bfloat16: bool) -> None:
    """Pretend that the processor has instructions for bfloat16, or none."""
    for module in (tuning, planning):
        monkeypatch.setattr(module, "multiplies_bfloat16", lambda _: bfloat16)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """In which precisions something was measured; made-up figures are the outcome."""
    asked: list[str] = []

    def fake(shape: Any, config: Any, task: Any, device: Any) -> list[Cost]:
        precisions: list[Precision] = ["float32", "bfloat16"] if config.precision == "auto" else [config.precision]
        asked.extend(precisions)
        return [cost(precision, 0.5 if precision == "float32" else 0.25) for precision in precisions]

    monkeypatch.setattr(planning, "measure", fake)
    return asked


def cost(precision: Precision, seconds: float, attention: Implementation = "chunked") -> Cost:
    """Of a pass that takes so many seconds."""
    return Cost(precision=precision, attention=attention, seconds_per_batch=seconds, update=0.01, activation_bytes=1e6)


def made_faster(name: str, monkeypatch: pytest.MonkeyPatch, by: float = 2.0) -> None:
    """Let one implementation of attention measure faster than the other."""
    times: dict[Implementation, float] = {way: 0.1 if way == name else 0.1 * by for way in ("chunked", "fused")}
    costs = [cost("float32", seconds, way) for way, seconds in times.items()]
    monkeypatch.setattr(planning, "measure", lambda *_: costs)


def explained(trainer: Trainer) -> Explanation:
    """What `--explain` would print of a run that was just started."""
    assert trainer.plan is not None
    return explain(trainer.plan, trainer.task, trainer.device)


def ways(trainer: Trainer) -> set[str]:
    """What computes attention in a trainer's model."""
    return {part.training_by for part in trainer.model.modules() if isinstance(part, ScaledDotProductAttention)}


# --- what computes attention ---


@pytest.mark.slow
@pytest.mark.parametrize("way", ["chunked", "fused"])
def test_the_faster_way_is_written_and_kept_to(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """A resumed run that measured again could continue with other roundings than it began with."""
    made_faster(way, monkeypatch)
    reference = start("reference", attention="auto")
    assert reference.folder.read_config()["train"]["attention"] == way
    assert ways(reference) == {way}
    list(reference.run())
    run_until(start(attention="auto"), 3)
    made_faster("fused" if way == "chunked" else "chunked", monkeypatch)
    monkeypatch.setattr(planning, "measure", lambda *_: pytest.fail("a resumed run measured"))
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    assert ways(resumed) == {way}
    list(resumed.run())
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "reference")]
    assert weights[0] == weights[1]
    with pytest.raises(ResumeError, match="attention="):
        Trainer.resume(
            tmp_path / "run",
            attention="fused" if way == "chunked" else "chunked",
        )


def test_a_run_from_before_the_choice_goes_on_as_it_began(start: Start, tmp_path: Path) -> None:
    """Its config.json says nothing of attention, which was chunked then."""
    trainer = start()
    config = trainer.folder.read_config()
    del config["train"]["attention"]
    trainer.folder.write_config(config)
    trainer.close()
    assert ways(Trainer.resume(tmp_path / "run", device="cpu")) == {"chunked"}


def test_a_little_faster_is_noise(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts of the same run must not differ because one measured 8% less: passes vary by as much."""
    made_faster("fused", monkeypatch, by=1.08)
    trainer = start(attention="auto")
    assert trainer.config.attention == "chunked"
    assert explained(trainer).choices["attention"].why.endswith("too small a difference")


@pytest.mark.parametrize("changes", [{"attention_dropout": 0.1}, {"context_length": 8}])
def test_where_there_is_one_way_none_is_measured(start: Start, changes: dict[str, Any]) -> None:
    trainer = start(attention="auto", **changes)
    assert trainer.config.attention == "chunked"
    assert [one.attention for one in explained(trainer).candidates] == ["chunked"]
    assert "nothing to choose" in explained(trainer).choices["attention"].why


def test_both_ways_are_timed_on_what_the_model_does(start: Start) -> None:
    trainer = start(attention="auto", n_layer=2)
    found = explained(trainer).candidates
    assert [(one.precision, one.attention) for one in found] == [("float32", "chunked"), ("float32", "fused")]
    assert all(one.seconds > 0 for one in found)
    assert [one.attention for one in found if one.chosen] == [trainer.config.attention]


def test_other_devices_have_no_chunked_attention() -> None:
    with pytest.raises(ConfigError, match="attention='chunked' is made for CPUs, and this run trains on cuda"):
        require_possible(TrainConfig(attention="chunked"), torch.device("cuda"))
    require_possible(TrainConfig(attention="fused"), torch.device("cuda"))


# --- what is measured ---


def test_a_start_with_nothing_left_open_measures_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring was three quarters of the start of a tiny run, whose settings had decided everything."""
    monkeypatch.setattr(planning, "measure", lambda *_: pytest.fail("it measured"))
    trainer = start()
    assert trainer.clock.seconds_per_step == 0
    assert (trainer.config.precision, trainer.config.attention, trainer.config.compile) == ("float32", "chunked", "off")
    assert trainer.plan is not None
    assert {choice.why for choice in trainer.plan.choices.values()} == {"as asked"}


def test_an_explanation_of_a_start_that_measured_nothing(start: Start) -> None:
    [found] = explained(start()).candidates
    assert found.chosen
    assert (found.precision, found.attention) == ("float32", "chunked")
    assert found.seconds > 0


def test_each_start_measures(start: Start, measured: list[str], tmp_path: Path) -> None:
    """A cache remembered a batch of 6 s for 30 days where a step took 0.18 s: none is better than a wrong one."""
    for out in ("first", "second"):
        start(out, **OPEN)
    assert measured == ["float32", "bfloat16"] * 2
    assert not list(tmp_path.rglob("measurements.json"))


def test_measuring_is_cut_when_its_time_is_over(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, or of a large model, a start measured for minutes; now what is known by then is used."""
    monkeypatch.setattr(tuning, "MEASURING", 0.0)
    passes: list[int] = []
    sums = LanguageModelling.loss_sums

    def counted(*given: Any) -> Any:
        passes.append(1)
        return sums(*given)

    monkeypatch.setattr(LanguageModelling, "loss_sums", counted)
    trainer = start(**OPEN)
    assert len(passes) == 2  # one in each precision
    assert 0 < explained(trainer).seconds_per_step < 1e3
    assert [one.attention for one in explained(trainer).candidates] == ["chunked"] * 2


@pytest.mark.parametrize(("answer", "name"), [("print('Apple M2 Pro')", "Apple M2 Pro"), ("exit(1)", "arm")])
def test_apple_chips_have_names(monkeypatch: pytest.MonkeyPatch, answer: str, name: str) -> None:
    """`platform` calls all of them "arm", so one with as many cores would take another's measurements for its own."""
    run = subprocess.run
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(subprocess, "run", lambda _, *, timeout, **how: run([sys.executable, "-c", answer], **how))
    assert processor_name(torch.device("cpu")) == name


def test_one_way_may_not_fit(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = LanguageModelling.loss_sums

    def short(*given: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            raise torch.OutOfMemoryError("too little")
        return sums(*given)

    monkeypatch.setattr(LanguageModelling, "loss_sums", short)
    trainer = start(**OPEN)
    assert trainer.config.precision == "bfloat16"
    assert explained(trainer).choices["precision"] == ("bfloat16", "too little memory for float32")


def test_no_way_may_fit(jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: Any) -> Any:
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(LanguageModelling, "loss_sums", short)
    for flags in ((), ("--json",)):
        end = jumok("train", text, *SMALL, "--steps", 50, "--explain", *flags)
        assert end.code == 0, end.err
        if flags:
            assert json.loads(end.out)["choices"]["compile"] == {
                "chosen": "off",
                "why": "too little memory for any step",
            }
        else:
            assert "too little memory for a single step" in end.out


@pytest.mark.parametrize("place", ["build", "loss_sums"])
def test_too_little_memory_while_measuring(start: Start, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Where no step fits the run is refused with a sentence, not with an error of torch."""

    def short(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(tuning if place == "build" else LanguageModelling, place, short)
    with pytest.raises(TrainingError, match=r"too little memory for batch_size=4 at context_length=16"):
        list(start(**OPEN).run())


# --- processors without bfloat16 ---


def test_bfloat16_is_not_tried_where_it_is_emulated(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Zen 3 one pass took 33 s and one update 7 s: 56 of the 120 seconds of the demo were gone before a step."""
    processor(monkeypatch, bfloat16=False)
    trainer = start(precision="auto", attention="auto")
    assert trainer.config.precision == "float32"
    assert explained(trainer).choices["precision"].why == "this processor has no instructions for products in bfloat16"
    assert {one.precision for one in explained(trainer).candidates} == {"float32"}


@pytest.mark.slow
def test_bfloat16_can_be_asked_for_and_is_called_slow(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    processor(monkeypatch, bfloat16=False)
    trainer = start(precision="bfloat16")
    slow = "This processor has no instructions for products in bfloat16, so training is many times slower"
    for event in trainer.run():
        if isinstance(event, Step) and event.step == 2:
            trainer.request_stop()
    assert sum(text.startswith(slow) for text in trainer.notices) == 1
    assert trainer.config.precision == "bfloat16"
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    assert sum(text.startswith(slow) for text in resumed.notices) == 1


# --- when a run is compiled ---


class Known:
    """Stands in for CompileTimes: compiling takes `seconds`; `asked` is what was to be compiled."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, list[Any]()

    def __call__(self, device: torch.device) -> Any:
        return self

    def expected(self, shape: Any, config: Any) -> float:
        self.asked.append((shape.dropout, config.precision))
        return self.seconds

    def keep(self, *_: Any) -> None:
        """Nothing was compiled."""


@pytest.mark.parametrize(
    ("minutes", "precision", "seconds", "chosen"),
    [
        (1.6, "float32", 25.0, "off"),  # a cold cache: such a run made 11 compiled steps, and 27 uncompiled ones
        (1.6, "float32", 4.0, "on"),  # the code is in the cache
        (2.0, "bfloat16", 24.5, "off"),  # it would save 26 s
        (10.0, "float32", 70.0, "off"),  # less than a fifth, and more than it saves
    ],
)
def test_compiling_is_worth_what_it_takes(
    start: Start, monkeypatch: pytest.MonkeyPatch, minutes: float, precision: Precision, seconds: float, chosen: str
) -> None:
    known = Known(seconds)
    monkeypatch.setattr(planning, "CompileTimes", known)
    monkeypatch.setattr(planning, "has_compiler", lambda _: True)
    monkeypatch.setattr(planning, "measure", lambda *_: [cost(precision, 1.0)])
    trainer = start(steps=None, minutes=minutes, passes=0, precision=precision, compile="auto")
    assert trainer.config.compile == chosen
    assert known.asked[0] == (trainer.model.config.dropout, precision)


def test_a_plan_leaves_time_for_compiling(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "has_compiler", lambda _: True)
    monkeypatch.setattr(planning, "measure", lambda *_: [cost("float32", 0.99)])
    planned = []
    for seconds in (0.0, 30.0):
        monkeypatch.setattr(planning, "CompileTimes", Known(seconds))
        trainer = start(f"run-{seconds}", steps=None, minutes=10, passes=0, compile="on")
        planned.append(trainer.clock.planned_tokens)
    assert planned[1] == pytest.approx(planned[0] * 570 / 600, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "compiled"), [(11.0, False), (9.0, True)])
def test_what_is_left_of_a_resumed_run_is_not_spent_on_compiling(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, compiled: bool
) -> None:
    monkeypatch.setattr(planning, "CompileTimes", Known(1.0))
    monkeypatch.setattr(loops, "CompileTimes", Known(seconds))
    calls: list[int] = []
    monkeypatch.setattr(Compilation, "start", lambda *_: calls.append(1) or "")
    monkeypatch.setattr(timing.Clock, "remaining", lambda _: 50.0)
    trainer = start(steps=None, minutes=1.0, passes=0, compile="on")
    for event in trainer.run():
        if isinstance(event, Step):
            trainer.request_stop()
    assert calls == [1]  # it was planned so
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    said = []
    for event in resumed.run():
        said += [event.text] if isinstance(event, Notice) else []
        if isinstance(event, Step):
            resumed.request_stop()
    assert len(calls) == 1 + compiled
    assert ("What is left of the run is too short to compile." in said) is not compiled


# --- jumok train --explain ---


@pytest.fixture
def text(own_folder: Path, tales: str) -> Path:
    """A text file in the folder of the test."""
    path = own_folder / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


SMALL = ("--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--device", "cpu")


def test_explaining_makes_nothing(
    jumok: Jumok, text: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "CompileTimes", Known(50.0))
    monkeypatch.setattr(planning, "has_compiler", lambda _: True)
    end = jumok("train", text, *SMALL, "--steps", 50, "--explain")
    assert end.code == 0, end.err
    assert {path.name for path in text.parent.iterdir()} == {text.name}
    lines = end.out.splitlines()
    [chosen] = [line.split() for line in lines if line.endswith("chosen")]
    assert chosen[:2] == ["bfloat16", "chunked"]
    said = dict(line.split(None, 1) for line in lines if line and " " in line)
    assert said["precision"].startswith("bfloat16: ")
    assert said["attention"].startswith("chunked: ")
    assert said["compile"] == "off: it takes about 50 seconds, and saves about 3 of 13"
    assert said["dropout"].startswith(("0: ", "0.1: ", "0.2: "))
    assert "about 50 steps" in said["length"]


def test_an_explanation_as_json(jumok: Jumok, text: Path, measured: list[str]) -> None:
    asked = (*SMALL, "--minutes", 1, "--compile", "off", "--precision", "float32")
    end = jumok("train", text, *asked, "--explain", "--json", "--out", "kept-out")
    assert end.code == 0, end.err
    values = end.json
    assert values["choices"]["precision"] == {"chosen": "float32", "why": "as asked"}
    assert values["choices"]["compile"] == {"chosen": "off", "why": "as asked"}
    assert [one["attention"] for one in values["candidates"] if one["chosen"]] == ["chunked"]
    assert values["seconds_per_step"] == pytest.approx(0.51)
    assert values["steps"] == round(KEPT_SPEED * 60 / 0.51)
    assert values["seconds"] == pytest.approx(60, rel=0.02)
    assert values["tokens_per_step"] == 16 * 16
    assert values["parameters"] > 0
    assert not (text.parent / "kept-out").exists()


def test_what_has_begun_decides_nothing(jumok: Jumok, text: Path) -> None:
    end = jumok("train", "--resume", "--out", "run", "--explain")
    assert end.code == 2
    assert "--explain applies to a new run" in end.err


# --- while a run goes on ---


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let five steps be compared with what was expected, however short they are."""
    monkeypatch.setattr(timing, "WATCHED_SECONDS", 0.0)


def told(events: Iterable[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice) and event.text.startswith("A step")]


@pytest.mark.long
def test_a_wrong_measurement_is_noticed(
    tmp_path: Path, story_text: Text, monkeypatch: pytest.MonkeyPatch, watchful: None
) -> None:
    """A batch of 6 s was believed where a step took 0.18: 10 steps were planned instead of 1,019, and a run that read 6
    rows at each validation stopped early."""
    clock, sums = [0.0], LanguageModelling.loss_sums

    def quick(*given: Any) -> Any:
        clock[0] += 0.01
        return sums(*given)

    def tick() -> float:
        clock[0] += 1e-6  # looking at a clock takes time, too
        return clock[0]

    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, tick)
    monkeypatch.setattr(planning, "measure", lambda *_: [cost("float32", 0.29)])
    monkeypatch.setattr(LanguageModelling, "loss_sums", quick)
    settings = {**TINY, "steps": None, "minutes": 0.02, "eval_every": None, "patience": 0}
    trainer = Trainer.start(tmp_path / "run", story_text, **settings, device="cpu")
    per_step = trainer.task.tokens_per_batch
    planned = int(KEPT_SPEED * 4 * per_step)
    assert trainer.clock.planned_tokens == planned
    events = list(trainer.run())
    [sentence] = told(events)  # once
    said = re.fullmatch(
        r"A step takes 0.01 s, not 0.3 s as expected: about (\d+) steps are planned now, not 3.", sentence
    )
    assert said
    taken = max(event.step for event in events if isinstance(event, Step))
    assert 60 < taken < 120
    assert int(said[1]) == pytest.approx(taken, rel=0.25)
    assert trainer.clock.planned_tokens == pytest.approx(int(said[1]) * per_step, abs=per_step)
    assert trainer.folder.read_config()["train"]["planned_tokens"] == planned  # as it was decided at the start
    state, _ = trainer.folder.checkpoints.newest()
    assert state is not None
    assert state.numbers["planned_tokens"] == trainer.clock.planned_tokens  # so that a resumed run goes on with it
    assert state.numbers["seconds_per_step"] == trainer.clock.seconds_per_step


@pytest.mark.slow
@pytest.mark.parametrize(("foreseen", "said"), [(1e-6, 1), (1e6, 0), (0.0, 0)])  # 0.0: as its first steps
def test_a_run_by_steps_depends_on_no_clock(
    start: Start, watchful: None, foreseen: float, said: int, tmp_path: Path
) -> None:
    """It says when it is slower than foreseen, and its figures are those of a run that was as fast as foreseen.

    On a busy machine later steps may be slower than the first ones; that is said, too.
    """
    trainer, plain = start("run", steps=12), start("plain", steps=12)
    trainer.clock.seconds_per_step = foreseen
    plain.clock.seconds_per_step = math.inf
    runs = [list(one.run()) for one in (trainer, plain)]
    assert sum(f"not {foreseen:.2g} s as expected" in text for text in told(runs[0])) == said
    assert [e.figures for e in runs[0] if isinstance(e, Eval)] == [e.figures for e in runs[1] if isinstance(e, Eval)]
    assert trainer.clock.planned_tokens == plain.clock.planned_tokens == 12 * trainer.task.tokens_per_batch
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "plain")]
    assert weights[0] == weights[1]


def test_one_hiccup_is_no_change(start: Start, watchful: None) -> None:
    trainer = start()
    trainer.clock.seconds_per_step = 0.1
    for seconds in (0.1, 0.1, 30.0, 0.1, 0.1):
        assert list(trainer.loop.clock.watch(seconds)) == []
    assert trainer.clock.seconds_per_step == 0.1


@pytest.mark.parametrize(("progress", "said"), [(0.0, 1), (0.9, 0)])
def test_time_that_went_into_training_is_not_gone_before_it(start: Start, progress: float, said: int) -> None:
    """A run by minutes that was resumed near its end claimed that its time was gone before training."""
    trainer = start(steps=None, minutes=1.0)
    trainer.clock.load_state_dict({"progress": progress, "seconds": 55.0})
    assert len(list(trainer.loop.clock.start())) == said


def test_a_plan_that_changes_is_told_once(start: Start, watchful: None) -> None:
    """On a busy machine a run said 175, then 76, then 126 steps."""
    trainer = start(steps=None, minutes=60.0, passes=0.0)
    clock = trainer.clock
    clock.seconds_per_step = 1.0
    said = [told(clock.watch(seconds)) for seconds in (5.0, 20.0, 1.0, 9.0) for _ in range(5)]
    assert [len(texts) for texts in said if texts] == [1]
    assert clock.seconds_per_step == 9.0  # the plan follows all the same


@pytest.mark.parametrize("planned", [1, 10**9])
def test_enough_is_validated_whatever_was_planned(start: Start, planned: int) -> None:
    """Six rows decided which parameters were best."""
    trainer = start()
    trainer.clock.planned_tokens = planned
    reads = trainer.loop.validation.tokens
    assert reads >= 5_000
    trainer.clock.planned_tokens = 5 * 10**9
    assert trainer.loop.validation.tokens == reads  # a plan that changes leaves validations that compare
