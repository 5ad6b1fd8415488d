"""Figures of answers in conversations: losses, exact matches, checks, skills, and baselines without a model."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import jumok
from conftest import Jumok
from jumok.corpora import free
from jumok.data.packing import PADDING, PackedRows, best_fit
from jumok.errors import ConfigError, TextError
from jumok.evaluation import chat
from jumok.evaluation.chat import Share, encode_chat, evaluate_chat, questions_in, text_answer
from jumok.evaluation.checks import passes
from jumok.evaluation.nearest import NearestQuestion
from jumok.inference.chat import Answer, answer_chats
from jumok.models.gpt import GPT
from jumok.runs.load import save
from jumok.text import from_rows
from jumok.text.conversations import from_conversations, messages_of
from talking_models import looping, talking
from talks import said, talks

TALK = said("하나?", "하나.", "둘?", "둘.", system="셋")


# --- the loss ---


def test_the_loss_is_that_of_each_conversation_by_itself() -> None:
    model = talking(context_length=192).double().requires_grad_(False)
    table = talks(20)
    nats, tokens, chars = 0.0, 0, 0
    for row in table.rows:
        messages = messages_of(row[0])
        ids, answers = map(torch.tensor, model.tokenizer.chat.encode_whole(messages))
        losses = F.cross_entropy(model(ids[None, :-1])[0], ids[1:], reduction="none")
        nats += float(losses[answers[1:]].sum())
        tokens += int(answers.sum())
        answered = [one for one in messages if one["role"] == "assistant"]
        chars += sum(len(one["content"]) + len(one.get("reasoning_content", "")) for one in answered)
    found = evaluate_chat(model, table, most_rows=1)
    assert found.nats_per_char == pytest.approx(nats / chars, rel=1e-6)
    assert found.loss_per_token == pytest.approx(nats / tokens, rel=1e-6)
    assert (found.chars, found.rows, found.left_out) == (chars, 20, 0)


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    table = from_conversations([TALK, said("가" * 300, "나"), TALK])
    found = evaluate_chat(talking(), table)
    assert (found.rows, found.left_out, found.answers) == (2, 1, 4)
    with pytest.raises(TextError, match=r"none of the 1 conversations fits into the context of 128 tokens"):
        evaluate_chat(talking(), from_conversations([said("가" * 300, "나")]))


def test_a_long_conversation_is_judged_by_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks are those of its last answers."""
    rows = [{"messages": said(*["물음?", "대답."] * 9, "끝?", "끝."), "checks": ["아님"] * 9 + ["끝."]}]
    seen = []
    monkeypatch.setattr(
        chat, "answer_chats", lambda model, before, tokens: seen.extend(before) or answered("끝.", before)
    )
    found = evaluate_chat(talking(), from_conversations(rows))
    assert 1 < found.answers < 10
    assert found.checks == 1 / found.answers
    assert [messages[0]["role"] for messages in seen] == ["user"] * found.answers


# --- answers ---


def answered(text: str | Callable[[str], str], before: Any) -> list[list[Any]]:
    """The same answer to all conversations, or a function of the question."""

    def answer(asked: str) -> Answer:
        return text_answer(text if isinstance(text, str) else text(asked))

    return [[answer(messages[-1]["content"])] for messages in before]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | Callable[[str], str]], None]:
    """Let every model give these answers."""

    def give(text: str | Callable[[str], str]) -> None:
        monkeypatch.setattr(chat, "answer_chats", lambda model, before, tokens: answered(text, before))

    return give


def test_shares_of_right_answers(answers: Callable[..., None]) -> None:
    rows = [
        {"messages": said("1?", "일"), "skill": "수", "checks": ["일|하나"]},
        {"messages": said("2?", "이"), "skill": "수", "checks": ["이|둘"]},
        {"messages": said("3?", "삼"), "skill": "수", "checks": []},
        {"messages": said("4?", "사", "5?", "오"), "skill": "말", "checks": ["", "오"]},
        {"messages": said("6?", "육")},
    ]
    given = {"1?": " 하나\n", "2?": "삼", "3?": "삼 ", "4?": "오", "5?": "오", "6?": "육"}
    answers(given.__getitem__)
    found = evaluate_chat(talking(), from_conversations(rows))
    assert found.answers == 6
    assert found.exact_match == 3 / 6
    assert found.exact_match_error == pytest.approx(math.sqrt(0.25 / 6))
    assert found.checks == 2 / 3
    assert found.checks_error == pytest.approx(math.sqrt(2 / 9 / 3))
    assert {name: (share.answers, share.right) for name, share in found.skills.items()} == {
        "수": (3, 2 / 3),
        "말": (1, 1.0),
    }


def test_each_answer_is_right_wrong_empty_or_looping(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that did not end by itself passed a check that accepts its beginning; it looks right, and is not."""
    given = {"1": ("일", "stop"), "2": ("일", "stop"), "3": (" ", "stop"), "4": ("사", "length"), "5": ("", "length")}

    def answers(model: GPT, before: Any, tokens: int) -> list[list[Answer]]:
        written = [given[messages[-1]["content"]] for messages in before]
        return [[Answer(text=text, reasoning="", ids=(), finish=finish)] for text, finish in written]

    monkeypatch.setattr(chat, "answer_chats", answers)
    rows = [{"messages": said(n, one), "skill": "수", "checks": [check]} for n, one, check in zip(
        "12345", "일이삼사오", ("일", "이", ".*", "사", ".*"), strict=True)]  # fmt: skip
    found = evaluate_chat(talking(), from_conversations(rows))
    assert [one.outcome for one in found.judgements] == ["right", "wrong", "empty", "looping", "looping"]
    assert found.judgements[3].messages == ("4",)
    assert found.skills["수"] == Share(5, 0.2, pytest.approx((0.2 * 0.8 / 5) ** 0.5), 1, 1, 2)
    assert (found.empty, found.looping, found.checks, found.exact_match) == (1, 2, 0.2, 0.2)


def test_a_model_that_repeats_itself_is_looping() -> None:
    rows = [{"messages": said("하나?", "둘"), "skill": "수", "checks": [".*"]}]
    found = evaluate_chat(looping(), from_conversations(rows))
    assert (found.looping, found.skills["수"].looping, found.checks) == (1, 1, 0.0)
    assert len(found.judgements[0].answer) == 64


def test_an_answer_may_be_longer_than_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right answers of two tokens left room for four, so a model that says more than the example seemed not to end."""
    rooms = []
    monkeypatch.setattr(
        chat, "answer_chats", lambda model, before, tokens: rooms.append(tokens) or answered("네", before)
    )
    evaluate_chat(talking(context_length=512), from_conversations([said("1", "네")]))
    assert rooms[0] >= 100


def test_without_checks_there_is_no_share_of_them(answers: Callable[..., None]) -> None:
    answers("하나.")
    found = evaluate_chat(talking(), from_conversations([TALK]))
    assert (found.exact_match, found.checks, found.checks_error, found.skills) == (0.5, None, None, {})


def test_answers_in_another_normal_form_are_right(answers: Callable[..., None]) -> None:
    answers("한")
    assert evaluate_chat(talking(), from_conversations([said("?", "한")])).exact_match == 1.0


def test_answers_follow_the_right_ones_before_them() -> None:
    model = talking()
    table = from_conversations([TALK])
    expected = [answer_chats(model, [TALK[:place]], tokens=9)[0][0].text == TALK[place]["content"] for place in (2, 4)]
    assert evaluate_chat(model, table).exact_match == sum(expected) / 2
    assert [question.before for question in questions_in(TALK, "", [])] == [TALK[:2], TALK[:4]]


def test_few_rows_are_spread_over_all(answers: Callable[..., None]) -> None:
    rows = [{"messages": said(f"{n}?", "네"), "skill": str(n)} for n in range(9)]
    answers("네")
    found = evaluate_chat(talking(), from_conversations(rows), most_rows=3)
    assert found.answers == 3
    assert list(found.skills) == ["1", "4", "7"]
    assert found.rows == 9


# --- checks ---


@pytest.mark.parametrize(
    ("pattern", "answer", "right"),
    [
        ("다섯|5", "다섯", True),
        ("다섯|5", " 5\n", True),
        ("다섯|5", "다섯 개", False),
        ("다섯", "답은 다섯", False),
        ("(?i)yes", "YES", True),
        ("", "", True),
        (".*", "한\n줄", False),
    ],
)
def test_a_whole_answer_matches(pattern: str, answer: str, right: bool) -> None:
    assert passes(pattern, answer) is right


@pytest.mark.parametrize(
    "pattern",
    [
        "(다섯", "[", "*", "(?P<a>", "\\", "(?R)", "((?1))", "(?&a)", "가" * 10_001, "((a{1,1000}){1,1000}){1,1000}",
        "a{99999999999999999999}",
    ],
)  # fmt: skip
def test_a_check_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(TextError, match="cannot be used") as caught:
        passes(pattern, "다섯")
    assert pattern[:20] in str(caught.value)


def test_a_check_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.evaluation.checks.SECONDS", 0.05)
    with pytest.raises(TextError, match=r"the check '\(a\|aa\)\+b' cannot be used"):
        passes("(a|aa)+b", "a" * 200)


# --- the nearest question ---


def test_the_nearest_question_is_that_with_the_same_rare_pairs() -> None:
    known = ["사과는 무슨 색이에요?", "바나나는 무슨 색이에요?", "사과는 몇 개예요?", "안녕하세요?"]
    nearest = NearestQuestion(known)
    assert [nearest.find(question) for question in known] == [0, 1, 2, 3]
    assert nearest.find("바나나는 무슨 색이야?") == 1
    assert nearest.find("사과가 몇 개야?") == 2
    assert nearest.find("xyz") == 0


def test_the_nearest_question_by_the_formula() -> None:
    """As written down in plain Python."""
    draw = random.Random(0)
    known = ["".join(draw.choices("가나다라", k=draw.randrange(1, 9))) for _ in range(30)]

    def pairs(text: str) -> list[str]:
        return [a + b for a, b in zip("\n" + text, text + "\n", strict=True)]

    rarity = {p: math.log(30 / sum(p in pairs(k) for k in known)) + 1e-9 for k in known for p in pairs(k)}

    def vector(text: str) -> dict[str, float]:
        return {p: pairs(text).count(p) * rarity[p] for p in pairs(text) if p in rarity}

    def similarity(text: str, other: str) -> float:
        one, two = vector(text), vector(other)
        return sum(value * two.get(p, 0) for p, value in one.items()) / math.hypot(*two.values())

    nearest = NearestQuestion(known)
    for _ in range(20):
        asked = "".join(draw.choices("가나다라", k=5))
        scores = [similarity(asked, one) for one in known]
        assert scores[nearest.find(asked)] == pytest.approx(max(scores))


# --- packing ---


def test_best_fit_leaves_hardly_any_room() -> None:
    draw = random.Random(0)
    lengths = [draw.randrange(1, 120) for _ in range(500)]
    rows = best_fit(lengths, 128)
    assert sorted(text for row in rows for text in row) == list(range(500))
    assert all(sum(lengths[text] for text in row) <= 128 for row in rows)
    assert sum(lengths) / (128 * len(rows)) > 0.95


@pytest.mark.parametrize(("lengths", "rows"), [([], 0), ([5], 1), ([5, 5], 2), ([4, 1, 3, 2], 2), ([5] * 3 + [1], 4)])
def test_best_fit_of_few(lengths: list[int], rows: int) -> None:
    assert len(best_fit(lengths, 5)) == rows


def test_packed_rows_say_what_follows_and_to_which_text_it_belongs(tmp_path: Path) -> None:
    given = [([1, 2, 3], [0, 1, 1]), ([4, 5], [0, 1]), ([6, 7, 8, 9], [0, 0, 1, 0])]
    texts = [(np.array(ids), np.array(mask, bool)) for ids, mask in given]
    packed = PackedRows.of(texts, 5, -100)
    packed.write(tmp_path, "train", np.dtype(np.uint16))
    inputs, targets, segments = PackedRows.load(tmp_path, "train", len(packed.inputs)).batch([0, 1], 5, -100)
    assert inputs.tolist() == [[6, 7, 8, 1, 2], [4, 0, 0, 0, 0]]
    assert targets.tolist() == [[-100, 8, -100, 2, 3], [5, -100, -100, -100, -100]]
    assert segments.tolist() == [[0, 0, 0, 1, 1], [0, *[PADDING] * 4]]


def test_a_conversation_that_just_fits() -> None:
    """The last id is no input, so a conversation may have one token more than the context."""
    template = talking().tokenizer.chat
    ids, _ = template.encode_whole(TALK)
    found = encode_chat(template, TALK, len(ids) - 1)
    assert found is not None
    assert found.messages == TALK
    shorter = encode_chat(template, TALK, len(ids) - 2)
    assert shorter is not None
    assert shorter.messages == [TALK[0], *TALK[3:]]


# --- jumok.evaluate and the command ---


def test_conversations_are_recognized(tmp_path: Path) -> None:
    model = talking()
    path = tmp_path / "a.jsonl"
    path.write_text((json.dumps({"question": "하나?", "answer": "둘"}) + "\n") * 3, encoding="utf-8")
    assert jumok.evaluate(model, path).rows == 3
    assert jumok.evaluate(model, from_conversations([TALK])).answers == 2
    with pytest.raises(ConfigError, match="chat template"):
        jumok.evaluate(talking(template=None), path)
    path.write_text(json.dumps({"text": "나는 학교에 갔다. " * 9}) + "\n", encoding="utf-8")
    assert jumok.evaluate(model, path).chars > 0  # a text
    with pytest.raises(ConfigError, match="reads a text"):
        jumok.evaluate(model, from_rows(("source", "target"), [("가", "나")]))


def test_a_command_tells_the_skills(jumok: Jumok, tmp_path: Path) -> None:
    model: GPT = talking()
    save(model, tmp_path / "one")
    save(talking(seed=1), tmp_path / "two")
    rows = [{"messages": said("하나?", "둘"), "skill": f"기능{n % 2}"} for n in range(4)]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    end = jumok("evaluate", "one", "a.jsonl", "--device=cpu")
    assert end.code == 0, end.err
    lines = [line.split() for line in end.out.splitlines()[-2:]]
    assert lines == [[f"기능{n}", "2", "0.0", "±", "0.0"] for n in (0, 1)]
    several = jumok("evaluate", "one", "two", "a.jsonl", "--device=cpu")
    assert several.out.splitlines()[-1].split() == ["기능1", "2", "0.0", "±", "0.0", "0.0", "±", "0.0"]
    figures = json.loads(jumok("evaluate", "one", "a.jsonl", "--device=cpu", "--json").out)
    share = figures["skills"]["기능0"]
    assert (share["answers"], share["right"], share["error"]) == (2, 0.0, 0.0)
    assert share["wrong"] + share["empty"] + share["looping"] == 2
    assert [(one["skill"], one["messages"]) for one in figures["judgements"]] == [
        ("기능0", ["하나?"]), ("기능1", ["하나?"]), ("기능0", ["하나?"]), ("기능1", ["하나?"]),
    ]  # fmt: skip


def test_the_unseen_part_of_talk(jumok: Jumok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.cli.evaluate.TALK_TEST_ROWS", 30)
    save(talking(context_length=512), tmp_path / "one")
    some = [row for kind in free.kinds().values() for row in kind.rows[:2]]
    monkeypatch.setattr("jumok.corpora.free.write", lambda: iter(some))
    figures = json.loads(jumok("evaluate", "one", "talk", "--device=cpu", "--json").out)
    assert figures["rows"] + figures["left_out"] == 30
    assert len(figures["skills"]) > 5
    free_figures = figures["free"]
    assert list(free_figures["kinds"]) == sorted(free.kinds())
    assert free_figures["all"]["answers"] == len(free_figures["judgements"]) == len(some)
    end = jumok("evaluate", "one", "talk", "--device=cpu")
    lines = [line.split() for line in end.out.splitlines()[-4:]]
    assert [line[0] for line in lines] == ["all", "wrong", "empty", "looping"]
    assert lines[0][1] == str(len(some))
    told = sum(int(line[-1].strip("()")) for line in lines[1:])
    assert told + round(free_figures["all"]["right"] * len(some)) == len(some)
    save(talking(context_length=512, seed=1), tmp_path / "two")
    assert len(jumok("evaluate", "one", "two", "talk", "--device=cpu").out.splitlines()[-1].split()) == 5
