"""The draw of held-out rows: it resembles the rest, whatever the order of the table, and leaks nothing."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from jumok.data.held_out import draw_rows

WORDS = ["영화", "음악", "아침", "바다", "시장", "학교", "겨울", "여행", "친구", "책"]


def texts(count: int) -> list[str]:
    """Different texts of different lengths."""
    draw = random.Random(0)
    return [" ".join([str(number), *draw.choices(WORDS, k=1 + number % 40)]) for number in range(count)]


def means(values: list[float], drawn: list[int]) -> tuple[float, float]:
    """The mean of the held-out values and of all others."""
    inside = set(drawn)
    rest = [value for row, value in enumerate(values) if row not in inside]
    return sum(values[row] for row in drawn) / len(drawn), sum(rest) / len(rest)


@pytest.mark.parametrize("order", ["label", "length", "source", "shuffled"])
def test_the_draw_resembles_the_rest_whatever_the_order(order: str) -> None:
    """The last tenth of a table that was sorted by label had one label, and an accuracy of 0.910 in place of 0.555."""
    rows = [(text, "01"[number % 5 == 0], "ab"[number % 3 > 0]) for number, text in enumerate(texts(2_000))]
    keys = {"label": lambda row: row[1], "length": lambda row: len(row[0]), "source": lambda row: row[2]}
    ordered = sorted(rows, key=keys[order]) if order in keys else random.Random(1).sample(rows, len(rows))
    drawn = draw_rows([text for text, _, _ in ordered], [label for _, label, _ in ordered], 0.1)
    assert len(drawn) == 200
    assert drawn == sorted(set(drawn))
    assert Counter(ordered[row][1] for row in drawn) == {"0": 160, "1": 40}
    held_out, rest = means([float(len(text)) for text, _, _ in ordered], drawn)
    assert abs(held_out / rest - 1) < 0.15  # three standard errors
    held_out, rest = means([float(source == "a") for _, _, source in ordered], drawn)
    assert abs(held_out - rest) < 0.11
    assert {ordered[row] for row in drawn} == {
        rows[row] for row in draw_rows([text for text, _, _ in rows], [label for _, label, _ in rows], 0.1)
    }, "the rows decide, not their order"


def test_each_label_gives_its_share_and_keeps_a_row_to_learn_from() -> None:
    """A label of one row would otherwise be held out, and could only be predicted wrongly."""
    labels = ["자주"] * 880 + ["가끔"] * 90 + [f"한 번 {number}" for number in range(30)]
    drawn = Counter(labels[row] for row in draw_rows(texts(1_000), labels, 0.1))
    assert drawn.keys() == {"자주", "가끔"}
    assert drawn.total() == 100
    assert drawn["가끔"] in (9, 10)
    for count in (2, 3, 5):  # of each label
        labels = [str(row // count) for row in range(600)]
        drawn = Counter(labels[row] for row in draw_rows(texts(600), labels, 0.1))
        assert drawn.total() == 60
        assert max(drawn.values()) < count


def test_rows_that_ask_the_same_are_in_the_same_part() -> None:
    """Else the answer to a held-out question is learned: preferences often have several pairs for each prompt."""
    questions = [text for text in texts(300) for _ in range(4)]
    random.Random(2).shuffle(questions)
    spaced = [question.replace(" ", "  ") if row % 2 else question for row, question in enumerate(questions)]
    drawn = set(draw_rows(spaced, [""] * len(spaced), 0.1))
    assert len(drawn) == 120
    assert not {questions[row] for row in drawn} & {questions[row] for row in range(1_200) if row not in drawn}


def test_a_frequent_text_does_not_fill_the_held_out_part() -> None:
    for frequent in range(20):  # among so many texts, some come first in the draw
        questions = [*texts(900), *[f"굿 {frequent}"] * 100]
        assert not {row for row in draw_rows(questions, [""] * 1_000, 0.1) if row >= 900}


def test_few_texts_are_drawn_copy_by_copy() -> None:
    """A table of two texts, one of each label, still has a held-out part; the alarm `repeated` tells of it."""
    questions, labels = ["좋아요", "싫어요"] * 20, ["긍정", "부정"] * 20
    assert Counter(labels[row] for row in draw_rows(questions, labels, 0.1)) == {"긍정": 2, "부정": 2}


def test_a_tiny_table_gives_what_it_has() -> None:
    assert draw_rows(["가", "나"], ["", ""], 0.1) == []
    assert len(draw_rows([*"가나다라마바사아자차"], [""] * 10, 0.1)) == 1
    assert draw_rows(["가"], [""], 0.9) == []
    assert draw_rows(["가", "나"], ["0", "1"], 0.9) == [], "each label has one row"
    assert draw_rows(texts(100), [""] * 100, 0.0) == []


def test_a_row_that_is_not_used_is_not_held_out() -> None:
    questions = ["", "  ", *texts(38)]
    assert not {0, 1} & {*draw_rows(questions, [""] * 40, 0.5)}


def test_a_rare_label_of_a_text_with_several_is_learned() -> None:
    """The text may stand with the rare label alone in one row; held out, that label would be in no training row."""
    for number in range(20):
        questions = [*texts(98), f"글 {number}", f"글 {number}"]
        labels = [*["자주"] * 98, "자주", "드물게"]
        assert 99 not in draw_rows(questions, labels, 0.3)


def test_a_second_table_holds_out_the_same_rows() -> None:
    """Rewards are learned after conversations, on the same questions or a part of them."""
    questions = texts(1_000)
    first = {questions[row] for row in draw_rows(questions, [""] * 1_000, 0.1)}
    part = questions[::2]
    second = {part[row] for row in draw_rows(part, [""] * 500, 0.1)}
    assert len(second & first) >= 0.8 * len(second)
