"""What is measured before a run, what the cache keeps of it, and what `jumok train --explain` tells."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from conftest import TINY, Jumok
from jumok import attention, tuning
from jumok.attention import ScaledDotProductAttention
from jumok.config import TrainConfig
from jumok.device import processor_name
from jumok.errors import ConfigError, ResumeError
from jumok.explicit import explicit_attention
from jumok.plan import require_possible
from jumok.trainer import Step, Trainer
from jumok.tuning import Cost

Start = Callable[..., Trainer]
OPEN = {"precision": "auto", "attention": "auto", "compile": "auto"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the cache, empty at first; however busy the machine is, it is written."""
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "UNDISTURBED", 0.0)
    monkeypatch.setattr(tuning, "UNSTEADY", float("inf"))
    return tmp_path / "cache" / "measurements.json"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """In which precision something was measured, each time; a made-up figure is the outcome."""
    precisions: list[str] = []

    def fake(shape: Any, config: Any, task: Any, device: Any, precision: str, batch: Any) -> Cost:
        precisions.append(precision)
        seconds = {"float32": 0.5, "bfloat16": 0.25}[precision] / len(precisions)
        both = {"explicit": 0.1 * seconds, "fused": 0.2 * seconds}
        return Cost(batch=seconds, update=0.01, attentions=both, flops=1e6, measured=date.today().isoformat())

    monkeypatch.setattr(tuning, "_measured", fake)
    return precisions


def made_faster(name: str, monkeypatch: pytest.MonkeyPatch, by: float = 2.0) -> None:
    """Let one way to compute attention measure faster than the other."""
    monkeypatch.setattr(tuning, "_attend", lambda way, *_: time.sleep(0.002 if way == name else 0.002 * by))


def ways(trainer: Trainer) -> set[str]:
    """What computes attention in a trainer's model."""
    return {part.training_by for part in trainer.model.modules() if isinstance(part, ScaledDotProductAttention)}


# --- what computes attention ---


def test_both_ways_learn_the_same(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*inputs: Any) -> torch.Tensor:
        calls.append(1)
        return explicit_attention(*inputs)

    monkeypatch.setattr(attention, "explicit_attention", counted)
    losses, used = {}, {}
    for way in ("explicit", "fused"):
        trainer = start(way, attention=way, learning_rate=1e-3)
        calls.clear()
        losses[way] = [event.loss for event in trainer.run() if isinstance(event, Step)]
        used[way] = len(calls)
    assert used == {"explicit": TINY["steps"], "fused": 0}  # one layer; or the same would be compared with itself
    assert losses["fused"] == pytest.approx(losses["explicit"], rel=1e-4)


@pytest.mark.parametrize("way", ["explicit", "fused"])
def test_the_faster_way_is_written_and_kept_to(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """A resumed run that measured again could continue with other roundings than it began with."""
    made_faster(way, monkeypatch)
    reference = start("reference", attention="auto")
    assert reference.folder.read_config()["train"]["attention"] == way
    assert ways(reference) == {way}
    list(reference.run())
    trainer = start(attention="auto")
    for event in trainer.run():
        if isinstance(event, Step) and event.step == 3:
            trainer.request_stop()
    made_faster("fused" if way == "explicit" else "explicit", monkeypatch)
    monkeypatch.setattr(tuning, "_recall", lambda _: pytest.fail("a resumed run asked the cache"))
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    assert ways(resumed) == {way}
    list(resumed.run())
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "reference")]
    assert weights[0] == weights[1]
    with pytest.raises(ResumeError, match="attention="):
        Trainer.resume(tmp_path / "run", settings={"attention": "fused" if way == "explicit" else "explicit"})


def test_a_run_from_before_the_choice_goes_on_as_it_began(start: Start, tmp_path: Path) -> None:
    """Its config.json says nothing of attention, which was explicit then."""
    trainer = start()
    config = trainer.folder.read_config()
    del config["train"]["attention"]
    trainer.folder.write_config(config)
    trainer.close()
    assert ways(Trainer.resume(tmp_path / "run", device="cpu")) == {"explicit"}


def test_a_little_faster_is_noise(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts of the same run must not differ because one measured 2% less."""
    monkeypatch.setattr(tuning, "WORTH_IT", 0.2)
    made_faster("fused", monkeypatch)
    assert start(attention="auto").config.attention == "explicit"


@pytest.mark.parametrize(("sign", "limit"), [("UNDISTURBED", float("inf")), ("UNSTEADY", 0.0)])
def test_other_work_does_not_choose(
    start: Start, monkeypatch: pytest.MonkeyPatch, cache: Path, sign: str, limit: float
) -> None:
    """On cores that were all taken explicit attention, which is many small steps, once took five times as long."""
    made_faster("fused", monkeypatch, by=5.0)
    monkeypatch.setattr(tuning, sign, limit)
    trainer = start(attention="auto")
    assert trainer.config.attention == "explicit"
    assert trainer.plan is not None
    assert trainer.plan.explanation.choices["attention"][1].endswith("but other work was in the way")
    assert [one.disturbed for one in trainer.plan.explanation.candidates] == [True, True]
    assert not cache.exists()  # it would have told all runs of a month that the machine is slow


@pytest.mark.parametrize("changes", [{"attention_dropout": 0.1}, {"context_length": 8}])
def test_where_there_is_one_way_none_is_measured(
    start: Start, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(tuning, "_attend", lambda *_: pytest.fail("both were timed"))
    trainer = start(attention="auto", **changes)
    assert trainer.config.attention == "explicit"
    assert trainer.plan is not None
    assert "nothing to choose" in trainer.plan.explanation.choices["attention"][1]


def test_both_ways_are_timed_on_what_the_model_does(start: Start) -> None:
    trainer = start(attention="auto", n_layer=2)
    assert trainer.plan is not None
    explained = trainer.plan.explanation
    assert [(one.precision, one.attention) for one in explained.candidates] == [
        ("float32", "explicit"),
        ("float32", "fused"),
    ]
    assert all(one.seconds > 0 for one in explained.candidates)
    assert [one.attention for one in explained.candidates if one.chosen] == [trainer.config.attention]
    assert [one.attention for one in explained.candidates if not one.worked_out] == [trainer.config.attention]


def test_other_devices_have_no_explicit_attention() -> None:
    with pytest.raises(ConfigError, match="attention='explicit' is made for CPUs, and this run trains on cuda"):
        require_possible(TrainConfig(attention="explicit"), torch.device("cuda"))
    require_possible(TrainConfig(attention="fused"), torch.device("cuda"))


@pytest.mark.parametrize("way", ["explicit", "fused"])
def test_operations_are_those_of_the_formula(start: Start, way: str) -> None:
    """Six for each weight of a matrix, and for each pair of query and key 12 of each head's width.

    Of the fused kernel none were counted, for PyTorch's counter does not know the one for CPUs.
    """
    trainer = start(n_layer=2, context_length=32, attention=way)
    assert trainer.plan is not None
    model, (t, c) = trainer.model, (32, 16)
    matrices = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2)  # embeddings are the head's
    assert trainer.plan.explanation.flops_per_token == pytest.approx(6 * matrices + 12 * 2 * c * (t + 1) / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["plain", "causal", "grouped", "mask", "short"])
def test_both_ways_count_the_same_operations(case: str, dtype: torch.dtype) -> None:
    """To the last one, unless a causal triangle is not square: the kernel is then given a mask, and skips nothing."""
    (b, h, t, d), g, s = (2, 4, 24, 8), 2 if case == "grouped" else 4, 40 if case == "short" else 24
    mask = torch.ones(b, 1, 1, s, dtype=torch.bool) if case == "mask" else None
    q, k, v = (torch.randn(b, n, rows, d, dtype=dtype).requires_grad_() for n, rows in ((h, t), (g, s), (g, s)))
    seam, found = ScaledDotProductAttention(), {}
    for way in tuning.IMPLEMENTATIONS:
        seam.training_by = way
        with FlopCounterMode(display=False, custom_mapping=tuning.COUNTED) as counter:
            heads = seam(q, k, v, mask, causal=case not in ("plain", "mask"))
            forward = counter.get_total_flops()
            heads.sum().backward()
        found[way] = (forward, counter.get_total_flops())
    pairs = t * s if case in ("plain", "mask") else t * s - t * (t - 1) // 2
    assert found["explicit"] == (4 * b * h * d * pairs, 12 * b * h * d * pairs)
    assert found["fused"] == ((4 * b * h * d * t * s, 12 * b * h * d * t * s) if case == "short" else found["explicit"])


# --- the cache ---


def test_a_second_start_measures_nothing(start: Start, measured: list[str]) -> None:
    first, second = start("first", **OPEN), start("second", **OPEN)
    assert measured == ["float32", "bfloat16"]
    assert first.config == second.config
    assert first.planned_tokens == second.planned_tokens
    plans = [trainer.plan for trainer in (first, second)]
    assert [[one.cached for one in plan.explanation.candidates] for plan in plans if plan] == [[False] * 4, [True] * 4]
    start("third", **{**OPEN, "precision": "bfloat16"})
    assert len(measured) == 2  # one that is asked for was measured among the others


@pytest.mark.parametrize(
    "change", [{"n_embd": 32}, {"context_length": 32}, {"batch_size": 2}, {"optimizer": "adamw"}, {"dropout": 0.0}]
)
def test_what_costs_time_tells_measurements_apart(start: Start, measured: list[str], change: dict[str, Any]) -> None:
    start("first")
    start("second", **change)
    assert len(measured) == 2
    start("third", **change)
    start("fourth", seed=3, steps=9, learning_rate=1e-3)  # which cost nothing
    assert len(measured) == 2


@pytest.mark.parametrize("what", ["threads", "version", "processor"])
def test_another_machine_measures_for_itself(
    start: Start, measured: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The folder of the cache may be on a disk that several machines share."""
    start("first")
    if what == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    elif what == "version":
        monkeypatch.setattr(tuning, "__version__", "9.9")
    else:
        monkeypatch.setattr(tuning, "processor_name", lambda _: "Another One")
    start("second")
    assert len(measured) == 2


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("print('Apple M2 Pro')", "Apple M2 Pro"),
        ("", "arm"),
        ("exit(1)", "arm"),
        ("while True: pass", "arm"),
        (None, "arm"),
    ],
)
def test_apple_chips_have_names(monkeypatch: pytest.MonkeyPatch, answer: str | None, name: str) -> None:
    """`platform` calls all of them "arm", so one with as many cores would take another's measurements for its own."""
    run = subprocess.run

    def instead(asked: list[str], *, timeout: float, **how: Any) -> Any:
        assert asked == ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        command = ["/not/there"] if answer is None else [sys.executable, "-c", answer]
        return run(command, timeout=0.2 if answer and "while" in answer else timeout, **how)

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(subprocess, "run", instead)
    assert processor_name(torch.device("cpu")) == name


def test_measuring_anew_replaces_what_was_wrong(
    start: Start, measured: list[str], story_text: Any, tmp_path: Path
) -> None:
    start("first")
    anew = Trainer.start(tmp_path / "anew", story_text, TINY, device="cpu", measure_anew=True)
    assert len(measured) == 2
    after = start("after")
    assert len(measured) == 2
    assert anew.plan is not None
    assert after.plan is not None
    assert after.plan.explanation.seconds_per_step == anew.plan.explanation.seconds_per_step


def entry(**changes: Any) -> Callable[[Any], str]:
    """The content of the file with something else in the cost of its entries."""

    def change(content: Any) -> str:
        for one in content["measurements"].values():
            one["cost"] = {**one["cost"], **changes}
        return json.dumps(content)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda _: "\x00\udcff",
        lambda _: "[" * 100_000,
        lambda _: "[]",
        lambda _: "null",
        lambda content: json.dumps({**content, "format": 99}),
        lambda content: json.dumps({**content, "measurements": []}),
        lambda content: json.dumps({**content, "measurements": dict.fromkeys(content["measurements"], 3)}),
        lambda content: json.dumps(content)[:-20],
        entry(batch=float("nan")),
        entry(batch=-1.0),
        entry(batch=0),
        entry(batch=10**400),
        entry(batch=True),
        entry(batch="fast"),
        entry(attention="other"),
        entry(attention=[]),
        entry(attentions={"explicit": 1.0}),
        entry(attentions=7),
        entry(measured=None),
        entry(measured="yesterday"),
        entry(measured=(date.today() - timedelta(days=60)).isoformat()),
        entry(measured=(date.today() + timedelta(days=2)).isoformat()),
        entry(more=1),
    ],
)
def test_a_cache_that_cannot_be_used_is_measured_over(
    start: Start, measured: list[str], cache: Path, damage: Callable[[Any], str]
) -> None:
    """Damaged, written by another version, or too old."""
    start("first")
    content = json.loads(cache.read_text(encoding="utf-8"))
    cache.write_bytes(damage(content).encode("utf-8", "surrogateescape"))
    start("second")
    assert len(measured) == 2
    start("third")
    assert len(measured) == 2  # the file is whole again


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_cache_that_cannot_be_written_is_none(start: Start, measured: list[str], cache: Path, what: str) -> None:
    if what == "file":
        cache.parent.write_text("in the way")
    else:
        cache.mkdir(parents=True)
    assert start("first").config.precision == start("second").config.precision == "float32"
    assert len(measured) == 2


def test_one_precision_is_not_compared_with_an_older_one(start: Start, measured: list[str]) -> None:
    """One of a quiet minute last week would win over one of a busy minute today."""
    start("first", **{**OPEN, "precision": "float32"})
    start("second", **OPEN)
    assert measured == ["float32", "float32", "bfloat16"]


def test_too_little_memory_is_not_kept(start: Start, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may hold it today."""
    enough = tuning._measured

    def short(*given: Any) -> Cost:
        if given[4] == "float32":
            raise torch.OutOfMemoryError("too little")
        return enough(*given)

    monkeypatch.setattr(tuning, "_measured", short)
    plan = start("first", **OPEN).plan
    assert plan is not None
    assert plan.config.precision == "bfloat16"
    assert plan.explanation.choices["precision"] == ("bfloat16", "too little memory for float32")
    monkeypatch.setattr(tuning, "_measured", enough)
    start("second", **OPEN)
    assert measured == ["bfloat16", "float32", "bfloat16"]


def test_no_way_may_fit(jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: Any) -> Cost:
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(tuning, "_measured", short)
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


def test_the_oldest_measurements_make_room(
    start: Start, measured: list[str], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(tuning, "MOST_KEPT", 2)
    for size in (1, 2, 3):
        start(f"run-{size}", batch_size=size)
    assert len(json.loads(cache.read_text(encoding="utf-8"))["measurements"]) == 2
    start("third-again", batch_size=3)
    assert len(measured) == 3
    start("first-again", batch_size=1)
    assert len(measured) == 4


def test_two_starts_at_once_keep_both_measurements(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Each reads the file, adds its own and writes it all: one that read before the other wrote would undo that."""
    cost = Cost(batch=1.0, measured=date.today().isoformat())
    entries, others = tuning._entries, []

    def slow_to_read() -> dict[str, Any]:
        found = entries()
        if not others:
            others.append(threading.Thread(target=tuning._remember, args=({"run": "the other"}, cost)))
            others[0].start()
            others[0].join(0.3)  # as long as it would take, if nothing stopped it
        return found

    monkeypatch.setattr(tuning, "_entries", slow_to_read)
    tuning._remember({"run": "this one"}, cost)
    others[0].join()
    kept = json.loads(cache.read_text(encoding="utf-8"))["measurements"].values()
    assert [one["of"]["run"] for one in kept] == ["this one", "the other"]


def test_what_is_measured_comes_back_as_it_was(start: Start) -> None:
    """Without a fake: the cost that the file holds is the one that the first run decided by."""
    explained = [trainer.plan.explanation for trainer in (start("a", **OPEN), start("b", **OPEN)) if trainer.plan]
    first = [dataclasses.replace(one, cached=True) for one in explained[0].candidates]
    assert first == list(explained[1].candidates)
    same = ("choices", "flops_per_token", "memory", "seconds_per_step")
    assert [getattr(explained[0], name) for name in same] == [getattr(explained[1], name) for name in same]
    assert 0 < explained[0].memory["kept"] < 1e8


# --- jumok train --explain ---


@pytest.fixture
def text(own_folder: Path, tales: str) -> Path:
    """A text file in the folder of the test."""
    path = own_folder / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


SMALL = ("--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--device", "cpu")


def test_explaining_makes_nothing(jumok: Jumok, text: Path, measured: list[str]) -> None:
    end = jumok("train", text, *SMALL, "--steps", 50, "--explain")
    assert end.code == 0, end.err
    assert {path.name for path in text.parent.iterdir()} == {text.name, "cache"}
    lines = end.out.splitlines()
    [chosen] = [line.split() for line in lines if line.endswith("chosen")]
    assert chosen[:2] == ["bfloat16", "explicit"]
    assert chosen[4] == "now"
    said = dict(line.split(None, 1) for line in lines if line and " " in line)
    assert said["precision"].startswith("bfloat16: ")
    assert said["attention"].startswith("explicit: ")
    assert said["compile"].startswith("off: the run would last ")
    assert said["dropout"].startswith(("0: ", "0.1: ", "0.2: "))
    assert "about 50 steps" in said["length"]
    again = jumok("train", text, *SMALL, "--steps", 50, "--explain")
    assert f"{date.today().isoformat()}, cached" in again.out
    assert len(measured) == 2
    assert "now" in jumok("train", text, *SMALL, "--steps", 50, "--explain", "--measure-anew").out
    assert len(measured) == 4


def test_an_explanation_as_json(jumok: Jumok, text: Path, measured: list[str]) -> None:
    asked = (*SMALL, "--minutes", 1, "--compile", "off", "--precision", "float32")
    end = jumok("train", text, *asked, "--explain", "--json", "--out", "kept-out")
    assert end.code == 0, end.err
    values = end.json
    assert values["choices"]["precision"] == {"chosen": "float32", "why": "as asked"}
    assert values["choices"]["compile"] == {"chosen": "off", "why": "as asked"}
    assert [one["attention"] for one in values["candidates"] if one["chosen"]] == ["explicit"]
    assert values["seconds_per_step"] == pytest.approx(0.51)
    assert values["steps"] == round(60 / 0.51)
    assert values["tokens_per_step"] == 16 * 16
    assert values["parameters"] > 0
    assert not (text.parent / "kept-out").exists()


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--explain", "--explain is for a run that has not begun"), ("--measure-anew", "leave --measure-anew out")],
)
def test_what_has_begun_decides_nothing(jumok: Jumok, text: Path, flag: str, words: str) -> None:
    end = jumok("train", "--resume", "--out", "run", flag)
    assert end.code == 2
    assert words in end.err
