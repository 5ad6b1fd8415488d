"""A run with a teacher: its first part trains one, the rest a second model, from the text and from its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from conftest import Jumok
from jumok import text as reader
from jumok.config import GPTConfig, TrainConfig
from jumok.corpora import stories
from jumok.errors import ConfigError, JumokError, RunError
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.models.losses import distillation_losses
from jumok.nn.blocks import Block
from jumok.runs.events import Eval, Event, Finish, Step, Student
from jumok.runs.examine import examine
from jumok.runs.folder import RunFolder
from jumok.training.planning import plan as planning
from jumok.training.planning.autotune import Cost
from jumok.training.planning.plan import KEPT_SPEED, TEACHER, most_tokens
from jumok.training.predictions import Predictions, predict, read_predictions
from jumok.training.settings import given_again
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]
TEACHING: dict[str, Any] = {"teacher": 0.3, "steps": 20, "eval_every": 4}


def only(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def stopped(trainer: Trainer, step: int) -> None:
    for event in trainer.run():
        if isinstance(event, Step) and event.step == step:
            trainer.request_stop()


# --- the loss ---------------------------------------------------------------------------------------------------------


def test_the_loss_is_half_the_text_and_half_the_teacher() -> None:
    """All probabilities are given, so the teacher's half is the cross-entropy of whole distributions."""
    logits, taught = torch.randn(2, 3, 5), torch.randn(2, 3, 5).softmax(-1)
    targets, ids = torch.randint(5, (2, 3)), torch.arange(5).expand(2, 3, 5)
    logs = logits.log_softmax(-1)
    expected = 0.5 * F.nll_loss(logs.flatten(0, 1), targets.flatten(), reduction="none").view(2, 3)
    expected -= 0.5 * (taught * logs).sum(-1)
    assert torch.allclose(distillation_losses(logits, targets, ids, taught, 0.5), expected, atol=1e-4)


def test_the_rest_of_a_prediction_is_a_class_of_its_own() -> None:
    """Probabilities of the likeliest tokens that add up to 1 tell the student that no other token is possible. Such
    targets lost the whole gain (bench/LOG.md)."""
    logits = torch.zeros(1, 1, 4, requires_grad=True)
    likeliest, probabilities = torch.tensor([[[0, 1]]]), torch.tensor([[[0.25, 0.25]]])
    loss = distillation_losses(logits, torch.zeros(1, 1, dtype=torch.int64), likeliest, probabilities, 1.0).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * math.log(4) + 0.5 * math.log(2))
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6, "a model that agrees with the teacher learns nothing more"


def test_a_share_of_zero_is_the_loss_of_the_text() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    found = distillation_losses(logits, targets, torch.zeros(2, 3, 1).long(), torch.ones(2, 3, 1), 0.0)
    assert torch.allclose(found, F.cross_entropy(logits.mT, targets, reduction="none"), atol=1e-6)


# --- the predictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [9, 16, 17, 50])
def test_each_token_but_the_first_has_the_prediction_of_the_model(tokens: int) -> None:
    model = build(GPTConfig(vocab_size=40, n_layer=1, n_head=2, n_embd=16, context_length=8)).eval()
    ids = torch.randint(40, (tokens,)).numpy().astype("uint16")
    found = Predictions.blank(tokens, 40)
    shares = list(predict(model, ids, found))
    assert shares[-1] == 1.0
    assert not found.probabilities[0].any()
    assert (found.probabilities[1:].sum(-1) > 0.3).all()
    assert (found.probabilities.float().sum(-1) <= 1.01).all()
    expected = model(torch.from_numpy(ids[:8].astype("int64"))[None])[0].softmax(-1).topk(16)
    if tokens > 16:  # otherwise the last window has replaced them
        assert torch.equal(found.likeliest[1:9], expected.indices.int())
        assert torch.allclose(found.probabilities[1:9].float(), expected.values, atol=1e-3)


def test_a_batch_has_the_predictions_of_its_targets(start: Start) -> None:
    """They would teach nothing, or nonsense, one place beside."""
    task = start().task
    tokens = len(task.train)
    own = torch.from_numpy(task.train[:].astype("int32"))[:, None]
    task.learn_from(Predictions(own, torch.ones(tokens, 1, dtype=torch.float16)))
    for number in (0, 3, 40):
        _, targets, likeliest, probabilities = task.batch(number)
        assert torch.equal(likeliest[..., 0].long(), targets)
        assert probabilities.all()


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_student_begins_anew_after_the_teacher(start: Start, tmp_path: Path) -> None:
    trainer = start(**TEACHING)
    seen: list[torch.Tensor] = []
    events = []
    for event in trainer.run():
        events.append(event)
        if isinstance(event, Student):
            assert all(not optimizer.state for optimizer in trainer.optimizers), "moments of the teacher"
            seen.append(trainer.model.token_embedding.weight.detach().clone())
    [student] = only(events, Student)
    assert student.step == 6
    rates = [event.rate for event in only(events, Step)]
    assert rates[5] < 0.3 < 0.9 < rates[6], "the rate falls to zero for the teacher, and begins anew"
    assert rates[-1] < 0.1
    torch.manual_seed(0)
    assert not torch.equal(seen[0], build(trainer.model.config).token_embedding.weight), "the teacher's parameters"
    assert [event.step for event in only(events, Eval)] == [4, 6, 8, 12, 16, 20]
    assert only(events, Finish)[0].reason == "done"
    predictions = read_predictions(RunFolder(tmp_path / "run"), trainer.state.predictions)
    assert len(predictions.likeliest) == len(trainer.task.train)
    assert [line["step"] for line in RunFolder(tmp_path / "run").logs.metrics() if line["event"] == "student"] == [6]


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 6, 7, 15])
def test_a_resumed_run_is_the_same(start: Start, tmp_path: Path, step: int) -> None:
    """Stopped in the teacher, between the two models, right after, and in the student."""
    list(start("whole", **TEACHING).run())
    stopped(start("stopped", **TEACHING), step)
    list(Trainer.resume(tmp_path / "stopped", device="cpu").run())
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert one == other


@pytest.mark.slow
def test_a_run_that_is_stopped_while_the_teacher_predicts_goes_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(start("whole", **TEACHING).run())
    trainer = start("stopped", **TEACHING)
    monkeypatch.setattr(trainer.begun, "report", lambda text: trainer.request_stop() if "teacher" in text else None)
    events = list(trainer.run())
    assert not only(events, Student)
    assert only(events, Finish)[0].reason == "interrupted"
    list(Trainer.resume(tmp_path / "stopped", device="cpu").run())
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert one == other


@pytest.mark.slow
def test_the_best_parameters_of_both_are_kept(start: Start) -> None:
    """A student that is worse than its teacher must not replace it."""
    trainer = start(**{**TEACHING, "teacher": 0.8})
    events = list(trainer.run())
    figures = {event.step: event.figures["loss"] for event in only(events, Eval)}
    assert trainer.state.best == min(figures.values())
    assert trainer.state.best_step <= 16 < 20, "four steps are not enough for the student"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["remove", "change"])
def test_damaged_predictions_are_told(start: Start, tmp_path: Path, damage: str) -> None:
    stopped(start(**TEACHING), 12)
    assert examine(tmp_path / "run").whole
    path = tmp_path / "run" / "state" / "predictions.safetensors"
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(RunError, match=r"predictions\.safetensors.*missing or damaged"):
        Trainer.resume(tmp_path / "run", device="cpu")
    examination = examine(tmp_path / "run")
    assert [one.file for one in examination.findings if one.condition == "damaged"] == ["state/predictions.safetensors"]
    assert examination.usable
    assert examination.resumable is None


@pytest.mark.slow
def test_another_stage_has_no_teacher(start: Start, tmp_path: Path) -> None:
    list(start(**TEACHING).run())
    events = list(Trainer.resume(tmp_path / "run", training=given_again(tmp_path / "run", {"steps": 4})).run())
    assert not only(events, Student)
    assert len(only(events, Step)) == 4


@pytest.mark.slow
def test_a_run_without_validation_has_the_student(start: Start, tmp_path: Path) -> None:
    trainer = start(**{**TEACHING, "val": 0.0})
    file, written = tmp_path / "run" / "model.safetensors", {}
    for event in trainer.run():
        if isinstance(event, Student | Finish):
            written[type(event)] = file.read_bytes()
    assert written[Student] != written[Finish], "the teacher's parameters were kept"
    assert trainer.step == 20


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passes", "sentences", "given", "expected"),
    [
        (4.5, 1000, {}, 0.0),
        (5.5, 1000, {}, TEACHER),
        (7, 100, {}, 0.0),
        (16, 100, {}, 0.0),
        (18, 100, {}, TEACHER),
        (18, 100, {"teacher": 0.0}, 0.0),
        (18, 100, {"passes": 2.0}, 0.0),
        (18, 100, {"passes": 0.0}, 0.0),
        (18, 100, {"stop_at": 0.1}, 0.0),
        (3, 100, {"teacher": 0.5}, 0.5),
    ],
)
def test_a_teacher_comes_where_the_time_suffices_for_many_passes_and_steps(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    passes: float,
    sentences: int,
    given: dict[str, Any],
    expected: float,
) -> None:
    """In four passes over novels, and in few steps over stories, a model alone was better (bench/LOG.md)."""
    small = reader.from_string("바람이 불고 비가 왔다. 아이는 우산을 썼다. " * sentences)
    probe = start("probe", text=small)
    steps = passes * len(probe.task.train) / probe.task.tokens_per_batch
    cost = Cost(precision="float32", attention="chunked", batch=KEPT_SPEED * 60 / steps)
    monkeypatch.setattr(planning, "measure", lambda *_: [cost])
    trainer = start("run", text=small, steps=None, minutes=1.0, **given)
    assert trainer.config.teacher == expected
    assert RunFolder(trainer.folder.path).read_config()["train"]["teacher"] == expected


def test_generated_stories_have_no_teacher(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """At six passes over a million characters of them, two models ended at 0.314 nats per character, one at 0.305."""
    text = reader.from_string("".join(stories.write(4_000, seed=1)))
    probe = start("probe", text=text)
    steps = 18 * len(probe.task.train) / probe.task.tokens_per_batch
    cost = Cost(precision="float32", attention="chunked", batch=KEPT_SPEED * 60 / steps)
    monkeypatch.setattr(planning, "measure", lambda *_: [cost])
    trainer = start("run", text=text, steps=None, minutes=1.0)
    assert trainer.task.generated
    assert trainer.config.teacher == 0.0
    assert start("asked", text=text, steps=None, minutes=1.0, teacher=0.3).config.teacher == 0.3


def test_the_teacher_has_no_dropout(start: Start) -> None:
    """It sees the text too seldom to need it (bench/LOG.md)."""
    trainer = start(**TEACHING)
    rates: dict[str, set[float]] = {"teacher": set(), "student": set()}
    for event in trainer.run():
        if isinstance(event, Step):
            name = "student" if event.step > 6 else "teacher"
            rates[name] |= {part.dropout.rate for part in trainer.model.modules() if isinstance(part, GPT | Block)}
    assert rates == {"teacher": {0.0}, "student": {0.1}}


@pytest.mark.parametrize(
    ("passes", "alone", "taught"), [(3, 0.0, 0.0), (5.5, 0.1, 0.0), (6.5, 0.1, 0.1), (12, 0.2, 0.1), (50, 0.2, 0.1)]
)
def test_a_student_has_less_dropout_than_a_model_alone(
    start: Start, passes: float, alone: float, taught: float
) -> None:
    """passes: of the student."""
    trainer = start("probe", dropout=None)
    steps = passes * len(trainer.task.train) / trainer.task.tokens_per_batch
    for name, share, expected in (("taught", 0.3, taught), ("alone", 0.0, alone)):
        run = start(name, steps=round(steps / (1 - share)), teacher=share, dropout=None)
        assert run.model.config.dropout == expected


def test_no_teacher_comes_where_its_predictions_would_fill_the_memory(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "measure", lambda *_: [Cost(precision="float32", attention="chunked", batch=1e-4)])
    text = reader.from_string("바람이 불고 비가 왔다. 아이는 우산을 썼다. " * 100)
    assert start("small", text=text, steps=None, minutes=1.0).config.teacher == TEACHER
    monkeypatch.setattr(planning, "PREDICTION_BYTES", 10**9)  # of each token
    assert start("large", text=text, steps=None, minutes=1.0).config.teacher == 0.0
    with pytest.raises(ConfigError, match=r"what the teacher predicts takes .* of memory at least.*leave out.*teacher"):
        start("asked", teacher=0.3)


def test_a_run_by_steps_has_no_teacher_of_its_own(start: Start) -> None:
    assert start(steps=100_000).config.teacher == 0.0


def test_the_limit_on_passes_is_that_of_the_student() -> None:
    task: Any = SimpleNamespace(least_steps=200, tokens_per_batch=10)
    alone, taught = (
        most_tokens(TrainConfig(minutes=1, passes=12, teacher=share), task, 10_000) for share in (0.0, 0.3)
    )
    assert alone == pytest.approx(120_000)
    assert 0.7 * taught == pytest.approx(120_000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": 1.0}, "teacher=1.0 is out of range"),
        ({"teacher": -0.1}, "teacher=-0.1 is out of range"),
        ({"teacher": float("nan")}, "teacher"),
        ({"teacher": 0.3, "task": "mlm"}, "applies to task=lm"),
    ],
)
def test_what_a_teacher_cannot_do_is_told(start: Start, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(JumokError, match=message):
        start(**settings)


def test_a_teacher_does_not_replace_given_parameters(start: Start, tmp_path: Path) -> None:
    start("first", steps=1).close()
    list(Trainer.resume(tmp_path / "first", device="cpu").run())
    with pytest.raises(ConfigError, match="begins anew"):
        Trainer.start(
            tmp_path / "second",
            "가나다라 마바사" * 100,
            training=TrainConfig(steps=1, teacher=0.3),
            init=tmp_path / "first",
        )
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
def test_the_command_says_that_a_second_model_begins(jumok: Jumok, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("옛날 옛적에 토끼와 거북이가 살았어요. " * 400, encoding="utf-8")
    size = ("--n-layer", "1", "--n-head", "1", "--n-embd", "16", "--context-length", "16", "--batch-size", "2")
    done = jumok("train", str(text), "--out", str(tmp_path / "run"), "--steps", "10", "--teacher", "0.5", *size)
    assert done.code == 0, done.err
    assert "a second model begins" in done.err
    assert "parameters of step 5" in done.err
