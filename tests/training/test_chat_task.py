"""Learning from conversations: packing and mask, loss, figures, a whole run, and what bad conversations are told."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_runs import exact_norm
from torch.nn import functional as F

import jumok
from conftest import Jumok, loss_of
from jumok.config import BERTConfig, GPTConfig
from jumok.data.packing import PADDING
from jumok.errors import ConfigError, RunError, TextError
from jumok.evaluation.chat import encode_chat
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.models.losses import IGNORED
from jumok.nn.layers import RMSNorm
from jumok.runs.events import Eval, Notice, Sample
from jumok.runs.folder import RunFolder
from jumok.runs.load import load, save
from jumok.text import Table, from_rows
from jumok.text.conversations import COLUMNS, from_conversations, messages_of
from jumok.tokenizers import ChatTemplate, Tokenizer, train_tokenizer, with_chat
from jumok.training.tasks.chat import Chat
from jumok.training.trainer import Trainer
from talking_models import talking
from talks import said, talks
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import processors

pytestmark = pytest.mark.slow

Begin = Callable[..., Trainer]
EXTRA = ("val_text", "tokenizer", "tokenizer_options", "init")  # of what `begin` takes, no settings
TINY: dict[str, Any] = {
    "task": "chat", "n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 64, "batch_size": 4, "steps": 8,
    "eval_every": 4, "sample_tokens": 8, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.0,
    "attention": "chunked",
}  # fmt: skip


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Begin a tiny run in tmp_path/run; settings go before those of TINY, and None takes one away."""

    def start(out: str = "run", table: Table | None = None, **settings: Any) -> Trainer:
        options = {name: settings.pop(name) for name in EXTRA if name in settings}
        given = {name: value for name, value in {**TINY, **settings}.items() if value is not None}
        return Trainer.start(tmp_path / out, talks() if table is None else table, **given, device="cpu", **options)

    return start


def task_of(trainer: Trainer) -> Chat:
    assert isinstance(trainer.task, Chat)
    return trainer.task


def model_of(trainer: Trainer) -> GPT:
    assert isinstance(trainer.model, GPT)
    return trainer.model


def notices_of(trainer: Trainer) -> str:
    return "\n".join(event.text for event in trainer.run() if isinstance(event, Notice))


def another_model(path: Path, *, config: type[Any] = GPTConfig, **changes: Any) -> Path:
    """A model without a chat template, whose tokenizer knows Korean."""
    special = ("[PAD]", "[CLS]", "[SEP]", "[MASK]") if config is BERTConfig else ()
    tokenizer = train_tokenizer(
        "수를 읽어 줘. 영일이삼사오육칠팔구 자리 0123456789\n" * 3, "char", special_tokens=special
    )
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 64, **changes}
    model = build(config(vocab_size=tokenizer.vocab_size, **shape)).eval()
    model.tokenizer = tokenizer
    save(model, path)
    return path


# --- batches and loss ---


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_packed_conversations_have_the_loss_and_the_gradient_of_each_by_itself(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """A conversation sees nothing of the others in its row, and its positions begin at 0."""
    monkeypatch.setattr(RMSNorm, "forward", exact_norm)
    trainer = begin(family=family, val=0.0, batch_size=1, context_length=96)
    trainer.model.double()
    task, model = task_of(trainer), model_of(trainer)
    assert len(task.packed.inputs) < len(talks()) / 1.4  # several in a row

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    packed = sum(task.loss_sums(model, task.batch(number))[0] for number in range(len(task.packed.inputs)))
    count = sum(task.counts(task.batch(number))[0] for number in range(len(task.packed.inputs)))
    alone, tokens = torch.zeros((), dtype=torch.float64), 0
    assert task.tokenizer.chat is not None
    for row in talks().rows:
        ids, answers = map(torch.tensor, task.tokenizer.chat.encode_whole(messages_of(row[0])))
        logits = model(ids[None, :-1])[0]
        wanted = torch.where(answers, ids, IGNORED)[1:]
        alone = alone + F.cross_entropy(logits, wanted, ignore_index=IGNORED, reduction="sum")
        tokens += int(answers[1:].sum())
    assert count == tokens == task.data["answer_tokens"]
    torch.testing.assert_close(packed, alone, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient(packed), gradient(alone), rtol=1e-9, atol=1e-12)


def test_only_answers_are_learned(begin: Begin) -> None:
    """Reasoning and the end of the turn belong to an answer; what the user and the system say does not."""
    rows = [[*said("하나?", "둘.", system="셋")], [*said("넷?", "다섯.", "여섯?", "일곱.")]]
    rows[0][-1]["reasoning_content"] = "여덟"
    task = task_of(begin(table=from_conversations(rows * 2), val=0.0, batch_size=1))
    learned = []
    for number in range(len(task.packed.inputs)):
        inputs, targets, segments = task.batch(number)
        assert inputs.shape == targets.shape == segments.shape == (1, 64)
        assert ((segments == PADDING) <= (targets == IGNORED)).all()
        for segment in range(int(segments.max()) + 1):
            own = targets[(segments == segment) & (targets != IGNORED)].tolist()
            learned.append([task.tokenizer.pieces([token])[0] for token in own])
    expected = ["<think>여덟</think>둘.<|end|>", "다섯.<|end|>일곱.<|end|>"]
    assert sorted("".join(one) for one in learned) == sorted(expected * 2)


def test_the_loss_of_a_step_is_that_of_all_its_answers(begin: Begin) -> None:
    """Each token of an answer counts the same, in whatever row it is."""
    trainer = begin(batch_size=3)
    batch = task_of(trainer).batch(0)
    rows = [tuple(part[i : i + 1] for part in batch) for i in range(3)]
    counts = [task_of(trainer).counts(row)[0] for row in rows]
    weighted = sum(count * float(loss_of(trainer, *row).detach()) for count, row in zip(counts, rows, strict=True))
    assert float(loss_of(trainer, *batch).detach()) == pytest.approx(weighted / sum(counts), rel=1e-5)


def test_an_epoch_reads_each_row_once(begin: Begin) -> None:
    task = task_of(begin(batch_size=3))
    count = len(task.packed.inputs)
    rows = [row for number in range(2 * count) for row in task.batches.rows(number)]
    assert [sorted(rows[i : i + count]) for i in range(0, 6 * count, count)] == 6 * [list(range(count))]
    assert rows[:count] != rows[count : 2 * count]


# --- a run ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A finished run, and its events."""
    out = tmp_path_factory.mktemp("chat") / "run"
    settings = {**TINY, "steps": 40, "eval_every": 20, "learning_rate": 0.01, "batch_size": 8, "n_embd": 32}
    return out, list(Trainer.start(out, talks(160), **settings, device="cpu").run())


def test_a_run_learns(run: tuple[Path, list[Any]]) -> None:
    out, events = run
    first, *_, last = [event.figures["nats_per_char"] for event in events if isinstance(event, Eval)]
    assert last < first / 1.2
    metrics = RunFolder.open(out).read_config()["metrics"]
    assert {"nats_per_char", "exact_match", "checks", "nearest_checks", "baseline_exact_match"} <= metrics.keys()


def test_a_sample_shows_the_conversation_and_both_answers(run: tuple[Path, list[Any]]) -> None:
    samples = [event.text for event in run[1] if isinstance(event, Sample)]
    held_out = json.loads((run[0] / "state" / "val.jsonl").read_text(encoding="utf-8").split("\n")[0])
    last = messages_of(held_out[0])
    assert all(f"user: {last[-2]['content']}" in sample for sample in samples)
    assert all(sample.endswith(f"target: {last[-1]['content']}") for sample in samples)


def test_what_is_trained_loads_and_answers(run: tuple[Path, list[Any]]) -> None:
    model = load(run[0])
    assert model.tokenizer.chat.is_own
    assert model.config.eos_ids == (model.tokenizer.special_tokens["<|end|>"],)  # for all other programs
    [[answer]] = jumok.inference.chat.answer_chats(model, [said("12을 읽어 줘.")], tokens=20)
    assert answer.finish in ("stop", "length")


def test_the_packing_is_told(begin: Begin) -> None:
    trainer = begin()
    data = trainer.task.data
    told = notices_of(trainer)
    full = (data["train_tokens"] - data["train_rows"]) / (64 * data["packed_rows"])
    assert full > 0.85
    assert f"{full:.1%} of the positions hold a token" in told
    assert f"{data['answer_tokens'] / (64 * data['packed_rows']):.1%} have a loss" in told


def test_rows_of_each_skill_are_held_out(begin: Begin) -> None:
    """The last rows of a table that is sorted by skill have one skill."""
    rows = sorted(talks().rows, key=lambda row: row[1])
    task = task_of(begin(table=from_rows(COLUMNS, rows), val=0.25))
    assert sorted([*task.train, *task.held_out]) == sorted(rows)
    assert len(task.held_out) == 20
    skills = [Counter(row[1] for row in part) for part in (task.train, task.held_out)]
    assert abs(skills[0]["long"] / skills[0].total() - skills[1]["long"] / skills[1].total()) < 0.05
    assert task_of(begin("other", val=0.0)).held_out == []
    own = [(messages, str(number), checks) for number, (messages, _, checks) in enumerate(rows)]
    assert len(task_of(begin("ids", table=from_rows(COLUMNS, own), val=0.25)).held_out) == 20, "each has its own skill"
    assert task_of(begin("file", val_text=talks(7, seed=2))).held_out == talks(7, seed=2).rows


def test_the_tokenizer_learns_from_the_training_part_alone(begin: Begin) -> None:
    rows, held_out = [said(f"{n}?", "네.") for n in range(18)], [said("쀍?", "쀍.")]
    tokenizer = task_of(begin(table=from_conversations(rows), val_text=from_conversations(held_out))).tokenizer
    assert len(tokenizer.encode("쀍")) > 1
    assert len(tokenizer.encode("네")) == 1


def test_a_conversation_is_in_the_part_of_those_that_go_on_after_it(begin: Begin) -> None:
    """Some files hold a row for each turn; the answer of a held-out row would be learned in the longer ones."""
    talk = [[f"{number} 하나?", "둘.", f"{number} 셋?", "넷.", "다섯?", "여섯."] for number in range(40)]
    rows = [said(*one[:end]) for one in talk for end in (6, 2, 4)]
    rows += [said(f"{number} 하나?", "다른 답.") for number in range(40)]
    task = task_of(begin(table=from_conversations(rows)))
    learned, asked = ({messages_of(row[0])[0]["content"] for row in part} for part in (task.train, task.held_out))
    assert len(task.held_out) == 16
    assert not learned & asked


# --- from another model ---


@pytest.mark.parametrize("lora", [None, 2])
def test_a_model_that_writes_learns_to_answer(begin: Begin, tmp_path: Path, lora: int | None) -> None:
    init = another_model(tmp_path / "init")
    sizes = dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    rates = {"learning_rate": 0.02} if lora else {}
    trainer = begin(init=init, lora=lora, **sizes, **rates)
    old, new = load(init), model_of(trainer)
    count = old.tokenizer.vocab_size
    assert new.config.vocab_size == count + 6
    assert torch.equal(new.token_embedding.weight[:count], old.token_embedding.weight)
    mean = old.token_embedding.weight.mean(0)
    torch.testing.assert_close(new.token_embedding.weight[count:], mean.expand(6, -1))
    losses = [event.figures["loss"] for event in trainer.run() if isinstance(event, Eval)]
    assert losses[-1] < losses[0]
    assert load(tmp_path / "run").tokenizer.chat.is_own


def test_a_model_with_a_template_keeps_it(begin: Begin, tmp_path: Path) -> None:
    sizes = dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    list(begin().run())
    trainer = begin("next", init=tmp_path / "run", **sizes)
    assert model_of(trainer).config == load(tmp_path / "run").config
    assert model_of(trainer).tokenizer.to_json() == load(tmp_path / "run").tokenizer.to_json()


def test_the_ends_of_another_model_remain(begin: Begin, tmp_path: Path) -> None:
    init = another_model(tmp_path / "init", eos_ids=(3,))
    model = model_of(begin(init=init, **dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))))
    assert model.tokenizer is not None
    assert model.config.eos_ids == (model.tokenizer.special_tokens["<|end|>"], 3)


def test_reasoning_that_a_template_cannot_write_is_left_out(begin: Begin, tmp_path: Path) -> None:
    """The template of a published model writes no reasoning; a check of the result needs none."""
    model = load(another_model(tmp_path / "init"))
    tokenizer = with_chat(model.tokenizer)
    tokenizer.chat_templates = {
        "default": "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    }
    model.tokenizer = tokenizer
    model.config = dataclasses.replace(model.config, vocab_size=tokenizer.vocab_size)
    grown = build(model.config).eval()
    grown.tokenizer = tokenizer
    save(grown, tmp_path / "grown")
    trainer = begin(
        init=tmp_path / "grown", batch_size=1, **dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    )
    task = task_of(trainer)
    texts = "".join(task.tokenizer.decode(task.batch(n)[0][0].tolist()) for n in range(len(task.packed.inputs)))
    assert "자리" in str(talks().rows)
    assert "자리" not in texts
    assert "writes no reasoning" in notices_of(trainer)


# As of Qwen3, which leaves out the reasoning of earlier answers, and of Gemma, which refuses a system message.
PICKY = """\
{% set last = namespace(user=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}
{%- endif %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% endfor %}
{%- for m in messages %}{{ '<|' + m.role + '|>' }}{% if m.role == 'assistant' and loop.index0 > last.user %}
{{- '<think>' + (m.reasoning_content or '') + '</think>' }}{% endif %}{{ m.content + '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


def test_rows_that_a_template_refuses_are_left_out_and_counted(begin: Begin, tmp_path: Path) -> None:
    """One of them stopped the whole file, and no row was named."""
    jumok.save(talking(template=PICKY), tmp_path / "init")
    shape = dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    with_reasoning = said("하나?", "둘!")
    with_reasoning[-1]["reasoning_content"] = "하나 둘"
    rows = [*(said(f"{number}?", "하나!") for number in range(20)), with_reasoning]
    unusable = [said(f"{number}?", "하나!", "다섯?", "여섯!") for number in range(3)]
    unusable.append(said("하나?", "셋!", system="친구"))
    trainer = begin(table=from_conversations([*rows, *unusable]), init=tmp_path / "init", val=0, **shape)
    task = task_of(trainer)
    assert len(task.train) == len(rows)
    assert (task.data["left_out"], sorted(task.data["refused"].values())) == (0, [1, 3])
    texts = "".join(task.tokenizer.decode(ids.tolist()) for ids in task.packed.inputs)
    assert "<think>하나 둘</think>둘!" in texts
    told = notices_of(trainer)
    assert "Rows left out: 3, because the chat template of this model writes the beginning" in told
    assert (
        "Rows left out: 1, because the chat template of this model cannot be used: System role not supported." in told
    )
    found = jumok.evaluate(load(tmp_path / "init"), from_conversations([*rows, *unusable]))
    assert (found.rows, found.left_out, found.refused) == (len(rows), 0, 4)
    for name, table in (("a", from_conversations(unusable)), ("b", from_conversations(unusable[3:]))):
        with pytest.raises(TextError, match=rf"none of {len(table)} rows can be used.*not supported.*\(1\)"):
            begin(name, table=table, init=tmp_path / "init", val=0, **shape)
        with pytest.raises(TextError, match=rf"none of {len(table)} rows can be used"):
            jumok.evaluate(load(tmp_path / "init"), table)


def test_rows_are_no_longer_than_conversations_need(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A published model reads 32,768 tokens, and rows of that length would take hours."""
    monkeypatch.setattr("jumok.data.packing.ROW_LENGTH", 60)
    long = task_of(begin(context_length=512, batch_size=2))
    longest = max(len(long.tokenizer.chat.encode_whole(messages_of(row[0]))[0]) for row in long.train)  # type: ignore[union-attr]
    assert long.batch(0)[0].shape == (2, max(60, longest - 1))


def test_a_classifier_becomes_a_model_that_answers(begin: Begin, tmp_path: Path) -> None:
    init = another_model(tmp_path / "init", labels=("가", "나"))
    sizes = dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    assert model_of(begin(init=init, **sizes)).config.labels == ()


def test_a_bert_cannot_answer(begin: Begin, tmp_path: Path) -> None:
    sizes = dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length"))
    with pytest.raises(
        ConfigError, match=r"which this task does not train; choose a task of it with task: mlm, classify\."
    ):
        begin(init=another_model(tmp_path / "init", config=BERTConfig), **sizes)
    assert not (tmp_path / "run").exists()


def test_a_template_whose_answers_cannot_be_told_is_refused(begin: Begin, tmp_path: Path) -> None:
    model = load(another_model(tmp_path / "init"))
    model.tokenizer.chat_templates = {"default": "{% for m in messages %}{{ m.content | upper }}{% endfor %}"}
    save(model, tmp_path / "init")
    with pytest.raises(TextError, match=r"none of 72 rows can be used.*answers cannot be told from the rest"):
        begin(init=tmp_path / "init", **dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length")))
    assert not (tmp_path / "run").exists()


# --- bad material ---


def test_long_conversations_lose_whole_turns_from_the_front(begin: Begin) -> None:
    """The system message stays. A conversation whose last question and answer are too long is left out."""
    whole = said(*("처음 물음?", "처음 대답.") * 6, "끝 물음?", "끝.", system="지시")
    rows = [whole, said("가" * 70, "나"), said("가" * 40, "나" * 40), *[said("네?", "네.")] * 15]
    trainer = begin(table=from_conversations(rows), val_text=from_conversations([said("네?", "네.")] * 2))
    task = task_of(trainer)
    assert (task.data["left_out"], task.data["cut"], task.data["train_rows"]) == (2, 1, 16)
    assert task.tokenizer.chat is not None
    found = encode_chat(task.tokenizer.chat, whole, 64)
    assert found is not None
    assert 1 < len(found.messages) < len(whole)
    assert found.messages[0] == whole[0]
    assert list(found.messages[1:]) == whole[-len(found.messages) + 1 :]
    assert found.messages[1]["role"] == "user"
    longer = [whole[0], *whole[-len(found.messages) - 1 :]]
    assert len(found.text[0]) <= 65 < len(task.tokenizer.chat.encode_whole(longer)[0])
    told = notices_of(trainer)
    assert "left out, because they are too long: 2." in told
    assert "lost turns at their beginning, to fit: 1." in told


def test_no_conversation_that_fits(begin: Begin, tmp_path: Path) -> None:
    rows = [said("가" * 70, "나" * 5)] * 20
    with pytest.raises(
        TextError, match=r"none of 18 conversations fits into context_length=64.*a longer context_length"
    ):
        begin(table=from_conversations(rows))
    assert not (tmp_path / "run").exists()


def test_a_conversation_of_many_turns(begin: Begin) -> None:
    """Twenty thousand turns once would have taken memory with their square."""
    rows = [said(*["가", "나"] * 10_000), *[said("네?", "네.")] * 19]
    task = task_of(begin(table=from_conversations(rows), val=0.1))
    assert task.data["cut"] == 1


def test_nothing_left_to_hold_out(begin: Begin) -> None:
    with pytest.raises(TextError, match=r"nothing is left to hold out: val=0\.1 of 3 rows"):
        begin(table=talks(3))


def test_another_table_is_refused(begin: Begin) -> None:
    with pytest.raises(TextError, match="messages"):
        begin(table=from_rows(("source", "target"), [("가", "나")] * 20))


def test_a_check_that_cannot_be_used_is_told_before_the_first_step(begin: Begin, tmp_path: Path) -> None:
    rows = [{"messages": said("네?", "네."), "checks": ["네[.]"]}] * 19
    held_out = from_conversations([{"messages": said("아?", "네."), "checks": ["(네"]}])
    with pytest.raises(TextError, match=r"the check '\(네' cannot be used"):
        begin(table=from_conversations(rows), val_text=held_out)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["", '["a", 2, ""]\n', '["a", "b"\n'])
def test_damaged_held_out_conversations_are_reported(begin: Begin, tmp_path: Path, damage: str) -> None:
    begin()
    (RunFolder.open(tmp_path / "run").state / "val.jsonl").write_text(damage, encoding="utf-8")
    with pytest.raises(RunError, match=r"val\.jsonl"):
        Trainer.resume(tmp_path / "run", device="cpu")


@pytest.mark.parametrize("kind", ["jamo", "bpe"])
def test_other_tokenizers(begin: Begin, kind: str) -> None:
    """The mask is right for tokens of several characters and characters of several tokens."""
    options = {"tokenizer_options": {"vocab_size": 300}} if kind == "bpe" else {}
    task = task_of(begin(tokenizer=kind, context_length=128, val=0.0, batch_size=1, **options))
    assert task.tokenizer.chat is not None
    ids, answers = task.tokenizer.chat.encode_whole(said("12을 읽어 줘.", "일 이"))
    learned = [token for token, own in zip(ids, answers, strict=True) if own]
    assert task.tokenizer.decode(learned[:-1]) == "일 이"
    assert task.data["answer_tokens"] > 0


# --- the command ------------------------------------------------------------------------------------------------------


def test_conversations_as_a_text_are_told_the_task(jumok: Jumok, own_folder: Path) -> None:
    Path("a.jsonl").write_text(json.dumps({"messages": said("안녕?", "네.")}) + "\n", encoding="utf-8")
    end = jumok("train", "a.jsonl", "--out", "run")
    assert end.code != 0
    assert "a.jsonl holds conversations; learn to answer with --task chat" in end.err


def test_a_model_that_answers_is_evaluated_on_a_text(jumok: Jumok, run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("12을 읽어 줘. 일 이.\n" * 9, encoding="utf-8")
    figures = json.loads(jumok("evaluate", str(run[0]), str(text), "--device=cpu", "--json").out)
    assert figures["seen_in_training"] is None
    assert figures["nats_per_char"] > 0


def test_minutes_and_passes_end_a_run(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chat, "least_steps", 20)
    trainer = begin(steps=None, minutes=60.0, passes=1.0, eval_every=500)
    list(trainer.run())
    assert trainer.step == 20  # at least, however small the material is


@pytest.mark.parametrize("template", [False, True])
def test_a_conversation_begins_as_the_texts_of_its_model(begin: Begin, tmp_path: Path, *, template: bool) -> None:
    """A base that reads BOS before each text learned chats without it, and llama.cpp put it there all the same."""
    model = load(another_model(tmp_path / "init"))
    made = train_tokenizer("수를 읽어 줘. 0123456789\n" * 3, "char", special_tokens=["<s>"])
    pipeline = HFTokenizer.from_str(made.to_json())
    bos = made.special_tokens["<s>"]
    pipeline.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", bos)])
    tokenizer = with_chat(Tokenizer(pipeline)) if template else Tokenizer(pipeline)  # without BOS, as before
    model = build(dataclasses.replace(model.config, vocab_size=tokenizer.vocab_size)).eval()
    model.tokenizer = tokenizer
    save(model, tmp_path / "init")
    trainer = begin(init=tmp_path / "init", **dict.fromkeys(("n_layer", "n_head", "n_embd", "context_length")))
    chat = task_of(trainer).tokenizer.chat
    assert chat is not None
    assert chat.is_own
    assert model_of(trainer).config.frame.before == (bos,)
    messages = messages_of(talks().rows[0][0])
    ids, answers = chat.encode_whole(messages)
    assert (ids[0] == bos) is not template  # what has a template keeps it
    assert ids.count(bos) == (not template)
    said_by_model = [one for one, is_answer in zip(ids, answers, strict=True) if is_answer]
    other = ChatTemplate(chat.source + "{# #}", task_of(trainer).tokenizer.to_json(), task_of(trainer).tokenizer.roles)
    assert other.encode_whole(messages) == (ids, answers)
    assert task_of(trainer).tokenizer.decode(said_by_model).endswith("<|end|>")
    end = [event for event in trainer.run() if isinstance(event, Sample)]
    assert end
    if not template:
        transformers = pytest.importorskip("transformers")
        to_hf(load(tmp_path / "run"), tmp_path / "hf")
        stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
        asked = messages[:1]
        assert stock.apply_chat_template(asked, add_generation_prompt=True, return_dict=False) == chat.encode(asked)
