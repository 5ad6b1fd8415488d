"""Alarms: each rings where its cause is, and none in a run that learns."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import TINY, Jumok, assert_same, events_of
from jumok.corpora import stories
from jumok.evaluation.overlap import line_overlap
from jumok.models.gpt import GPT
from jumok.nn.attention import ScaledDotProductAttention
from jumok.runs.events import Alarm, Event, Step
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.text import Table, Text, from_rows, from_string
from jumok.training import alarms, curves, probes
from jumok.training.alarms import Alarms
from jumok.training.settings import configurations
from jumok.training.state import TrainingState
from jumok.training.tasks.material import repetition
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]


def kinds(events: Iterator[Any]) -> list[str]:
    return [found.kind for found in events]


def rung(events: list[Event]) -> dict[str, Alarm]:
    found = [event for event in events if isinstance(event, Alarm)]
    assert len({alarm.kind for alarm in found}) == len(found)  # once each
    return {alarm.kind: alarm for alarm in found}


def falling(steps: int = 400, low: float = 2.5, seed: int = 0) -> np.ndarray:
    """Losses of a run that learns, with the noise of batches."""
    noise = np.random.default_rng(seed).normal(0, 0.1, steps)
    return low + (7.3 - low) * np.exp(-np.arange(steps) / 40) + noise


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few steps are judged too."""
    monkeypatch.setattr(alarms, "FEWEST_STEPS", 10)
    monkeypatch.setattr(curves, "RECENT", 8)


# --- curves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_curve_that_falls_rings_nothing(seed: int) -> None:
    losses = falling(seed=seed)
    for stop in range(1, len(losses), 7):
        assert kinds(curves.above_chance(losses[:stop], 7.3)) == []
        assert kinds(curves.loss_rises(losses[:stop], 7.3)) == []
    assert kinds(curves.hardly_moves(losses, to_learn=4.0)) == []
    norms = np.concatenate(([20.0, 15, 9, 5, 2, 15, 3], np.random.default_rng(seed).lognormal(-0.4, 0.3, 400)))
    assert not any(kinds(curves.gradients_explode(norms[:stop])) for stop in range(1, len(norms), 7))


def test_curves_without_a_finite_value_ring_nothing() -> None:
    """A run of which every step was skipped ends with an error of its own."""
    nothing = np.full(60, np.nan)
    assert kinds(curves.above_chance(nothing, 7.3)) == kinds(curves.loss_rises(nothing, 7.3)) == []
    assert kinds(curves.gradients_explode(nothing)) == kinds(curves.hardly_moves(nothing, 4.0)) == []


def test_a_loss_that_rises_is_told() -> None:
    losses = falling()
    losses[300:] += np.linspace(0, 2.5, 100)
    [found] = curves.loss_rises(losses, 7.3)
    assert found.numbers["newest"] > found.numbers["lowest"] + 1.2
    assert kinds(curves.loss_rises(falling() + np.linspace(0, 0.5, 400), 7.3)) == []  # overfitting has its own signs


def test_a_spike_of_one_batch_is_no_alarm() -> None:
    losses, norms = falling(), np.ones(400)
    losses[350], norms[350] = 30.0, 500.0
    assert kinds(curves.loss_rises(losses, 7.3)) == kinds(curves.gradients_explode(norms)) == []


def test_gradients_that_explode_are_told() -> None:
    norms = np.concatenate((np.full(380, 0.7), np.geomspace(1, 1e6, 20)))
    [found] = curves.gradients_explode(np.concatenate((norms, np.full(30, 1e6))))
    assert found.numbers["newest"] > 100 * found.numbers["median"]


# --- rates that are far off -------------------------------------------------------------------------------------------


def test_a_rate_that_is_too_high(start: Start, soon: None) -> None:
    found = rung(list(start(steps=40, learning_rate=5.0, matrix_learning_rate=5.0, clip=0.0).run()))
    assert "above_chance" in found
    assert "--find-rate" in found["above_chance"].text


def test_a_rate_that_is_too_low(start: Start, soon: None) -> None:
    found = rung(list(start(steps=40, learning_rate=1e-6, matrix_learning_rate=1e-6).run()))
    assert found.keys() == {"hardly_moves"}  # and not that the model has learned less than a table of counts
    assert found["hardly_moves"].numbers["first"] == pytest.approx(found["hardly_moves"].numbers["newest"], abs=0.1)


def test_less_than_a_table_of_counts(start: Start, soon: None) -> None:
    found = rung(list(start(steps=30).run()))
    assert found.keys() == {"worse_than_baseline"}
    numbers = found["worse_than_baseline"].numbers
    assert numbers["found"] > numbers["baseline"] > 0


# --- figures that are too good ----------------------------------------------------------------------------------------


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


def test_a_loss_below_the_floor(start: Start) -> None:
    """The held-out part of these stories is what the model was trained on before."""
    task = start(steps=1).loop.task
    assert task.floor is not None
    [found] = task.too_good({"nats_per_char": 0.9 * task.floor})
    assert found.kind == "below_floor"
    assert list(task.too_good({"nats_per_char": 1.01 * task.floor})) == []


def test_copies_with_small_changes(tmp_path: Path) -> None:
    """Another edition of the same text differs in a letter here and there, so no long passage is the same."""
    random = np.random.default_rng(0)
    letters = [chr(0xAC00 + 28 * int(n)) for n in random.integers(0, 200, 4_000)]
    edition = [*letters[:800]]
    edition[::30] = "x" * len(edition[::30])
    held_out = from_string("".join(edition), "edition.txt")
    settings = configurations({**TINY, "steps": 1})
    task = Trainer.start(
        tmp_path / "run", from_string("".join(letters)), **settings, val_text=held_out, device="cpu"
    ).loop.task
    assert task.alarms == ()
    [found] = task.too_good({"nats_per_char": 0.4 * task.data["baseline_nats_per_char"]})
    assert found.kind == "leak"
    assert 0.1 < found.numbers["share"] < 0.6
    assert list(task.too_good({"nats_per_char": 0.6 * task.data["baseline_nats_per_char"]})) == []


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
    rows += [(" 영화  0 좋아요", "1"), ("영화 1  좋아요", "0"), *((f"새 영화 {n}", "01"[n % 2]) for n in range(4))]
    settings = configurations({**TINY, "context_length": 24, "task": "classify", "steps": 1})
    trainer = Trainer.start(tmp_path / "run", labelled(rows), **settings, device="cpu")
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


def test_rows_with_other_spaces_are_the_same(tmp_path: Path) -> None:
    rows = [(f"{number} 더하기 1", str(number + 1)) for number in range(57)]
    rows += [(f"{number}  더하기 1 ", str(number + 1)) for number in range(3)]
    settings = configurations({**TINY, "context_length": 24, "task": "seq2seq", "steps": 1})
    table = from_rows(("source", "target"), rows)
    found = rung(list(Trainer.start(tmp_path / "run", table, **settings, device="cpu").run()))
    assert found["repeated"].numbers == {"share": 0.5}


# --- dead parts -------------------------------------------------------------------------------------------------------


def killed_head(model: Any) -> None:
    layer = model.blocks[0].attention
    with torch.no_grad():
        layer.o_proj.weight[:, : layer.head_dim] = 0.0


def uniform_head(model: Any) -> None:
    layer = model.blocks[0].attention
    with torch.no_grad():
        layer.q_proj.weight[: layer.head_dim] = 0.0


@pytest.mark.parametrize("kill", [killed_head, uniform_head])
def test_dead_heads(kill: Callable[[Any], None], start: Start) -> None:
    trainer = start(steps=8, n_head=2)
    list(trainer.run())
    assert kinds(probes.dead_parts(trainer.model, trainer.task)) == []
    kill(trainer.model)
    [found] = probes.dead_parts(trainer.model, trainer.task)
    assert found.numbers["dead"] == 1
    assert "blocks.0.attention 0" in found.text
    trainer.model.blocks[0].attention.q_proj.requires_grad_(False)  # as in the model of the ladder that averages
    assert kinds(probes.dead_parts(trainer.model, trainer.task)) == []


def test_a_head_on_the_first_token_is_alive(start: Start) -> None:
    """Attention sinks are how heads pause; Xiao et al. 2023, https://arxiv.org/abs/2309.17453."""
    trainer = start(steps=8, family="classic", n_head=2, head_dim=8, n_embd=16)
    list(trainer.run())
    model = trainer.model
    assert isinstance(model, GPT)
    assert model.position_embedding is not None
    layer = model.blocks[0].attention
    with torch.no_grad():
        layer.k_proj.weight.mul_(50)
    assert kinds(probes.dead_parts(model, trainer.task)) == []


def test_dead_units(start: Start) -> None:
    trainer = start(steps=8, family="classic", activation="relu", n_layer=2)
    list(trainer.run())
    assert kinds(probes.dead_parts(trainer.model, trainer.task)) == []
    up = trainer.model.blocks[1].mlp.up_proj
    with torch.no_grad():
        up.bias[: int(0.7 * len(up.bias))] = -1e3
    [found] = probes.dead_parts(trainer.model, trainer.task)
    assert (found.kind, found.numbers["block"]) == ("dead_units", 1)
    assert found.numbers["share"] == pytest.approx(0.7, abs=0.05)


def test_a_run_that_begins_with_dead_units_is_told(start: Start, tmp_path: Path, story_text: Text, soon: None) -> None:
    list(start("first", steps=4, family="classic", activation="relu").run())
    model = load(tmp_path / "first")
    with torch.no_grad():
        for block in model.blocks:
            block.mlp.up_proj.bias.fill_(-1e3)
    RunFolder(tmp_path / "first").write_parameters(model)
    keep = {name: TINY[name] for name in ("steps", "batch_size", "precision", "compile") if name in TINY}
    settings = configurations({**keep, "steps": 12}, init=tmp_path / "first")
    run = Trainer.start(tmp_path / "run", story_text, **settings, init=tmp_path / "first", device="cpu")
    assert rung(list(run.run()))["dead_units"].numbers["share"] == 1.0


# --- where alarms go --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["mlm", "classify", "seq2seq"])
def test_other_tasks_are_judged(task: str, tmp_path: Path, story_text: Text, soon: None) -> None:
    """The probes run on the batches of every task, and a few steps of learning ring no alarm about their curves."""
    pairs = [(f"영화 {n} {'좋아요' if n % 2 else '싫어요'}", "01"[n % 2]) for n in range(90)]
    names = ("text", "label") if task == "classify" else ("source", "target")
    source = story_text if task == "mlm" else from_rows(names, pairs)
    settings = configurations({**TINY, "context_length": 24, "task": task, "steps": 24})
    found = rung(list(Trainer.start(tmp_path / "run", source, **settings, device="cpu").run()))
    assert found.keys() <= {"worse_than_baseline", "hardly_moves"}


@pytest.mark.long
def test_a_healthy_run_rings_nothing(start: Start) -> None:
    """All of them are looked for at the last validations, with the constants as they are."""
    text = from_string("".join(stories.write(60_000, seed=1)))
    shape = {"n_layer": 2, "n_embd": 64, "context_length": 32, "batch_size": 16, "dropout": 0.0}
    events = list(start(text=text, steps=240, eval_every=40, **shape).run())
    assert rung(events) == {}
    assert sum(isinstance(event, Step) for event in events) == 240


def low(start: Start, out: str) -> Trainer:
    return start(out, steps=24, learning_rate=1e-6, matrix_learning_rate=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 9, 15, 23])
def test_a_resumed_run_rings_the_same_alarms(stop: int, start: Start, tmp_path: Path, soon: None) -> None:
    """A resumed run knows the losses before it, and which alarms have rung."""
    list(low(start, "whole").run())
    assert [event["kind"] for event in events_of(tmp_path / "whole") if event["event"] == "alarm"] == ["hardly_moves"]
    trainer = low(start, "run")
    for event in trainer.run():
        if isinstance(event, Step) and event.step == stop:
            break
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_resumed_run_knows_the_skipped_steps_as_such(start: Start, tmp_path: Path) -> None:
    """An infinite norm is null in metrics.jsonl; in memory it was infinite, and a median of norms differed."""
    trainer = start(steps=12, eval_every=12)
    for event in trainer.run():
        if isinstance(event, Step) and event.step == 4:
            break
    log = tmp_path / "run" / "metrics.jsonl"
    text = re.sub(r'"grad_norm": [^,]*', '"grad_norm": null', log.read_text(encoding="utf-8"), count=1)
    log.write_text(text, encoding="utf-8")
    state = dataclasses.replace(trainer.loop.run, state=dataclasses.replace(trainer.state, step=4))
    read, watched = Alarms(state), Alarms(dataclasses.replace(state, state=TrainingState()))
    for number, event in enumerate(one for one in events_of(tmp_path / "run") if one["event"] == "step"):
        norm = math.inf if number == 0 else event["grad_norm"]
        watched.watch(
            Step(step=number + 1, loss=event["loss"], rate=1, grad_norm=norm, skipped=number == 0, progress=0.1,
                 seconds=0, remaining=0, tokens_per_second=0)
        )  # fmt: skip
    assert math.isnan(read._norms[0])
    assert np.array_equal(read._norms, watched._norms, equal_nan=True)
    assert np.array_equal(read._losses, watched._losses)


def test_alarms_draw_no_random_numbers(start: Start) -> None:
    trainer = start(steps=4)
    before = torch.random.get_rng_state()
    list(Alarms(trainer.loop.run).after_validation({}))
    assert torch.equal(torch.random.get_rng_state(), before)


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
