"""Alarms: each rings where its cause is, and none in a run that learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from conftest import TINY, Jumok, assert_same, events_of
from jumok.evaluation.overlap import line_overlap
from jumok.nn.attention import ScaledDotProductAttention
from jumok.runs.events import Alarm, Event, Step
from jumok.text import Table, from_rows, from_string
from jumok.training import alarms
from jumok.training.tasks.material import repetition
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]


def kinds(events: Iterator[Any]) -> list[str]:
    return [found.kind for found in events]


def rung(events: list[Event]) -> dict[str, Alarm]:
    found = [event for event in events if isinstance(event, Alarm)]
    assert len({alarm.kind for alarm in found}) == len(found)  # once each
    return {alarm.kind: alarm for alarm in found}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few steps are judged too."""
    monkeypatch.setattr(alarms, "FEWEST_STEPS", 10)


# --- in a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_less_than_a_table_of_counts(start: Start, soon: None) -> None:
    found = rung(list(start(steps=30).run()))
    assert found.keys() == {"worse_than_baseline"}
    numbers = found["worse_than_baseline"].numbers
    assert numbers["found"] > numbers["baseline"] > 0


def test_a_classifier_that_is_too_sure_is_no_worse_than_counts(soon: None, tmp_path: Path) -> None:
    """Its loss is above that of the shares of the labels, and its accuracy is what it is judged by."""
    rows = labelled([(f"글 {number}", "가" if number % 3 else "나") for number in range(60)])
    wild = {"learning_rate": 1.0, "matrix_learning_rate": 1.0, "steps": 12, "eval_every": 1, "task": "classify"}
    events = list(Trainer.start(tmp_path / "run", rows, **{**TINY, **wild}, device="cpu").run())
    assert "worse_than_baseline" not in rung(events)


def test_a_model_that_sees_the_future(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classical mistake: the causal mask is forgotten, the loss falls to nothing, and the samples are noise."""
    forward = ScaledDotProductAttention.forward

    def without_mask(
        self: ScaledDotProductAttention,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        return forward(self, q, k, v, mask, False)

    monkeypatch.setattr(ScaledDotProductAttention, "forward", without_mask)
    found = rung(list(start(steps=12, sample_tokens=0).run()))
    assert found["sees_the_future"].numbers["change"] > 0.01


# --- what is in both parts --------------------------------------------------------------------------------------------


def test_lines_that_are_in_both_parts(start: Start) -> None:
    """Reviews, one a line, are shorter than the passages that were looked for, so copies of them were not noticed."""
    random = np.random.default_rng(0)
    lines = ["".join(chr(0xAC00 + 28 * int(n)) for n in random.integers(0, 300, 24)) for _ in range(200)]
    text = "\n".join([*lines, *(f"  {line}" for line in lines[:10])]) + "\n"
    trainer = start(text=from_string(text), steps=1)
    [alarm] = rung(list(trainer.run())).values()
    assert (alarm.kind, alarm.step) == ("repeated_lines", 0)
    assert alarm.numbers["share"] == pytest.approx(10 * 24 / (text.__len__() * 0.1), abs=0.08)
    assert [e for e in trainer.notices if "word for word" in e] == []


def test_line_overlap_counts_characters() -> None:
    long, short = "가" * 24, "나" * 5
    assert line_overlap([f"{long}\n{short}\n"], [f"{long}\n{short}"]) == 24 / 29  # a short line is new
    assert line_overlap([long[:7], long[7:] + "\n다"], [f" {long} "]) == 1.0  # across chunks, without spaces
    assert line_overlap(["다\n" * 9], [long]) == 0.0
    assert line_overlap([long], []) == 0.0


def labelled(rows: list[tuple[str, str]]) -> Table:
    return from_rows(("text", "label"), rows)


def test_texts_in_both_parts_with_other_labels(tmp_path: Path) -> None:
    rows = [(f"영화 {number} 좋아요", "01"[number % 2]) for number in range(54)]
    others = [(" 영화  0 좋아요", "1"), ("영화 1  좋아요", "0"), *((f"새 영화 {n}", "01"[n % 2]) for n in range(4))]
    settings = {**TINY, "context_length": 24, "task": "classify", "steps": 1}
    trainer = Trainer.start(tmp_path / "run", labelled(rows), val_text=labelled(others), **settings, device="cpu")
    found = rung(list(trainer.run()))
    assert found.keys() == {"repeated_texts", "contradictory_labels"}
    assert found["repeated_texts"].numbers == {"share": 2 / 6}
    assert found["contradictory_labels"].numbers == {"share": 4 / 60}


def test_the_same_copies_are_told_once() -> None:
    """Of film reviews, 1.83% of the rows and 1.90% of the texts were in both parts: two warnings said the same."""
    both = {"rows": 9, "repeated": 0.0183, "repeated_texts": 0.019}
    assert kinds(iter(repetition(both))) == ["repeated"]
    assert kinds(iter(repetition({**both, "repeated_texts": 0.03}))) == ["repeated", "repeated_texts"]
    assert kinds(iter(repetition({"repeated": 0.3, "repeated_lines": 0.2}))) == ["repeated"]
    assert kinds(iter(repetition({"repeated": 0.001, "repeated_lines": 0.02}))) == ["repeated_lines"]
    assert kinds(iter(repetition({}))) == []  # of an old run


# --- where alarms go --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_that_learns_rings_nothing(start: Start) -> None:
    """The last validations are in the second half, after 200 steps: all alarms are looked for."""
    shape = {"n_layer": 1, "n_embd": 64, "context_length": 32, "batch_size": 16, "dropout": 0.0}
    assert rung(list(start(steps=240, eval_every=60, sample_tokens=0, **shape).run())) == {}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [9, 19])
def test_a_resumed_run_rings_the_same_alarms(stop: int, start: Start, tmp_path: Path, soon: None) -> None:
    """A resumed run knows which alarms have rung."""
    list(start("whole", steps=24).run())
    told = [event["kind"] for event in events_of(tmp_path / "whole") if event["event"] == "alarm"]
    assert told == ["worse_than_baseline"]
    for event in start("run", steps=24).run():
        if isinstance(event, Step) and event.step == stop:
            break
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_where_alarms_are_told(jumok: Jumok, tmp_path: Path, tales: str) -> None:
    (tmp_path / "a.txt").write_text(tales + tales[:900], encoding="utf-8")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()] + ["--device=cpu"]
    end = jumok("train", "a.txt", "--out=run", "--json", *flags)
    assert end.code == 0
    assert end.err.count("Warning: ") == 1
    assert end.err.count("word for word") == 1  # not as a notice, too
    [told] = end.json["alarms"]
    assert (told["kind"], told["step"]) == ("repeated", 0)
    [logged] = [event for event in events_of(tmp_path / "run") if event["event"] == "alarm"]
    assert logged == {"event": "alarm", "step": 0, "kind": "repeated", "numbers": {"share": told["share"]}}
    again = jumok("train", "--resume", "--out=run", "--json")
    assert again.json["alarms"] == end.json["alarms"]
