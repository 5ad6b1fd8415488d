"""Preferences: the loss of DPO, its reference, whole runs that go on after a stop, and what bad input is told."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from test_chat_task import PICKY
from torch import Tensor

import jumok
from conftest import TINY, Jumok, assert_same, events_of, only, run_until
from jumok.errors import ConfigError, ResumeError, RunError, TextError
from jumok.inference.chat import answer_chats
from jumok.interop.huggingface import to_hf
from jumok.models.gpt import GPT
from jumok.models.tensors import load_tensors
from jumok.runs.events import Eval, Finish, Notice
from jumok.text import Table, from_rows
from jumok.text.conversations import PREFERENCE_COLUMNS
from jumok.training.tasks.preference import Preference
from jumok.training.trainer import Trainer
from talking_models import talking

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # of transformers, about peft

SETTINGS: dict[str, Any] = {
    **{name: value for name, value in TINY.items() if name not in ("n_layer", "n_head", "n_embd", "context_length")},
    "task": "preference", "dropout": 0.0, "learning_rate": 3e-3,
}  # fmt: skip
WORDS = ["하나", "둘", "셋", "넷", "다섯", "여섯"]


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str, **more: str) -> dict[str, str]:
    return {"role": "assistant", "content": content, **more}


def row(asked: Sequence[dict[str, str]], chosen: str | dict[str, str], rejected: str) -> tuple[str, ...]:
    best = chosen if isinstance(chosen, dict) else assistant(chosen)
    return json.dumps(asked), json.dumps(best), json.dumps(assistant(rejected))


def table(rows: int = 30, *more: tuple[str, ...]) -> Table:
    """The next number is right, the one before is wrong."""
    found = [
        row([user(f"{WORDS[i % 6]} {i}")], f"{WORDS[(i + 1) % 6]}!", f"{WORDS[(i - 1) % 6]}? " * (1 + i % 2))
        for i in range(rows)
    ]
    return from_rows(PREFERENCE_COLUMNS, [*found, *more])


def begin(folder: Path, pairs: Table | None = None, *, init: Path | None = None, **settings: Any) -> Trainer:
    """Begin a tiny run in folder/run from the model in folder/init, which is made if it is not there."""
    if init is None and not (folder / "init").exists():
        jumok.save(talking(), folder / "init")
    out = settings.pop("out", "run")
    given = {**SETTINGS, **settings}
    return Trainer.start(folder / out, pairs or table(), **given, init=init or folder / "init", device="cpu")


def literal(model: GPT, asked: Sequence[dict[str, str]], answer: dict[str, str]) -> float:
    """The log-probability of an answer with the end of its turn, id by id."""
    assert model.tokenizer is not None
    template = model.tokenizer.chat
    assert template is not None
    prompt = template.encode(asked)
    whole = template.encode([*asked, answer], add_generation_prompt=False)
    end = len(whole) - whole[::-1].index(model.tokenizer.special_tokens["<|end|>"])
    with torch.no_grad():
        chances = model(torch.tensor([whole[: end - 1]])).log_softmax(-1)[0]
    return sum(float(chances[place - 1, whole[place]]) for place in range(len(prompt), end))


def ids_of(model: GPT, asked: Sequence[dict[str, str]], answer: dict[str, str]) -> int:
    """How many ids an answer has, the end of its turn included."""
    assert model.tokenizer is not None
    content = answer.get("reasoning_content")
    thought = [*model.tokenizer.encode(content)] if content else []
    return len(thought) + 2 * bool(thought) + len(model.tokenizer.encode(answer["content"])) + 1


def pairs_of(material: Table) -> list[list[Any]]:
    return [[json.loads(cell) for cell in cells] for cells in material.rows]


# --- the loss ---------------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_the_paper(tmp_path: Path) -> None:
    """Equation 7, each answer by itself, in float64; also with turns before, reasoning, and several passes a step."""
    before = [user("하나"), assistant("둘"), user("셋")]
    more = [row(before, assistant("넷", reasoning_content="셋 다음"), "둘")] * 3
    trainer = begin(tmp_path, pairs := table(9, *more), beta=0.3, val=0.0, batch_size=1)
    start, now, task = jumok.load(tmp_path / "init"), trainer.model, trainer.task
    assert isinstance(start, GPT)
    assert isinstance(now, GPT)
    assert isinstance(task, Preference)
    start.double(), now.double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in now.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    answers = [(asked, one) for asked, *both in pairs_of(pairs) for one in both]
    ours, theirs = (
        torch.tensor([literal(m, *one) for one in answers], dtype=torch.float64).view(-1, 2) for m in (now, start)
    )
    assert_close(task.reference["train"], theirs.float(), atol=1e-4)
    task.reference = {"train": theirs}
    ratios = (ours - theirs).exp()
    expected = -(0.3 * ratios[:, 0].log() - 0.3 * ratios[:, 1].log()).sigmoid().log()
    found = {}
    for number in range(task.batches.count):
        rows = task.batches.rows(number).tolist()
        parts = task.parts(number)
        found[number] = torch.stack([torch.stack(task.loss_sums(now, part)) for part in parts]).sum(dim=0)
        assert_close(found[number][0], expected[rows].sum(), atol=1e-9)
        assert_close(found[number][2], (0.3 * (ours - theirs)[rows] @ torch.tensor([1.0, -1.0]).double()).sum(), 1e-9)
        assert_close(found[number][3:], (ours - theirs)[rows].sum(dim=0), atol=1e-9)
        counts = torch.tensor([task.counts(part) for part in parts]).sum(dim=0)
        lengths = [ids_of(now, *one) for one in answers]
        assert counts.tolist()[3:] == [sum(lengths[2 * one + side] for one in rows) for side in (0, 1)]
    assert any(len(task.parts(number)) > 1 for number in found)


def assert_close(found: Tensor, expected: Tensor, atol: float) -> None:
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def test_nothing_has_changed_at_the_beginning(tmp_path: Path) -> None:
    """All margins are 0 and the loss is ln 2, also where a row of a batch is padded."""
    events = list(begin(tmp_path, steps=2, eval_every=1).run())
    first = next(event for event in events_of(tmp_path / "run") if event["event"] == "step")
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    drifts = [first[name] for name in ("margin", "drift_chosen", "drift_rejected")]
    assert drifts == pytest.approx([0.0, 0.0, 0.0], abs=1e-5)  # rounding
    assert only(events, Eval)[-1].figures["loss"] < math.log(2) - 0.01


def test_a_run_learns_what_is_preferred(tmp_path: Path) -> None:
    events = list(begin(tmp_path, table(60), steps=60, eval_every=30, beta=0.5).run())
    end = only(events, Finish)[0]
    assert end.figures["accuracy"] == 1.0
    assert end.figures["drift_rejected"] < -0.5
    assert end.figures["drift_chosen"] - end.figures["drift_rejected"] > 1
    assert "drift" in end.headline
    model = jumok.load(tmp_path / "run")
    assert isinstance(model, GPT)
    start = jumok.load(tmp_path / "init")
    assert isinstance(start, GPT)
    [asked, chosen, rejected] = pairs_of(table(60))[59]
    gained = [literal(model, asked, one) - literal(start, asked, one) for one in (chosen, rejected)]
    assert gained[0] - gained[1] > 1
    assert answer_chats(model, [asked], tokens=8)


# --- long prompts -----------------------------------------------------------------------------------------------------


def test_both_answers_follow_the_same_turns(tmp_path: Path) -> None:
    """The turns that the longer answer has no room for are gone for the shorter one, too."""
    turns = [one for i in range(4) for one in (user(f"나는 학교에 갔다 {i}"), assistant("친구와 집에 왔다"))]
    asked = [{"role": "system", "content": "하나"}, *turns, user("집에?")]
    pairs = table(4, row(asked, "왔다", "그리고 친구와 " * 4))
    trainer = begin(tmp_path, pairs, val=0.0, batch_size=1)
    task = trainer.task
    assert isinstance(task, Preference)
    tokenizer = trainer.model.tokenizer
    assert tokenizer is not None
    chosen, rejected = (tokenizer.decode(task.pairs.inputs[row].tolist()) for row in (8, 9))
    opening = "<|assistant|>\n"
    assert chosen.rpartition(opening)[0] == rejected.rpartition(opening)[0]
    assert chosen.startswith("<|system|>\n하나<|end|>\n<|user|>\n나는 학교에 갔다")
    assert "갔다 0" not in chosen
    assert "갔다 3" in chosen
    assert any("lost turns at their beginning, to fit: 1" in text for text in task.notices)


def test_a_template_may_write_earlier_answers_in_another_way(tmp_path: Path) -> None:
    """Only the last answers are compared; rows of several turns were refused with Qwen3's template."""
    jumok.save(talking(template=PICKY), tmp_path / "init")
    turns = [user("하나 둘?"), assistant("셋 넷", reasoning_content="하나"), user("다섯?")]
    refused = [{"role": "system", "content": "친구"}, user("하나 둘?")]
    trainer = begin(tmp_path, table(4, row(turns, "여섯!", "넷?"), row(refused, "셋!", "하나!")), val=0.0)
    task = trainer.task
    assert isinstance(task, Preference)
    assert (task.data["train_rows"], task.data["left_out"]) == (5, 0)
    assert [*task.data["refused"].values()] == [1]
    texts = [task.tokenizer.decode(task.pairs.inputs[place].tolist()) for place in (8, 9)]
    assert [text.count("<think>") for text in texts] == [1, 1]
    learned = [task.pairs.targets[place] for place in (8, 9)]
    assert [task.tokenizer.decode(ids[ids >= 0].tolist()) for ids in learned] == [
        "<think></think>여섯!<|end|>", "<think></think>넷?<|end|>"
    ]  # fmt: skip


def test_pairs_that_do_not_fit(tmp_path: Path) -> None:
    long = row([user("나는 " * 60)], "하나", "둘")
    trainer = begin(tmp_path, table(9, long), val=0.0)
    assert trainer.task.data["train_rows"] == 9
    assert "Rows left out, because they are too long: 1." in trainer.task.notices
    trainer.close()
    with pytest.raises(TextError, match="no pair fits into context_length=128"):
        begin(tmp_path, from_rows(PREFERENCE_COLUMNS, [long] * 4), val=0.0, out="other")
    assert not (tmp_path / "other").exists()


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [None, 2])
def test_a_stopped_run_ends_in_the_same_bits(tmp_path: Path, lora: int | None) -> None:
    """Also after the model that it began with is gone, and where a step takes several passes."""
    settings = {"lora": lora, "batch_size": 1, "steps": 6, "eval_every": 2}
    list(begin(tmp_path, out="whole", **settings).run())
    run_until(begin(tmp_path, **settings), 3)
    shutil.rmtree(tmp_path / "init")
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_the_reference_of_adapters_is_the_model_without_them(tmp_path: Path) -> None:
    begin(tmp_path, out="plain").close()
    trainer = begin(tmp_path, lora=2, steps=4, learning_rate=0.05)
    files = [tmp_path / out / "state" / "reference.safetensors" for out in ("run", "plain")]
    ours, plain = map(load_tensors, files)
    assert all(torch.equal(ours[part], plain[part]) for part in ("train", "val"))
    assert only(list(trainer.run()), Eval)[-1].figures["drift_rejected"] < -0.01


def test_a_model_of_transformers(tmp_path: Path) -> None:
    """Its own chat template and tokens stay."""
    model = talking()
    assert model.tokenizer is not None
    to_hf(model, tmp_path / "stock")
    list(begin(tmp_path, init=tmp_path / "stock", steps=2, eval_every=2).run())
    tuned = jumok.load(tmp_path / "run")
    assert tuned.tokenizer is not None
    assert tuned.tokenizer.chat_templates == model.tokenizer.chat_templates
    assert tuned.tokenizer.special_tokens == model.tokenizer.special_tokens


def test_the_command_line(jumok: Jumok, tmp_path: Path) -> None:
    import jumok as package

    package.save(talking(), tmp_path / "init")
    lines = [
        {"prompt": asked[0]["content"], "chosen": chosen["content"], "rejected": rejected["content"]}
        for asked, chosen, rejected in pairs_of(table(30))
    ]
    lines.append({**lines[0], "rejected": lines[0]["chosen"]})
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    options = ("--init", tmp_path / "init", "--steps", "3", "--out", tmp_path / "run", "--beta", "0.2", "--lora", "2")
    end = jumok("train", tmp_path / "pairs.jsonl", "--task", "preference", *options)
    assert end.code == 0, end.err
    assert "chosen and rejected are the same (1, first in" in end.err
    assert "drift" in end.err
    assert jumok("chat", tmp_path / "run", stdin="하나\n").code == 0


# --- bad input --------------------------------------------------------------------------------------------------------


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="trains a model that answers already: name one with init=RUN"):
        Trainer.start(tmp_path / "run", table(), task="preference", device="cpu")
    jumok.save(talking(template=None), tmp_path / "mute")
    with pytest.raises(ConfigError, match="no chat template"):
        begin(tmp_path, init=tmp_path / "mute")
    with pytest.raises(ConfigError, match="beta=0 makes all models equally good"):
        begin(tmp_path, beta=0.0)
    with pytest.raises(TextError, match="nothing is left to hold out"):
        begin(tmp_path, table(3))
    with pytest.raises(ConfigError, match="reward"):
        begin(tmp_path, reward="checks")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_reference_that_is_gone_or_changed(tmp_path: Path, damage: str) -> None:
    begin(tmp_path).close()
    file = tmp_path / "run" / "state" / "reference.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink() if damage == "gone" else file.write_bytes(content)
    with pytest.raises(RunError, match=r"reference\.safetensors, which belongs to the model that the run began with"):
        Trainer.resume(tmp_path / "run", device="cpu")


def test_a_model_that_is_not_finite(tmp_path: Path) -> None:
    """Its log-probabilities would be a reference without a meaning."""
    model = talking()
    model.norm.weight.data[0] = math.nan
    jumok.save(model, tmp_path / "init")
    with pytest.raises(jumok.JumokError, match="finite"):
        begin(tmp_path)
    assert not (tmp_path / "run").exists()


def test_another_beta_is_refused(tmp_path: Path) -> None:
    begin(tmp_path).close()
    with pytest.raises(ResumeError, match="beta"):
        Trainer.resume(tmp_path / "run", beta=0.5, device="cpu")


def test_without_a_held_out_part(tmp_path: Path) -> None:
    events = list(begin(tmp_path, val=0.0, steps=2).run())
    assert not only(events, Eval)
    assert not [one for one in only(events, Notice) if "No validation" in one.text]
