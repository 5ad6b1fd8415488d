"""The loop: it learns, says what it does in order, and survives what a run meets."""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import re
import shutil
import stat
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
from conftest import assert_same, only, run_until, state_of
from jumok import text as reader
from jumok.config import TrainConfig
from jumok.data.ids import load_ids
from jumok.device import has_compiler
from jumok.errors import ConfigError, JumokError, RunError, TrainingError
from jumok.inference.generate import generate
from jumok.models.gpt import GPT
from jumok.runs import folder as checkpoint
from jumok.runs.events import Eval, Event, Finish, Notice, Sample, Save, Step, Verdict
from jumok.serve.desk.curves import read_curve
from jumok.text import Text
from jumok.training.compilation import keep_code_private
from jumok.training.optim import rate
from jumok.training.subscribers import pictures
from jumok.training.subscribers.progress import TrainingView
from jumok.training.tasks.language_modelling import LanguageModelling
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

Start = Callable[..., Trainer]


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


# --- what a run is ---


def test_it_learns(start: Start) -> None:
    losses = [step.loss for step in only(list(start(steps=60, dropout=0.0, sample_tokens=0).run()), Step)]
    assert losses[0] == pytest.approx(math.log(300), rel=0.15)  # about 300 characters, none known yet
    assert sum(losses[-5:]) / 5 < losses[0] - 1.0


def test_events_come_in_order(start: Start) -> None:
    events = list(start().run())
    steps = ["Step"] * 4
    ending = ["Eval", "Save", "Sample", "Verdict", "Finish"]
    assert names(events) == ["Sample", *steps, "Eval", "Sample", *steps, *ending]
    assert [step.step for step in only(events, Step)] == list(range(1, 9))
    assert [step.progress for step in only(events, Step)] == [n / 8 for n in range(1, 9)]
    assert [event.step for event in only(events, Eval)] == [4, 8]
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert (finish.step, finish.reason) == (8, "done")
    assert {"nats_per_char", "bits_per_char", "bits_per_byte", "loss_per_token", "perplexity", "floor"} <= set(
        finish.figures
    )


@pytest.mark.usefixtures("drawn")
def test_the_files_of_a_run(start: Start, tmp_path: Path) -> None:
    events = list(start().run())
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        "config.json", "tokenizer.json", "model.safetensors", "state", "metrics.jsonl", "samples.txt", "loss.png",
    }  # fmt: skip
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    logged = [event for event in events if not isinstance(event, Save | Notice)]
    assert [line["event"] for line in lines] == [type(event).__name__.lower() for event in logged]
    assert [line["step"] for line in lines] == [event.step for event in logged]
    for line, event in zip(lines, logged, strict=True):
        for name, value in line.items():
            assert name == "event" or value == getattr(event, name)
    samples = only(events, Sample)
    assert (run / "samples.txt").read_text(encoding="utf-8") == "".join(
        f"--- step {sample.step}{' (kept)' if sample.kept else ''} ---\n{sample.text}\n\n" for sample in samples
    )
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "loss.png").stat().st_size > 5_000
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert config["metrics"]["nats_per_char"] == only(events, Finish)[0].figures["nats_per_char"]


def test_same_settings_same_run(start: Start) -> None:
    def essence(out: str, **settings: Any) -> list[Any]:
        events = list(start(out, **settings).run())
        return [
            (event.loss, event.grad_norm) if isinstance(event, Step) else
            event.figures if isinstance(event, Eval | Finish) else
            event.text if isinstance(event, Sample) else None
            for event in events
        ]  # fmt: skip

    first = essence("first")
    assert essence("second") == first
    assert essence("third", seed=1) != first


# --- the held-out text ---


def is_a_mean(weight: Tensor, run: Path) -> bool:
    """Whether a weight is in the state of a run as a mean, and not as what is trained."""
    found = {name for name, tensor in state_of(run).tensors.items() if torch.equal(tensor, weight)}
    return len(found) == 1 and found.pop().endswith(".mean")


def test_best_weights_are_kept(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of the best validation are in model.safetensors, not the last ones, and config.json says whose.

    They are means of those that are trained, which go on from themselves.
    """
    trainer = start(steps=12)
    losses = iter([3.0, 1.0, 2.0])
    seen: list[Tensor] = []

    def validate(model: GPT, max_tokens: int) -> dict[str, float]:
        seen.append(model.token_embedding.weight.detach().clone())
        return {"loss": (loss := next(losses)), "nats_per_char": loss, "tokens": 1}

    monkeypatch.setattr(trainer.task, "validate", validate)
    events = list(trainer.run())
    assert [event.best for event in only(events, Eval)] == [True, True, False]
    assert torch.equal(jumok.load(tmp_path / "run").token_embedding.weight, seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert is_a_mean(seen[2], tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["metrics"]["step"] == 8


@pytest.mark.slow
def test_final_figures_are_those_of_the_saved_model(start: Start, tmp_path: Path) -> None:
    """What is printed at the end is what `evaluate` finds on the same text, which is short enough to be read whole."""
    trainer = start(steps=30, eval_every=10)
    finish = list(trainer.run())[-1]
    assert isinstance(finish, Finish)
    model = jumok.load(tmp_path / "run")
    figures = trainer.task.final(model, 10**9)
    assert finish.figures["nats_per_char"] == pytest.approx(figures["nats_per_char"], rel=1e-6)


def test_the_model_of_a_finished_run_is_in_eval_mode(start: Start, tmp_path: Path) -> None:
    """The model was left in train mode, so what it computed after the run had dropout."""
    trainer = start(dropout=0.5)
    list(trainer.run())
    again = Trainer.resume(tmp_path / "run", device="cpu")
    for model in (trainer.model, again.model):
        assert not any(part.training for part in model.modules())


def test_the_held_out_part_is_the_last(start: Start, tales: str, tmp_path: Path) -> None:
    trainer = start(val=0.25)
    cut = len(tales) - round(len(tales) * 0.25)
    tokenizer = trainer.folder.read_tokenizer()
    ids = [load_ids(trainer.folder.state / name).tolist() for name in ("train.npy", "val.npy")]
    assert tokenizer.decode(ids[0]) == tales[:cut]
    assert tokenizer.decode(ids[1]) == tales[cut:]


def test_without_validation(start: Start, tmp_path: Path) -> None:
    events = list(start(val=0.0).run())
    assert only(events, Eval) == []
    assert isinstance(events[-1], Finish)
    assert events[-1].figures == {}
    assert is_a_mean(jumok.load(tmp_path / "run").head.weight, tmp_path / "run")


def test_a_file_to_hold_out(start: Start, story_text: Text) -> None:
    other = reader.from_string("옛날 옛적에 호랑이가 살았다. " * 20)
    trainer = start(val_text=other)
    data = trainer.folder.read_config()["data"]
    assert (data["val_chars"], data["val_bytes"]) == (other.chars, other.utf8_bytes)
    assert data["train_tokens"] >= story_text.chars  # all of it is for training now
    assert data["val_sha256"] == other.sha256
    assert data["floor"] is None


def test_a_run_whose_validations_all_fail_ends(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Such a run never lost its patience, and was finished without model.safetensors, so each resume finished again."""
    trainer = start(steps=100, eval_every=5, patience=2, sample_tokens=0)

    def fail(model: GPT, max_tokens: int) -> dict[str, float]:
        raise JumokError("the model's losses are not finite")

    monkeypatch.setattr(trainer.task, "validate", fail)
    events = list(trainer.run())
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert (finish.step, finish.reason, finish.figures) == (12, "early stop", {})
    assert only(events, Notice)[0].text == "This validation failed: the model's losses are not finite"
    assert only(events, Notice)[-1].text == (
        "No validation had a finite loss; the parameters are those of the last step, 12."
    )
    assert torch.equal(
        jumok.load(tmp_path / "run").token_embedding.weight,
        state_of(tmp_path / "run").tensors["model.token_embedding.weight"],
    )
    again = Trainer.resume(tmp_path / "run", device="cpu")
    assert again.result is not None
    assert (again.result.step, again.result.reason) == (12, "early stop")


def test_a_sample_without_finite_logits_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a model that could not write ended the run, although the steps that follow may mend it."""
    trainer = start()

    def sample(model: GPT, tokens: int, seed: int) -> str:
        raise JumokError("the model's logits are not finite")

    monkeypatch.setattr(trainer.task, "sample", sample)
    events = list(trainer.run())
    assert [event.text for event in only(events, Notice)] == ["No sample: the model's logits are not finite"] * 3
    assert isinstance(events[-1], Finish)


def test_a_picture_that_cannot_be_drawn_is_told_once(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An error of matplotlib ended the run without a saved state, or kept it from its end at each resume."""

    def draw(*_: Any, **__: Any) -> None:
        raise ValueError("no such font")

    monkeypatch.setattr(pictures, "draw_loss", draw)
    monkeypatch.setattr(pictures, "DRAW_EVERY", 0.0)
    trainer = start()
    monkeypatch.setattr(trainer.task, "draw", draw)
    events = list(trainer.run())
    assert [event.text for event in only(events, Notice)] == [
        "A picture could not be drawn: ValueError('no such font')"
    ]
    assert isinstance(events[-1], Finish)
    assert trainer.folder.read_config()["finished"] == {"step": 8, "reason": "done"}


def test_a_picture_is_not_kept_in_memory(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A figure refers to itself, so 2 MB stayed with each picture until the collector searched everything."""
    kept: list[weakref.ref[Any]] = []

    def draw(events: Any, path: Path, **options: Any) -> None:
        class Figure:
            pass

        figure: Any = Figure()
        figure.canvas = figure
        kept.append(weakref.ref(figure))
        assert all(older() is None for older in kept[:-1])

    monkeypatch.setattr(pictures, "draw_loss", draw)
    monkeypatch.setattr(pictures, "DRAW_EVERY", 0.0)
    list(start().run())
    assert len(kept) > 2
    assert gc.isenabled()


# --- rates and ends ---


def test_rates_follow_the_schedule(start: Start) -> None:
    trainer = start(steps=10, warmup=0.2, eval_every=100, sample_tokens=0)
    rates = [step.rate for step in only(list(trainer.run()), Step)]
    assert rates == pytest.approx([rate(trainer.config, (n + 0.5) / 10) for n in range(10)])
    assert rates[0] == pytest.approx(0.25)
    assert max(rates) == rates[2]
    assert 0 < rates[-1] < 0.1


@pytest.mark.slow
def test_early_stop_decays_the_rate_and_ends(start: Start) -> None:
    """A dozen lines learned by heart: the held-out loss rises, and the run ends before its time with rate zero."""
    lines = "바람이 불었다. 비가 왔다. 해가 떴다. 눈이 내렸다. "
    text = reader.from_string(lines * 6 + "고양이는 창가에 앉아 하품을 하며 잠이 들었고 아이는 노래를 불렀다.")
    trainer = start(text=text, steps=2000, eval_every=5, patience=2, sample_tokens=0, dropout=0.0)
    events = list(trainer.run())
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == "early stop"
    assert finish.step < 1500
    stop = next(event.step for event in only(events, Notice) if "decays quickly" in event.text)
    rates = [step.rate for step in only(events, Step)]
    assert len(rates) - stop == pytest.approx(0.1 * stop, abs=1.01)
    decay = rates[stop - 1 :]
    assert decay == sorted(decay, reverse=True)
    assert decay[-1] <= decay[0] / (len(decay) - 1)
    best = min(event.figures["loss"] for event in only(events, Eval))
    assert trainer.validation.best == best


@pytest.mark.long
def test_a_time_budget_ends_after_so_many_passes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small table in ten minutes was seen twenty times, and learned by heart."""
    monkeypatch.setattr(LanguageModelling, "least_steps", 10)
    trainer = start(steps=None, minutes=60.0, passes=1.5, sample_tokens=0)
    steps = only(list(trainer.run()), Step)
    seen = len(steps) * trainer.task.tokens_per_batch
    assert 0 <= seen - 1.5 * trainer.task.train_tokens < trainer.task.tokens_per_batch
    assert trainer.clock.planned_tokens == int(1.5 * trainer.task.train_tokens)
    assert steps[-1].progress == 1.0
    assert steps[-1].remaining == 0.0


def by_a_clock(start: Start, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], **settings: Any) -> list[Any]:
    """The events of a run of six seconds by a clock that only the methods of the task in `seconds` move."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    trainer = start(steps=None, minutes=0.1, eval_every=0, **settings)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])  # after the start, which measures how fast it all is

    def slow(method: str, seconds: float) -> None:
        work = getattr(trainer.task, method)

        def wait_and_work(*args: Any, **named: Any) -> Any:
            now[0] += seconds
            return work(*args, **named)

        monkeypatch.setattr(trainer.task, method, wait_and_work)

    for method, each in seconds.items():
        slow(method, each)
    return list(trainer.run())


@pytest.mark.slow
def test_minutes_end_with_a_finished_schedule(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six seconds by a clock that the test moves: they are used, not overrun, and the rate is near zero then."""
    events = by_a_clock(start, monkeypatch, {"loss_sums": 0.05, "validate": 0.01, "final": 0.1})
    steps = only(events, Step)
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == "done"
    assert 4.5 < finish.seconds <= 6.2
    assert 60 < len(steps) < 120
    assert steps[-1].rate < 0.05
    assert max(step.rate for step in steps) > 0.9
    assert len(only(events, Eval)) in (12, 13)


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "seconds"), [("linear", 0.05), ("invsqrt", 2.0)])
def test_each_step_has_a_rate(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, schedule: str, seconds: float
) -> None:
    """In a run by minutes the first step had a rate of zero, and so had a last one that was longer than what was left.

    Of a run of four steps one did nothing.
    """
    taken = {"loss_sums": seconds, "validate": 0.01, "final": 0.1}
    steps = only(by_a_clock(start, monkeypatch, taken, schedule=schedule, sample_tokens=0), Step)
    assert len(steps) >= 2
    assert all(0 < step.rate <= 1 for step in steps)
    logged = [line["rate"] for line in checkpoint.RunFolder(tmp_path / "run").logs.metrics() if line["event"] == "step"]
    assert min(logged) > 0


@pytest.mark.slow
def test_validations_take_a_share_of_the_minutes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve validations, each with a sample, took a fifth of a run of one minute on a busy machine."""
    events = by_a_clock(start, monkeypatch, {"loss_sums": 0.05, "validate": 0.02, "sample": 0.02, "final": 0.1})
    found = len(only(events, Eval))
    assert found in (6, 7, 8)  # 4% of six seconds are six times 0.04; the first comes before that is known
    assert len(only(events, Sample)) == found + 1  # one before the first step
    assert only(events, Step)[-1].progress == 1.0


# --- losses that are not finite ---


def poison(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, calls: set[int], value: float = math.nan) -> None:
    """Make the loss `value` at these calls, counted from 0."""
    sums, count = trainer.task.loss_sums, iter(range(10**6))

    def wrong(*args: Any) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = sums(*args)
        return tuple(each * value for each in result) if next(count) in calls else result

    monkeypatch.setattr(trainer.task, "loss_sums", wrong)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_without_finite_loss_is_skipped(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: float
) -> None:
    trainer = start(sample_tokens=0)
    poison(trainer, monkeypatch, {2, 3}, value)
    before: dict[int, Tensor] = {}
    steps = []
    for event in trainer.run():
        if isinstance(event, Step):
            steps.append(event)
            before[event.step] = trainer.model.head.weight.detach().clone()
    assert [step.step for step in steps if step.skipped] == [3, 4]
    assert torch.equal(before[2], before[4])
    assert not torch.equal(before[4], before[5])
    assert steps[-1].step == 8
    text = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text  # which JSON does not have
    assert "Infinity" not in text
    assert trainer.folder.logs.metrics()[2]["loss"] is None


@pytest.mark.parametrize(
    ("optimizer", "rates"), [("muon", r"learning_rate=0\.0017 matrix_learning_rate=0\.0067"), ("adamw", r"=0\.0017")]
)
def test_three_in_a_row_end_the_run_with_its_state_saved(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, optimizer: str, rates: str
) -> None:
    trainer = start(optimizer=optimizer)
    poison(trainer, monkeypatch, {1, 2, 3})
    seen: list[Event] = []
    with pytest.raises(TrainingError, match=rf"3 steps in a row.*{rates}\."):
        seen.extend(trainer.run())
    [verdict] = only(seen, Verdict)
    assert verdict.kind == "diverged"
    assert "--learning-rate" in verdict.command
    state = state_of(tmp_path / "run")
    assert state.step == 4
    assert all(torch.isfinite(tensor).all() for tensor in state.tensors.values())
    again = Trainer.resume(tmp_path / "run", device="cpu")
    poison(again, monkeypatch, {0})
    with pytest.raises(TrainingError, match="up to step 5"):  # a fourth failure is one too many as well
        list(again.run())
    assert isinstance(list(Trainer.resume(tmp_path / "run", device="cpu").run())[-1], Finish)


# --- a full disk ---


def test_a_full_disk_is_told_and_loses_nothing(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A start that finds no room takes back what it made; a run ends with the command that resumes it."""

    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"the text as ids.*then start again"):
            start()
        assert list(tmp_path.iterdir()) == []
    list(start("undisturbed", save_every=0.0).run())
    events = start(save_every=0.0).run()
    while next(events).step < 3:
        pass
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"No space left on device.*--resume --out"):
            list(events)
    assert not list((tmp_path / "run").rglob("*.tmp"))
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "undisturbed")


# --- starting ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_embd": 250, "n_head": 6}, "use n_embd=246 or 252"),
        ({"steps": -5}, "steps=-5"),
        ({"stepz": 5}, "Did you mean 'steps'"),
        ({"minutes": 1.0}, "both given"),
    ],
)
def test_wrong_settings_leave_nothing_behind(
    start: Start, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        start(**settings)
    assert list(tmp_path.iterdir()) == []


def test_a_start_leaves_alone_what_another_process_makes(start: Start, tmp_path: Path, story_text: Text) -> None:
    """The one that came too late discarded the folder of the one that was there: ids, lock and all."""
    folder = checkpoint.RunFolder.create(tmp_path / "run")
    with folder.lock():
        (folder.state / "train.npy").write_bytes(b"theirs")
        with pytest.raises(RunError, match="another process or another Trainer is writing"):
            start()
        assert (folder.state / "train.npy").read_bytes() == b"theirs"


def test_a_start_leaves_alone_what_another_process_has_just_made(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was free when it was looked at, and holds a run once its lock is held."""
    list(start("first", steps=1).run())
    create = checkpoint.RunFolder.create

    def late(path: Path) -> checkpoint.RunFolder:
        folder = create(path)
        shutil.copytree(tmp_path / "first", path, dirs_exist_ok=True)
        return folder

    monkeypatch.setattr(checkpoint.RunFolder, "create", late)
    with pytest.raises(RunError, match="holds a run already"):
        start()
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_dropout_follows_from_how_often_the_text_is_seen(start: Start, story_text: Text) -> None:
    tokens = 16 * 4
    shares = {}
    for passes in (3, 4.5, 5.5, 8, 16):
        steps = round(passes * story_text.chars * 0.9 / tokens)
        shares[passes] = start(f"run{passes}", steps=steps, dropout=None).model.config.dropout
    assert shares == {3: 0.0, 4.5: 0.0, 5.5: 0.1, 8: 0.1, 16: 0.2}
    assert start("given", steps=1000, dropout=0.05).model.config.dropout == 0.05


def test_a_small_text_is_told_with_the_numbers(start: Start) -> None:
    text = reader.from_string("바람이 불고 비가 왔다. 아이는 우산을 썼다. " * 10)
    (notice,) = start(text=text, steps=100).notices
    assert re.search(r"[\d,]+ training tokens for [1-9][\d,]+ parameters", notice)
    assert "Dropout is 0.1" in notice
    assert "stops early after 5 validations that bring nothing better" in notice


def test_it_does_not_print(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    list(start().run())
    assert capfd.readouterr() == ("", "")


# --- stopping ---


def test_a_stop_saves_and_the_rest_is_the_same(start: Start, tmp_path: Path) -> None:
    list(start("reference").run())
    events = run_until(start(), 3)
    assert names(events[-3:]) == ["Step", "Save", "Finish"]
    assert isinstance(events[-1], Finish)
    assert (events[-1].reason, events[-1].step) == ("interrupted", 3)
    resumed = Trainer.resume(tmp_path / "run", device="cpu")
    assert resumed.step == 3
    list(resumed.run())
    for name in ("model.safetensors", "samples.txt"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "reference" / name).read_bytes()


def test_a_stop_before_the_first_step(start: Start, tmp_path: Path) -> None:
    """The sample from before training was written a second time after such a stop."""
    list(start("reference").run())
    trainer = start()
    trainer.request_stop()
    list(trainer.run())
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    samples = (tmp_path / "run" / "samples.txt").read_text(encoding="utf-8")
    assert samples == (tmp_path / "reference" / "samples.txt").read_text(encoding="utf-8")
    assert samples.count("--- step 0 ---") == 1


def test_each_state_is_saved_once(start: Start, tmp_path: Path) -> None:
    """The state after the last step was written twice where a save was due: the second one as step-8.1."""
    trainer = start(save_every=0.0)
    assert [event.step for event in only(list(trainer.run()), Save)] == [1, 2, 3, 4, 5, 6, 7, 8]
    stopped = run_until(start("stopped", save_every=0.0), 3)
    assert [event.step for event in only(stopped, Save)] == [1, 2, 3]


# --- compiling ---


@pytest.mark.parametrize("in_use", [False, True])
def test_a_broken_compiler_costs_a_sentence(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_use: bool
) -> None:
    """Only the first use of what was compiled was guarded, not the compiling itself."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no compiler here\nwith a long story")

    list(start("reference").run())
    monkeypatch.setattr(torch, "compile", (lambda function, **_: wraps(function)(broken)) if in_use else broken)
    events = list(start(compile="on").run())
    assert [event.text for event in only(events, Notice)] == [
        "Compiling failed, so training goes on without (no compiler here)."
    ]
    run, reference = tmp_path / "run", tmp_path / "reference"
    assert (run / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()


def test_an_empty_library_is_compiled_again(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C while torch compiled left an empty library in the cache, and no later run was compiled.

    The compiler is played: it loads a library that exists, and makes one that does not.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torchinductor"))
    library, made = keep_code_private() / "kernel.so", []
    library.write_bytes(b"")

    def load(function: Any, **_: Any) -> Any:
        if not library.exists():
            library.write_bytes(b"whole")
            made.append(library)
        if library.read_bytes() != b"whole":
            try:
                raise ImportError("file too short", path=str(library))
            except ImportError:
                raise RuntimeError("ImportError: file too short") from None  # as torch does
        return function

    monkeypatch.setattr(torch, "compile", load)
    assert only(list(start(compile="on").run()), Notice) == []
    assert len(made) == 1


def test_a_model_is_compiled_in_the_passes_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """`generate(trainer.model)` compiled the blocks for each length of a prompt, during a run and after it.

    The compiler is played here: what it makes of a call only counts.
    """
    calls: list[bool] = []

    def compiled(function: Any, **_: Any) -> Any:
        return lambda *args, **kwargs: (calls.append(torch.is_grad_enabled()), function(*args, **kwargs))[1]

    monkeypatch.setattr(torch, "compile", compiled)
    trainer = start(compile="on", steps=6, eval_every=3)
    for event in trainer.run():
        if isinstance(event, Step):
            assert calls
            assert all(calls)  # of training alone
            del calls[:]
            generate(trainer.model, "그날", tokens=2, cache=False)
            trainer.model(torch.tensor([[1, 2, 3]]))
            assert calls == []


def test_random_numbers_between_steps_are_the_callers(start: Start) -> None:
    """Each pass seeded torch's global generator, so that a caller's numbers were the same in each step."""
    torch.manual_seed(5)
    wanted = torch.rand(40).tolist()
    torch.manual_seed(5)
    trainer, found = start(), []
    for event in trainer.run():
        if isinstance(event, Step):
            found.append(float(torch.rand(1)))
    assert len(found) == 8
    assert found + torch.rand(32).tolist() == wanted


@pytest.mark.long
@pytest.mark.compile
def test_a_compiled_run_equals_its_resumed_self(start: Start, tmp_path: Path) -> None:
    if not has_compiler(torch.device("cpu")):
        pytest.skip("there is no C++ compiler for torch.compile here")
    list(start("reference", compile="on", steps=6, eval_every=3, dropout=0.1).run())
    events = run_until(start(compile="on", steps=6, eval_every=3, dropout=0.1), 2)
    assert only(events, Notice) == []  # it did compile
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "reference")


def test_config_of_a_run_holds_nothing_open(start: Start) -> None:
    trainer = start(precision="auto", attention="auto", compile="auto", dropout=None)
    recorded = trainer.folder.read_config()["train"]
    assert recorded["precision"] in ("float32", "bfloat16")
    assert recorded["attention"] in ("chunked", "fused")
    assert recorded["compile"] == "off"  # eight steps do not pay for it
    assert TrainConfig(**{k: v for k, v in recorded.items() if k != "planned_tokens"}) == trainer.config


def test_a_run_has_one_held_out_figure(start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The terminal, the curve and config.json had three validation figures for one run, all named "held out"."""
    trainer = start(eval_tokens=64)
    with TrainingView(tmp_path / "run") as view:
        for event in trainer.run():
            view.show(event)
            if isinstance(event, Eval):
                metrics = trainer.folder.read_config()["metrics"]
                assert metrics == {"step": event.step, "validation": event.figures}
    assert isinstance(event, Finish)
    wanted = f"{event.figures['loss']:.3f}"
    assert trainer.folder.read_config()["metrics"] == {"step": event.step, **event.figures}
    said = [line for line in capfd.readouterr().err.splitlines() if "held out" in line]
    assert len(said) == 1
    assert wanted in said[0]
    curve = read_curve(tmp_path / "run" / "metrics.jsonl")
    assert curve.held_out == event.headline


def test_an_interrupted_run_has_the_figures_of_its_best_validation_under_that_name(
    start: Start, tmp_path: Path
) -> None:
    trainer = start()
    with TrainingView(tmp_path / "run", quiet=True) as view:
        for event in trainer.run():
            view.show(event)
            if isinstance(event, Eval):
                trainer.request_stop()
                figures = {name: value for name, value in event.figures.items() if name != "loss"}
    assert view.summary["validation"] == figures
    assert "nats_per_char" not in view.summary
