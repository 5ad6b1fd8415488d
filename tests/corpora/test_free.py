"""Free messages: what fits them is accepted, what does not is refused, and nobody trains on them."""

from __future__ import annotations

import json

import pytest

from conftest import Jumok
from jumok.corpora import free
from jumok.evaluation.checks import passes
from jumok.text.conversations import from_conversations

KINDS = free.kinds()


def checks(message: str) -> list[str]:
    """The checks of the answers to a message."""
    rows = [row for kind in KINDS.values() for row in kind.rows]
    return [row["checks"][-1] for row in rows if row["messages"][-2]["content"] == message]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_accepts_its_right_answers_and_refuses_its_wrong_ones(name: str) -> None:
    kind = KINDS[name]
    check = kind.rows[0]["checks"][-1]
    assert len(kind.right) >= 2
    assert len(kind.wrong) >= 2
    assert [passes(check, answer) for answer in (*kind.right, *kind.wrong)] == [
        *[True] * len(kind.right), *[False] * len(kind.wrong)
    ]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_the_answer_that_is_written_passes(name: str) -> None:
    for row in KINDS[name].rows:
        assert passes(row["checks"][-1], row["messages"][-1]["content"]), row["messages"]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("안녕", "안녕히 안안안안안안"),
        ("안녕하세요, 처음 뵙겠습니다", "안녕히 주무세요!"),
        ("반가워!", "일기."),
        ("오늘 날씨 어때?", "날개."),
        ("밥 먹었어?", "비싼 밥이야."),
        ("사랑해", "해바라기."),
        ("대한민국의 수도는 어디야?", "수도 ㅂ대한 화요일이야."),
        ("대한민국의 수도는 어디야?", "부산이야."),
        ("3 곱하기 4는?", "30, 35야."),
        ("127 더하기 458은?", "62예요."),
        ("고마워", "고마워 고마워 고마워 고마워."),
    ],
)
def test_what_a_broken_model_answered_is_wrong(message: str, answer: str) -> None:
    """A model that knew its skills answered these to what everyone types first, and no figure told it."""
    assert checks(message)
    assert not any(passes(check, answer) for check in checks(message))


@pytest.mark.parametrize(
    "answer", ["그건 잘 모르겠어요.", "아직 배우지 않았어.", "저는 짧은 대화만 할 수 있어요.", "답을 알 수 없어요."]
)
def test_an_honest_answer_fits_what_is_not_known(answer: str) -> None:
    for name in ("knowledge", "request", "bigsum", "operation", "near"):
        assert all(passes(row["checks"][-1], answer) for row in KINDS[name].rows), name


def test_answers_of_other_kinds_seldom_fit() -> None:
    """A pattern that accepts most answers would measure nothing."""
    wrong = sorted({answer for kind in KINDS.values() for answer in kind.wrong})
    for name, kind in KINDS.items():
        judged = [passes(row["checks"][-1], answer) for row in kind.rows[:5] for answer in wrong]
        assert sum(judged) <= 0.1 * len(judged), name


def test_messages_are_many_and_differ() -> None:
    rows = list(free.write())
    assert len(rows) >= 300
    turns = [json.dumps(row["messages"][:-1], ensure_ascii=False) for row in rows]
    assert len(set(turns)) >= len(rows) - 1  # "끝말잇기" and the like may be of two kinds
    assert sum(len(row["messages"]) > 2 for row in rows) >= 20
    assert len(from_conversations(rows).rows) == len(rows)


def test_the_command_writes_them(jumok: Jumok) -> None:
    end = jumok("corpus", "write", "talk", "--part", "free")
    assert [json.loads(line) for line in end.out.splitlines()] == list(free.write())
    for option in (["--rows", "9"], ["--seed", "1"], ["--plain"]):
        refused = jumok("corpus", "write", "talk", "--part", "free", *option)
        assert refused.code == 2
        assert option[0] in refused.err
