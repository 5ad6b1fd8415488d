"""The built-in conversations: each answer passes its check and no other one, and the test part is new."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import regex

from jumok.corpora import everyday, talk, templates
from jumok.errors import ConfigError

pytestmark = pytest.mark.slow


@cache
def sample(part: str) -> list[dict[str, Any]]:
    return list(talk.write(4_000 if part == "train" else 1_500, seed=3, part=part))


def answers(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The checked answers of a row, each with its check."""
    texts = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
    return [(text, check) for text, check in zip(texts, row["checks"], strict=True) if check]


def questions(part: str) -> dict[str, list[str]]:
    """The last question of each row, by skill."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in sample(part):
        found[row["skill"]].append(row["messages"][-2]["content"])
    return found


def text_of(row: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in row["messages"])


# --- Checks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", talk.PARTS)
def test_every_answer_passes_its_check(part: str) -> None:
    for row in sample(part):
        assert answers(row), row
        for text, check in answers(row):
            assert regex.fullmatch(check, text), (check, text)


def test_answers_of_other_questions_of_the_skill_do_not_pass() -> None:
    """A wrong answer may be right by chance (yes and yes), but not often, and a list of all answers never is."""
    of_skill: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in sample("test"):
        of_skill[row["skill"]] += answers(row)
    draw = Random(1)
    for skill, found in of_skill.items():
        texts = sorted({text for text, _ in found})
        passed = sum(bool(regex.fullmatch(check, draw.choice(texts))) for _, check in found)
        if skill not in ("unknown", "outside"):  # which have few answers
            assert passed <= 0.4 * len(found), (skill, passed, len(found))
        for text, check in found[:20]:
            listed = " ".join(texts[:30])
            assert not regex.fullmatch(check, listed) or len(texts) < 3, skill
            assert not regex.fullmatch(check, f"{text} {text}"), (skill, check)


def test_an_answer_in_the_other_register_does_not_pass() -> None:
    pairs = (pair for row in sample("test") if row["skill"] not in everyday.GROUPS for pair in answers(row))
    for text, check in pairs:
        if re.search("(이에요|예요)[.]$", text):
            casual = re.sub("이에요[.]$", "이야.", re.sub("예요[.]$", "야.", text))
            assert not regex.fullmatch(check, casual), (check, casual)


@pytest.mark.parametrize(
    ("skill", "right"),
    [
        ("sum", ["{}이에요", "{}입니다.", "답은 {}예요.", "{}"]),
        ("opposite", ["{}"]),
    ],
)
def test_several_phrasings_are_right(skill: str, right: list[str]) -> None:
    rows = [row for row in sample("test") if row["skill"] == skill and row["messages"][-1]["content"].endswith("요.")]
    for row in rows[:50]:
        ((text, check),) = answers(row)
        value = re.sub("(이에요|예요)[.]$", "", text)
        assert any(regex.fullmatch(check, form.format(value)) for form in right), (check, value)
        assert not regex.fullmatch(check, f"{value}요요"), check


def test_patterns_follow_templates() -> None:
    """The notation is tried on one template with everything in it."""
    template, values = "(|아직 ){n:is}, [{a:을/를} 봐요|{a:을/를} 봐]!", {"n": ("책", "사과"), "a": "말"}
    assert templates.say(template, False, values, lambda count: count - 1) == "아직 책이에요, 말을 봐요!"
    assert templates.say(template, True, values, lambda count: 0) == "책이야, 말을 봐!"
    pattern = templates.pattern([template], False, values)
    for text in ("책이에요, 말을 봐요!", "사과예요 말을 봐요", "아직 사과입니다, 말을 봐요.", "책, 말을 봐요"):
        assert regex.fullmatch(pattern, text), text
    for text in ("책예요, 말을 봐요!", "책이야, 말을 봐!", "배예요, 말을 봐요", "책, 사과, 말을 봐요"):
        assert not regex.fullmatch(pattern, text), text


# --- Right answers, by other rules --------------------------------------------------------------------------------


def test_sums_are_right_and_steps_lead_to_them() -> None:
    for row in sample("train"):
        if row["skill"] == "sum" and (
            asked := re.match(r"(\d+)(?: ?\+ ?| 더하기 |에 )(\d+)", row["messages"][-2]["content"])
        ):
            a, b = map(int, asked.groups())
            answer = row["messages"][-1]
            assert re.match(r"\d+", answer["content"])[0] == str(a + b)  # type: ignore[index]
            steps = [tuple(map(int, re.findall(r"\d+", step))) for step in answer["reasoning_content"].split(", ")]
            assert all(x + y == z for x, y, z in steps)
            assert steps[0][:2] == (a % 10, b % 10)
            if len(steps) == 1:
                assert a + b == steps[0][2]
                continue
            assert steps[1][:2] == (a // 10, b // 10)
            assert f"{steps[-1][2]}{steps[0][2] % 10}" == str(a + b)


def test_days_orders_and_letters_are_right() -> None:
    days = "월화수목금토일"
    for row in sample("train"):
        *_, asked, answer = (message["content"] for message in row["messages"])
        asked = re.sub("^(그럼|그러면|이번에는) ?", "", asked)
        if row["skill"] == "day" and (found := re.search(r"(.)요일.*?(\d+)일 ?뒤", asked)):
            assert answer[0] == days[(days.index(found[1]) + int(found[2])) % 7]
        if row["skill"] == "sort":
            numbers = [int(number) for number in re.findall(r"\d+", asked)]
            assert [int(n) for n in re.findall(r"\d+", answer)] == sorted(numbers, reverse="큰" in asked)
        if row["skill"] == "reverse":
            assert any(answer.startswith(asked[:end][::-1]) for end in range(2, 8)), asked
        if row["skill"] == "final":
            last = re.search("[가-힣](?=의 ?마|은 ?무|는 ?무)", asked)[0]  # type: ignore[index]
            tail = unicodedata.normalize("NFD", last)[2:]
            assert ("받침이 없어" in answer) == (not tail)


def test_chains_go_on_with_the_last_syllable_and_repeat_no_word() -> None:
    for row in sample("train"):
        if row["skill"] == "chain":
            played = row["messages"][2 * next(at for at, check in enumerate(row["checks"]) if check) :]
            words = [re.findall("[가-힣]+", message["content"])[-1] for message in played]
            assert all(word[-1] == following[0] for word, following in pairwise(words)), words
            assert len(set(words)) == len(words)


def test_particles_and_register_fit() -> None:
    """No 이에요 after a vowel, no 예요 after a consonant, and no polite answer to a casual question."""
    for row in sample("train"):
        text = row["messages"][-1]["content"]
        for before, ending in re.findall("([가-힣])(이에요|예요|야(?=[.?!]))", text):
            assert ((ord(before) - 0xAC00) % 28 > 0) == (ending == "이에요"), text
        if row["skill"] in ("memory", "day", "opposite", "category"):
            said = [row["messages"][at]["content"] for at in (-2, -1)]
            assert len({bool(re.search("요[.!?]?$", sentence)) for sentence in said}) == 1, said


# --- Parts and form -----------------------------------------------------------------------------------------------


def test_what_the_test_part_asks_never_occurs_in_training() -> None:
    train, test = questions("train"), questions("test")
    for skill in (
        "sum",
        "count",
        "sort",
        "date",
        "day",
        "opposite",
        "category",
        "letter",
        "reverse",
        "order",
        "numerals",
    ):
        assert test[skill], skill
        assert not {*train[skill]} & {*test[skill]}, skill


def test_names_nouns_and_summands_of_the_test_part_are_new() -> None:
    texts = {part: "\n".join(map(text_of, sample(part))) for part in talk.PARTS}
    names = {
        part: {*re.findall("(?:안녕하세요|안녕|반가워요|반가워), ([가-힣]{2})(?: 님|아!|야!)", texts[part])}
        for part in talk.PARTS
    }
    assert len(names["test"]) > 20
    assert not names["train"] & names["test"]
    words = {*re.findall("(?m)^([가-힣]+?)(?=의 마지막 글자|의 첫 글자|의 초성)", texts["test"])}
    assert len(words) > 20
    assert not {word for word in words if re.search(rf"(?<![가-힣]){word}(?![가-힣])", texts["train"])}
    assert {*"".join(words)} <= {*texts["train"]}  # the syllables are not new
    pairs = {
        part: {frozenset(pair) for pair in re.findall(r"(\d+)\+(\d+):? ?", texts[part]) if len("".join(pair)) == 4}
        for part in talk.PARTS
    }
    assert len(pairs["test"]) > 3
    assert not pairs["train"] & pairs["test"]


@pytest.mark.parametrize("part", talk.PARTS)
def test_conversations_are_short_and_in_form(part: str) -> None:
    """With four tokens for the roles of a message, each fits a context of 256 characters."""
    for row in sample(part):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * len(row["checks"])
        assert 1 <= len(row["checks"]) <= 6
        assert (
            len(text_of(row)) + 5 * len(roles) + sum(len(m.get("reasoning_content", "")) for m in row["messages"]) < 256
        )
        for message in row["messages"]:
            assert unicodedata.is_normalized("NFC", message["content"])
            assert "  " not in message["content"]
            assert "\n" not in message["content"]
        assert json.loads(talk.json_line(row)) == row


def test_all_skills_occur() -> None:
    counts = Counter(row["skill"] for row in sample("train"))
    assert counts.keys() == talk.SKILLS.keys()
    assert min(counts.values()) > 50
    assert 0.25 < sum(counts[group] for group in everyday.GROUPS) / counts.total() < 0.45


def test_thinking_can_be_left_out_and_is_in_the_plain_text() -> None:
    thinking, without = (list(talk.write(300, seed=1, thinking=which)) for which in (True, False))
    steps = [message for row in thinking for message in row["messages"] if "reasoning_content" in message]
    assert len(steps) > 50
    assert not [message for row in without for message in row["messages"] if "reasoning_content" in message]
    assert list(map(text_of, thinking)) == list(map(text_of, without))
    row = next(row for row in thinking if row["skill"] == "sum" and len(row["messages"]) == 2)
    question, answer = row["messages"]
    assert talk.plain(row) == f"{question['content']}\n({answer['reasoning_content']}) {answer['content']}\n\n"


def test_rows_depend_on_the_seed_alone() -> None:
    rows = list(talk.write(500, seed=1))
    assert rows[:200] == list(talk.write(200, seed=1))
    assert rows != list(talk.write(500, seed=2))
    text = "".join(map(talk.json_line, talk.write(500)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "2da6ecf5cf8b13de"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rows": -1}, "rows=-1 is out of range"),
        ({"rows": 1, "seed": -1}, "seed=-1 is out of range"),
        ({"rows": 1, "part": "val"}, "part='val'"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        talk.write(**arguments)
