"""The verdict at the end of a run: what its figures mean, and the command to type next."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jumok
from conftest import Jumok, only, tiny_run
from jumok.cli.train import train as command
from jumok.runs.events import Alarm, Eval, Event, Finish, Notice, Sample, Verdict
from jumok.runs.folder import RunFolder
from jumok.text import Text, from_rows, from_string
from jumok.training.tasks.task import Baseline, error_of_share
from jumok.training.trainer import Trainer
from jumok.training.verdict import judge
from talks import talks

Start = Callable[..., Trainer]
BIGRAM = (Baseline("nats_per_char", 3.0, "a bigram", "{value:.3f} nats/char"),)
FALLING, RISING = np.linspace(6, 2, 400), np.concatenate((np.linspace(6, 2, 100), np.linspace(2, 7, 300)))
POEM = (
    "나 보기가 역겨워 가실 때에는\n말없이 고이 보내 드리오리다\n영변에 약산 진달래꽃\n아름 따다 가실 길에 뿌리오리다\n"
    "산에는 꽃 피네 꽃이 피네\n갈 봄 여름 없이 꽃이 피네\n산에서 우는 작은 새여\n꽃이 좋아 산에서 사노라네\n"
)
BY_HEART: dict[str, Any] = {
    "n_embd": 32, "steps": 60, "eval_every": 5, "dropout": 0.0, "learning_rate": 0.02, "matrix_learning_rate": 0.05,
    "patience": 0, "val": 0.2,
}  # fmt: skip


# --- one function decides ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "nats", "reason", "steps", "lowest", "losses"),
    [
        ("learned", 2.5, "done", 400, 400, FALLING),
        ("reached", 2.5, "reached", 400, 400, FALLING),
        ("stopped_early", 2.5, "early stop", 400, 300, FALLING),
        ("overfitted", 2.5, "early stop", 400, 150, FALLING),
        ("overfitted", 3.5, "done", 102, 12, FALLING),
        ("too_short", 5.9, "done", 2, 2, FALLING[:2]),
        ("too_short", 3.0, "done", 199, 199, FALLING),
        ("nothing_learned", 3.5, "done", 400, 400, FALLING),
        ("diverged", 2.5, "early stop", 400, 100, RISING),
        ("diverged", 2.5, "done", 400, 100, np.concatenate((FALLING[:200], np.full(200, np.nan)))),
        ("diverged", 2.5, "done", 400, 100, np.concatenate((FALLING[:200], [np.nan], FALLING[201:]))),
        ("overfitted", 2.5, "done", 400, 100, np.concatenate((FALLING[:50], [np.nan], FALLING[51:]))),
    ],
)
def test_each_verdict(kind: str, nats: float, reason: str, steps: int, lowest: int, losses: Any) -> None:
    found = judge({"nats_per_char": nats}, BIGRAM, reason, steps=steps, lowest=lowest, losses=losses)
    assert found == kind


def test_a_verdict_without_figures() -> None:
    assert judge({}, BIGRAM, "done", steps=9, lowest=0, losses=FALLING) == "diverged"
    assert judge({}, (), "done", steps=9, lowest=0, losses=FALLING, validates=False) == "unvalidated"
    failed = judge({}, (), "failed", steps=9, lowest=0, losses=FALLING, validates=False)
    assert failed == "diverged"  # it was "Nothing was held out", beside the error that the loss was not finite
    assert judge({"loss": 1.0}, BIGRAM, "done", steps=9, lowest=9, losses=FALLING) == "learned"  # nothing to compare


def test_a_share_is_better_the_higher_it_is() -> None:
    accuracy = (Baseline("accuracy", 0.7, "always the most frequent label", "accuracy {value:.3f}", is_share=True),)
    for found, kind in ((0.71, "learned"), (0.7, "nothing_learned"), (0.6, "nothing_learned")):
        assert judge({"accuracy": found}, accuracy, "done", steps=400, lowest=400, losses=FALLING) == kind


# --- every run has one ------------------------------------------------------------------------------------------------


def test_a_run_that_learned_nothing_says_so(start: Start) -> None:
    """Two steps in a minute ended with "done", 5.956 nats/char beside a bigram's 3.491, and no advice."""
    *_, verdict, finish = start(steps=2).run()
    assert isinstance(verdict, Verdict)
    assert isinstance(finish, Finish)
    assert verdict.kind == "too_short"
    assert verdict.numbers["found"] == finish.figures["nats_per_char"]
    assert verdict.numbers["baseline"] == finish.figures["baseline_nats_per_char"] < verdict.numbers["found"]
    assert "2 steps are too few" in verdict.text
    assert "not clearly better than a bigram" in verdict.text
    assert "--init" in verdict.command
    assert "--steps=200" in verdict.command


@pytest.mark.parametrize(("optimizer", "rates"), [("muon", 2), ("adamw", 1)])
def test_a_last_loss_that_is_not_finite_is_a_divergence(
    start: Start, monkeypatch: pytest.MonkeyPatch, optimizer: str, rates: int
) -> None:
    """metrics.jsonl has null for it. The command named the rate of Muon for AdamW, too."""
    trainer = start(steps=8, eval_every=1, sample_tokens=0, patience=0, optimizer=optimizer)
    figures, sums = iter([1.0, *[2.0] * 20]), trainer.task.loss_sums

    def validate(model: Any, max_tokens: int) -> dict[str, float]:
        return {"loss": (loss := next(figures)), "nats_per_char": loss, "tokens": 1}

    def loss_sums(model: Any, batch: Any) -> Any:
        return tuple(each * (math.nan if trainer.step == 7 else 1) for each in sums(model, batch))

    monkeypatch.setattr(trainer.task, "validate", validate)
    monkeypatch.setattr(trainer.task, "loss_sums", loss_sums)
    *_, verdict, _ = trainer.run()
    assert verdict.kind == "diverged"
    assert verdict.command.count("learning-rate=") == rates


def test_by_minutes_the_command_has_minutes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW", "FEWEST_STEPS"):
        monkeypatch.setattr(f"jumok.training.verdict.{name}", 10**9)  # however many steps this machine takes
    *_, verdict, _ = start(steps=None, minutes=0.01, passes=0.0).run()
    assert verdict.kind == "too_short"
    assert "--minutes" in verdict.command


@pytest.mark.parametrize(("later", "kind"), [(1.0, "learned"), (1.1, "overfitted")])
def test_equal_validations_are_no_overfitting(
    start: Start, monkeypatch: pytest.MonkeyPatch, later: float, kind: str
) -> None:
    """A run with the same reward for every answer had "learned the training part by heart": its first was the best."""
    trainer = start(steps=8, eval_every=1, sample_tokens=0, patience=0)
    figures = iter([1.0, *[later] * 20])

    def validate(model: Any, max_tokens: int) -> dict[str, float]:
        return {"loss": (loss := next(figures)), "nats_per_char": loss, "tokens": 1}

    monkeypatch.setattr(trainer.task, "validate", validate)
    monkeypatch.setattr(trainer.task, "final", validate)
    *_, verdict, _ = trainer.run()
    assert verdict.kind == kind


TABLE = from_rows(("text", "label"), [(f"글 {n % 7}", "가" if n % 5 else "나") for n in range(100)])
PAIRS = from_rows(("source", "target"), [(f"{n}", "가나" if n % 3 else "다라") for n in range(100)])


@pytest.mark.parametrize(
    ("task", "source", "settings", "said"),
    [
        ("mlm", from_string(POEM * 4), {}, "the frequencies of the tokens"),
        ("classify", TABLE, {}, "always the most frequent label"),
        ("classify", TABLE, {"class_weights": True}, "the shares of the labels"),
        ("seq2seq", PAIRS, {}, "always the most frequent answer"),
        ("chat", talks(), {"context_length": 64}, "the answer to the nearest question"),
    ],
)
def test_every_task_has_a_baseline(task: str, source: Any, settings: Any, said: str, tmp_path: Path) -> None:
    given = {
        "task": task, "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 24, "batch_size": 4, "steps": 1,
        "learning_rate": 0.0, "matrix_learning_rate": 0.0, "precision": "float32", "compile": "off",
        "attention": "chunked", **settings,
    }  # fmt: skip
    trainer = Trainer.start(tmp_path / "run", source, **given, device="cpu")
    *_, verdict, _ = trainer.run()
    assert said in verdict.text or verdict.kind == "learned"  # by chance
    assert said in [baseline.name for baseline in trainer.task.baselines]
    assert not any(baseline.is_beaten(baseline.value) for baseline in trainer.task.baselines)


def test_without_a_held_out_part(start: Start) -> None:
    *_, verdict, _ = start(val=0.0, steps=3).run()
    assert verdict.kind == "unvalidated"
    assert verdict.command.startswith("jumok generate ")


def test_an_interrupted_run_has_none(start: Start) -> None:
    trainer, events = start(), []
    for event in trainer.run():
        events.append(event)
        trainer.request_stop()
    assert not only(events, Verdict)


def test_an_alarm_does_not_say_it_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last step the verdict tells that a bigram is better."""
    monkeypatch.setattr("jumok.training.alarms.FEWEST_STEPS", 5)
    events = list(start(steps=8, eval_every=8).run())
    assert only(events, Verdict)
    assert "worse_than_baseline" not in [alarm.kind for alarm in only(events, Alarm)]


# --- the parameters that are kept -------------------------------------------------------------------------------------


@pytest.fixture
def poem(tmp_path: Path) -> Callable[..., list[Event]]:
    def run(**settings: Any) -> list[Event]:
        return list(tiny_run(tmp_path / "run", from_string(POEM), **{**BY_HEART, **settings}).run())

    return run


@pytest.mark.slow
def test_the_last_sample_is_of_the_kept_parameters(poem: Callable[..., list[Event]], tmp_path: Path) -> None:
    """The text shown was of the last step, and the parameters in the folder of another one, whose text is garbage."""
    events = poem()
    samples, [verdict] = only(events, Sample), only(events, Verdict)
    best = max(event.step for event in only(events, Eval) if event.best)
    assert verdict.kind == "overfitted"
    assert (samples[-1].step, samples[-1].kept) == (best, True)
    assert best < 30
    model = jumok.load(tmp_path / "run")
    assert samples[-1].text == jumok.generate(model, "", tokens=8, seed=0)[0].text
    assert [sample.step for sample in samples].count(60) == 0
    assert f"--- step {best} (kept) ---" in (tmp_path / "run" / "samples.txt").read_text(encoding="utf-8")
    assert "--keep=last" in verdict.command


@pytest.mark.slow
def test_the_last_parameters_can_be_kept(poem: Callable[..., list[Event]], tmp_path: Path) -> None:
    events = poem(keep="last", patience=2)
    [verdict], [finish] = only(events, Verdict), only(events, Finish)
    assert (finish.step, finish.reason) == (60, "done")  # no early stop
    assert not any("decays" in event.text for event in only(events, Notice))
    assert verdict.kind == "overfitted"
    assert verdict.numbers["kept_step"] == 60 > verdict.numbers["best_step"]
    assert "repeat the training part" in verdict.text
    assert RunFolder(tmp_path / "run").read_config()["metrics"]["step"] == 60
    assert finish.figures["nats_per_char"] > min(event.figures["nats_per_char"] for event in only(events, Eval))
    assert (only(events, Sample)[-1].step, only(events, Sample)[-1].kept) == (60, True)


@pytest.mark.slow
def test_a_resumed_run_keeps_the_same_and_says_the_same(story_text: Text, tmp_path: Path) -> None:
    whole = list(tiny_run(tmp_path / "whole", story_text, keep="last").run())
    broken = tiny_run(tmp_path / "broken", story_text, keep="last")
    for event in broken.run():
        if isinstance(event, Eval):
            broken.request_stop()
    rest = list(Trainer.resume(tmp_path / "broken", device="cpu").run())
    one, other = (only(events, Verdict)[0] for events in (whole, rest))
    assert (one.kind, one.numbers) == (other.kind, other.numbers)
    for name in ("model.safetensors", "samples.txt"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()


@pytest.mark.slow
def test_the_suggested_command_keeps_the_last(poem: Callable[..., list[Event]], tmp_path: Path) -> None:
    [verdict] = only(poem(), Verdict)
    words = shlex.split(verdict.command)
    with command.make_context("train", words[2:], resilient_parsing=True) as context:  # the options exist
        assert context.params["keep"] == "last"


# --- how it is told ---------------------------------------------------------------------------------------------------


def test_the_terminal_tells_it_in_two_languages(jumok: Jumok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    options = [
        "--steps=2", "--n-layer=1", "--n-head=2", "--n-embd=16", "--context-length=16", "--compile=off",
        "--precision=float32", "--attention=chunked", "--sample-tokens=4", "--device=cpu", "--json",
    ]  # fmt: skip
    end = jumok("train", "poem.txt", *options)
    assert end.code == 0
    assert "Too short: 2 steps are too few." in end.err
    assert "after    (step 2) " in end.err
    assert end.json["verdict"]["kind"] == "too_short"
    assert end.json["verdict"]["command"] in end.err
    [line] = [
        json.loads(line)
        for line in (tmp_path / "runs" / "poem" / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        if '"verdict"' in line
    ]
    assert line.keys() == {"event", "step", "kind", "numbers"}
    monkeypatch.setenv("JUMOK_LANG", "ko")
    assert "너무 짧음: 2스텝으로는 부족합니다." in jumok("train", "poem.txt", *options).err


def test_a_figure_within_its_noise_is_not_better() -> None:
    """One row of 200 more than the most frequent label was called learned."""
    share = Baseline("accuracy", 0.49, "usual", "{value}", is_share=True, error=error_of_share(0.49, 200))
    assert not share.is_beaten(0.495)
    assert share.is_beaten(0.6)
    loss = Baseline("loss", 3.0, "usual", "{value}")
    assert not loss.is_beaten(2.99)
    assert loss.is_beaten(2.9)
