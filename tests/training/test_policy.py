"""What is decided before a run and watched during it, and what `jumok train --explain` says."""

from __future__ import annotations

import math
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import TINY, Jumok
from jumok.config import TrainConfig
from jumok.device import processor_name
from jumok.errors import ConfigError, ResumeError, TrainingError
from jumok.nn.attention import ScaledDotProductAttention
from jumok.runs.events import Eval, Event, Notice, Step
from jumok.text import Text
from jumok.training import clock as timing
from jumok.training import policy as planning
from jumok.training.policy import KEPT_SPEED, explain, require_possible
from jumok.training.tasks.language_modelling import LanguageModelling
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]
OPEN = {"precision": "auto", "attention": "auto", "compile": "auto"}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not depend on the processor, or on a compiler."""
    processor(monkeypatch, bfloat16=True)
    monkeypatch.setattr(planning, "has_avx512", lambda: True)
    monkeypatch.setattr(planning, "has_compiler", lambda _: True)


def processor(monkeypatch: pytest.MonkeyPatch, *, bfloat16: bool) -> None:
    """Pretend that the processor has instructions for bfloat16, or none."""
    monkeypatch.setattr(planning, "multiplies_bfloat16", lambda _: bfloat16)


def steps_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a step was measured to take so long."""
    monkeypatch.setattr(planning, "measure_step", lambda *_: seconds)


def ways(trainer: Trainer) -> set[str]:
    """What computes attention in a trainer's model."""
    return {part.training_by for part in trainer.model.modules() if isinstance(part, ScaledDotProductAttention)}


# --- precision and attention ---


@pytest.mark.parametrize(("bfloat16", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_the_processor_decides_once(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bfloat16: bool, precision: str
) -> None:
    """On a Zen 3 a pass in bfloat16 took 33 s. A resumed run that decided again could go on with other roundings."""
    processor(monkeypatch, bfloat16=bfloat16)
    trainer = start(**OPEN)
    recorded = trainer.folder.read_config()["train"]
    assert (recorded["precision"], recorded["attention"]) == (precision, "chunked")
    assert ways(trainer) == {"chunked"}
    trainer.close()
    processor(monkeypatch, bfloat16=not bfloat16)
    monkeypatch.setattr(planning, "measure_step", lambda *_: pytest.fail("a resumed run measured"))
    with Trainer.resume(tmp_path / "run", device="cpu") as resumed:
        assert (resumed.config.precision, ways(resumed)) == (precision, {"chunked"})
    with pytest.raises(ResumeError, match="attention="):
        Trainer.resume(tmp_path / "run", attention="fused")


def test_a_run_from_before_the_choice_goes_on_as_it_began(start: Start, tmp_path: Path) -> None:
    """Its config.json says nothing of attention, which was chunked then."""
    trainer = start(attention="fused")
    assert ways(trainer) == {"fused"}
    config = trainer.folder.read_config()
    del config["train"]["attention"]
    trainer.folder.write_config(config)
    trainer.close()
    assert ways(Trainer.resume(tmp_path / "run", device="cpu")) == {"chunked"}


def test_other_devices_have_no_chunked_attention() -> None:
    with pytest.raises(ConfigError, match="attention='chunked' is made for CPUs, and this run trains on cuda"):
        require_possible(TrainConfig(attention="chunked"), torch.device("cuda"))
    require_possible(TrainConfig(attention="fused"), torch.device("cuda"))


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


# --- what is measured ---


def test_a_start_with_nothing_left_open_measures_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring was three quarters of the start of a tiny run, whose settings had decided everything."""
    with monkeypatch.context() as patched:
        patched.setattr(planning, "measure_step", lambda *_: pytest.fail("it measured"))
        trainer = start()
    assert trainer.clock.seconds_per_step == 0
    assert (trainer.config.precision, trainer.config.attention, trainer.config.compile) == ("float32", "chunked", "off")
    assert trainer.plan is not None
    assert {choice.why for choice in trainer.plan.choices.values()} == {"as asked"}
    assert explain(trainer.plan, trainer.task, trainer.device).seconds_per_step > 0  # measured now


@pytest.mark.parametrize(("answer", "name"), [("print('Apple M2 Pro')", "Apple M2 Pro"), ("exit(1)", "arm")])
def test_apple_chips_have_names(monkeypatch: pytest.MonkeyPatch, answer: str, name: str) -> None:
    """`platform` calls all of them "arm", so one with as many cores would take another's measurements for its own."""
    run = subprocess.run
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(subprocess, "run", lambda _, *, timeout, **how: run([sys.executable, "-c", answer], **how))
    assert processor_name(torch.device("cpu")) == name


@pytest.mark.parametrize("place", ["build", "loss_sums"])
def test_too_little_memory_while_measuring(start: Start, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Where no step fits the run is refused with a sentence, not with an error of torch."""

    def short(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(planning if place == "build" else LanguageModelling, place, short)
    with pytest.raises(TrainingError, match=r"too little memory for batch_size=4 at context_length=16"):
        start(steps=None, minutes=1.0)


# --- when a run is compiled ---


@pytest.mark.parametrize(
    ("settings", "seconds", "chosen"),
    [
        ({"minutes": 1.9, "precision": "bfloat16"}, 1.0, "off"),
        ({"minutes": 2.0, "precision": "bfloat16"}, 1.0, "on"),
        ({"minutes": 4.0, "precision": "float32"}, 1.0, "off"),  # compiling takes what it saves
        ({"minutes": 5.0, "precision": "float32"}, 1.0, "on"),
        ({"steps": 100, "precision": "bfloat16"}, 1.1, "off"),
        ({"steps": 100, "precision": "bfloat16"}, 1.3, "on"),
        ({"minutes": 60.0, "passes": 1}, 0.01, "off"),  # it ends early
    ],
)
def test_a_run_is_compiled_if_it_is_long(
    start: Start, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], seconds: float, chosen: str
) -> None:
    steps_take(seconds, monkeypatch)
    trainer = start(**{"steps": None, "passes": 0, "compile": "auto", **settings})
    assert trainer.config.compile == chosen
    assert any(text.startswith("The run will end after") for text in trainer.notices) is ("passes" in settings)


@pytest.mark.parametrize(
    ("precision", "compile", "chosen"),
    [("float32", "auto", "off"), ("float32", "on", "on"), ("bfloat16", "auto", "on")],
)
def test_float32_without_avx512_is_not_compiled(
    start: Start, monkeypatch: pytest.MonkeyPatch, precision: str, compile: str, chosen: str
) -> None:
    """Nothing was gained on a Zen 3: 1.136 and 1.118 s a step, and the first one ended after 12 s instead of 6.4."""
    steps_take(1.0, monkeypatch)
    monkeypatch.setattr(planning, "has_avx512", lambda: False)
    trainer = start(steps=None, passes=0, minutes=60.0, compile=compile, precision=precision)
    assert trainer.config.compile == chosen


# --- jumok train --explain ---


@pytest.fixture
def text(own_folder: Path, tales: str) -> Path:
    """A text file in the folder of the test."""
    path = own_folder / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


SMALL = ("--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--device", "cpu")


def test_explaining_makes_nothing(jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps_take(0.25, monkeypatch)
    end = jumok("train", text, *SMALL, "--steps", 50, "--explain")
    assert end.code == 0, end.err
    assert {path.name for path in text.parent.iterdir()} == {text.name}
    said = dict(line.split(None, 1) for line in end.out.splitlines() if line and " " in line)
    assert said["precision"].startswith("bfloat16: ")
    assert said["attention"].startswith("chunked: ")
    assert said["compile"] == "off: a run of 12 seconds in bfloat16, less than 120"
    assert said["dropout"].startswith(("0: ", "0.1: ", "0.2: "))
    assert said["step"].startswith("256 tokens in 0.250 s")
    assert "about 50 steps" in said["length"]


def test_an_explanation_as_json(jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps_take(0.5, monkeypatch)
    asked = (*SMALL, "--minutes", 1, "--compile", "off", "--precision", "float32")
    end = jumok("train", text, *asked, "--explain", "--json", "--out", "kept-out")
    assert end.code == 0, end.err
    values = end.json
    assert values["choices"]["precision"] == {"chosen": "float32", "why": "as asked"}
    assert values["choices"]["compile"] == {"chosen": "off", "why": "as asked"}
    assert values["seconds_per_step"] == 0.5
    assert values["steps"] == round(KEPT_SPEED * 60 / 0.5)
    assert values["seconds"] == pytest.approx(60, rel=0.02)
    assert values["tokens_per_step"] == 16 * 16
    assert values["memory"]["kept"] > 0
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
    steps_take(0.3, monkeypatch)
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
