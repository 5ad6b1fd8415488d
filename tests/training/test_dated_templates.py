"""Chat templates that write today's date: what a run trains on and compares has the date of its start."""

from __future__ import annotations

import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

import jumok
from conftest import TINY, assert_same, only, run_until
from jumok.models.gpt import GPT
from jumok.runs.events import Eval
from jumok.text import Table, from_rows
from jumok.text.conversations import PREFERENCE_COLUMNS, from_conversations
from jumok.tokenizers import ChatTemplate
from jumok.training.tasks.preference import Preference
from jumok.training.trainer import Trainer
from talking_models import TEMPLATE, talking

DATED = "<|system|>\n{{ strftime_now('%m') }} {{ strftime_now('%d') }}<|end|>\n" + TEMPLATE
SETTINGS: dict[str, Any] = {
    **{name: value for name, value in TINY.items() if name not in ("n_layer", "n_head", "n_embd", "context_length")},
    "dropout": 0.0, "steps": 6, "eval_every": 2, "learning_rate": 3e-3,
}  # fmt: skip
OF_REWARD = {"reward": "re:.*", "prompts_per_step": 3, "answers_per_prompt": 4}
TASKS = pytest.mark.parametrize("task", ["chat", "preference", "reward"])
ROWS = 30


class Clock(datetime):
    """A clock of `datetime` that shows a given day, and moves on by `step` days whenever it is looked at."""

    day, step = 1, 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        Clock.day += cls.step
        return cls(2026, 1 + Clock.day // 28, 1 + Clock.day % 28)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(Clock, "day", 1)
    monkeypatch.setattr(Clock, "step", 0)
    for module in ("jumok.tokenizers._chat", "jumok.training.tasks.stored_rows"):
        monkeypatch.setattr(f"{module}.datetime", Clock)
    return Clock


def dated() -> GPT:
    return talking(template=DATED)


def table(task: str) -> Table:
    asked = [[{"role": "user", "content": f"하나 {number}"}] for number in range(ROWS)]
    if task == "preference":
        sides = [json.dumps({"role": "assistant", "content": answer}) for answer in ("둘!", "셋?")]
        return from_rows(PREFERENCE_COLUMNS, [(json.dumps(one), *sides) for one in asked])
    right = {"role": "assistant", "content": "둘 셋 넷"}
    return from_conversations([{"messages": [*one, right]} for one in asked])


def begin(folder: Path, task: str, out: str = "run") -> Trainer:
    if not (folder / "init").exists():
        jumok.save(dated(), folder / "init")
    settings = {**SETTINGS, **(OF_REWARD if task == "reward" else {})}
    return Trainer.start(folder / out, table(task), task=task, init=folder / "init", device="cpu", **settings)


def test_a_date_that_turns_while_a_chat_is_encoded(clock: type[Clock]) -> None:
    """The template is rendered several times for a chat; with two dates it was refused, and with it the whole run."""
    tokenizer = dated().tokenizer
    assert tokenizer is not None
    template = tokenizer.chat
    assert template is not None
    chat = [{"role": "user", "content": "<|end|> 하나"}, {"role": "assistant", "content": "둘"}] * 2
    expected = template.encode_whole(chat)
    clock.day, clock.step = 0, 1
    assert template.encode_whole(chat) == expected
    assert clock.day == 1
    later = template.encode(chat[:1])
    assert tokenizer.decode(later).startswith("<|system|>\n01 03")


@pytest.mark.slow
@TASKS
def test_a_run_that_is_resumed_on_another_day(tmp_path: Path, clock: type[Clock], task: str) -> None:
    """The reference of preferences was of the first day, and held-out pairs of the second: false margins.

    Held-out questions and the prompts of rewards were those of another day, too.
    """
    list(begin(tmp_path, task, "whole").run())
    run_until(begin(tmp_path, task), 3)
    clock.day = 5
    list(Trainer.resume(tmp_path / "run", reward=None, device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")
    other = begin(tmp_path, task, "other")  # the date is in what is learned
    assert other.task.data["time"] == "2026-01-06T00:00:00"
    assert any(
        file.read_bytes() != (tmp_path / "other" / "state" / file.name).read_bytes()
        for file in (tmp_path / "whole" / "state").glob("train-*.npy")
    ) == (task != "reward")


@pytest.mark.slow
@TASKS
def test_days_that_pass_in_a_run(tmp_path: Path, clock: type[Clock], task: str) -> None:
    whole = begin(tmp_path, task, "whole")
    list(whole.run())
    trainer = begin(tmp_path, task)
    clock.step = 1
    list(trainer.run())
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_margins_are_those_of_the_model(tmp_path: Path, clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    """On the second day a model that had learned nothing had an accuracy of 0.667.

    Held-out pairs are stored as ids, as the reference is: another version may encode them in another way.
    """
    trainer = begin(tmp_path, "preference")
    assert isinstance(trainer.task, Preference)
    trainer.close()
    clock.day = 9
    monkeypatch.setattr(ChatTemplate, "_encoded", None)
    again = Trainer.resume(tmp_path / "run", device="cpu")
    assert isinstance(again.model, GPT)
    again.model.eval()
    assert abs(again.task.validate(again.model, 10**6)["margin"]) < 1e-5
    again.close()


@pytest.mark.slow
def test_a_template_without_a_date_has_no_time(tmp_path: Path) -> None:
    jumok.save(talking(), tmp_path / "init")
    trainer = begin(tmp_path, "preference")
    assert trainer.task.data["time"] is None
    assert only(list(trainer.run()), Eval)
