"""Small talk of the built-in conversations: fitting answers, words that differ between the parts, honest refusals."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
import regex

from jumok.corpora import everyday, talk
from jumok.text.hangul import is_syllable

pytestmark = pytest.mark.slow


@cache
def rows(part: str) -> list[dict[str, Any]]:
    written = talk.write(4_000 if part == "train" else 1_500, seed=5, part=part)
    return [row for row in written if row["skill"] in everyday.GROUPS]


def last_messages(part: str) -> list[str]:
    return [row["messages"][-2]["content"] for row in rows(part)]


def test_messages_and_unknown_words_of_the_test_part_are_new() -> None:
    """A message without its spaces and signs is in one part, and so is a word of a list."""
    train, test = ({"".join(filter(str.isalnum, text)) for text in last_messages(part)} for part in talk.PARTS)
    assert len(test) > 300
    assert not train & test
    for name in everyday.material()["lists"]:
        assert not {*everyday.words(name, test=False)} & {*everyday.words(name, test=True)}
        assert everyday.words(name, test=True), name


def test_nouns_and_verbs_are_many() -> None:
    assert len({*everyday.words("topic", test=False)}) > 600
    assert len({*everyday.words("topic", test=True)}) > 150
    assert len(everyday.words("do", test=False)) > 120
    assert len(everyday.words("does", test=False)) > 60


def test_what_everyone_types_first_is_in_the_training_part() -> None:
    """안녕 was answered with 안녕히 without end: no conversation of the material began so."""
    messages = {
        message["content"].rstrip("?!.~")
        for row in talk.write(40_000)
        if row["skill"] in everyday.GROUPS
        for message in row["messages"]
    }
    for text in (
        "안녕",
        "안녕하세요",
        "반가워",
        "고마워",
        "사랑해",
        "밥 먹었어",
        "ㅋㅋㅋㅋ",
        "ㅠㅠ",
        "응",
        "왜",
        "",
        "ㅎㅇ",
    ):
        assert text in messages, text


@pytest.mark.parametrize("group", everyday.GROUPS)
def test_checks_accept_all_answers_of_the_intention_and_none_of_another_kind(group: str) -> None:
    for row in rows("test"):
        if row["skill"] == group:
            check, answer = row["checks"][-1], row["messages"][-1]["content"]
            assert regex.fullmatch(check, answer)
            assert regex.fullmatch(check, answer.rstrip(".!?"))
            for wrong in ("", "62예요.", "안녕히 안녕히", f"{answer} {answer}", "일기."):
                assert not regex.fullmatch(check, wrong), (row, wrong)


def test_a_polite_message_gets_a_polite_answer() -> None:
    for part in talk.PARTS:
        for row in rows(part):
            asked, answer = (row["messages"][at]["content"] for at in (-2, -1))
            if re.search("(세요|니다|니까|어요|예요)[.!?]?$", asked) and len(row["messages"]) == 2:
                assert re.search("(요|니다)[.!?]?$", answer), (asked, answer)


def test_sums_of_two_small_numbers_are_not_refused_and_other_calculations_are() -> None:
    """127 더하기 458 was answered with 62, and 3 곱하기 4 with 30, 35."""
    refused = 0
    for row in talk.write(12_000, seed=6):
        for at in range(0, len(row["messages"]), 2):
            asked, answer = (row["messages"][at + step]["content"] for step in (0, 1))
            if "두 자리 수 두 개의 덧셈만" in answer:
                refused += 1
                sum_of_two = re.fullmatch(r"(\d{1,2})( ?\+ ?| 더하기 )(\d{1,2})(은|는|=|[?]| )*", asked)
                assert not sum_of_two, asked
    assert refused > 200


def test_typed_texts_stay_whole() -> None:
    """Whatever liberty is taken, a syllable stays a syllable and nothing is lost but spaces and signs."""
    draw = talk._Draw(seed=1, part="train")
    for _ in range(500):
        text = everyday.typed(draw, "너는 무엇을 할 수 있었어요?")
        assert sum(map(is_syllable, text)) >= 11, text


def test_common_syllables_are_those_of_the_standard() -> None:
    syllables = everyday.common_syllables()
    assert len(syllables) == len({*syllables}) == 2_350
    assert all(map(is_syllable, syllables))
    assert {*"가힝뷁"} & {*syllables} == {*"가힝"}
