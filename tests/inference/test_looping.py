"""Answers that repeat themselves end, and right answers do not."""

from __future__ import annotations

import random

import pytest

from jumok.corpora import talk
from jumok.inference.chat import answer_chats
from jumok.inference.generate import generate
from jumok.inference.looping import LONGEST_CYCLE, MIN_CYCLES, MIN_LENGTH, is_looping
from jumok.inference.native.from_torch import pack
from talking_models import looping

ASKED = [[{"role": "user", "content": "안녕"}]]
# Cycles of 1, 3 (the bytes of a syllable that the tokenizer does not have), 5 and 16 tokens.
CYCLES = ("ㅋ", "뷁", "나는 학교", "친구와 집에다.그리고하나둘셋")


def by_definition(ids: list[int]) -> bool:
    """The rule of the docs, by counting whole cycles."""
    for cycle in range(1, LONGEST_CYCLE + 1):
        count = max(MIN_CYCLES, -(-MIN_LENGTH // cycle))
        length = max(MIN_LENGTH, MIN_CYCLES * cycle)
        if len(ids) >= length and ids[-length:] == (ids[-length:][:cycle] * count)[:length]:
            return True
    return False


def test_the_rule_by_its_definition() -> None:
    draw = random.Random(0)
    found = []
    for _ in range(3_000):
        cycle = [draw.randrange(3) for _ in range(draw.choice((1, 2, 3, 7, 17, 40, 128, 129)))]
        length = draw.choice((63, 64, 65, 4 * len(cycle) - 1, 4 * len(cycle), 4 * len(cycle) + 1))
        ids = [draw.randrange(3) for _ in range(draw.randrange(9))] + (cycle * (length // len(cycle) + 1))[:length]
        if draw.randrange(3) == 0:
            ids[draw.randrange(len(ids))] = 9
        found.append(is_looping(ids))
        assert found[-1] == by_definition(ids), ids
    assert 500 < sum(found) < 2_500
    assert not is_looping([])
    assert is_looping([5] * 64)
    assert not is_looping([5] * 63)
    assert not is_looping([1, *range(200)] * 5)


def test_no_right_answer_loops() -> None:
    """An answer that is right must not be ended: not those of the corpus, letter by letter and byte by byte."""
    texts = {
        message.get("reasoning_content", "") + message["content"]
        for row in talk.write(2_000)
        for message in row["messages"]
        if message["role"] == "assistant"
    }
    for text in texts:
        for ids in (list(map(ord, text)), list(text.encode())):
            assert not any(is_looping(ids[:end]) for end in range(MIN_LENGTH, len(ids) + 1)), text


@pytest.mark.parametrize("cycle", CYCLES)
def test_an_answer_that_repeats_itself_ends(cycle: str) -> None:
    """ "안녕" was answered with "안녕히 안안안안…" up to the limit of the tokens."""
    model = looping(cycle)
    length = len(model.tokenizer.encode(cycle))
    [[answer]] = answer_chats(model, ASKED, tokens=400)
    assert answer.finish == "loop"
    assert len(answer.ids) == max(MIN_LENGTH, MIN_CYCLES * length)
    assert answer.text.startswith(cycle * 3)
    [[drawn]] = answer_chats(model, ASKED, tokens=400, temperature=0.8)
    assert drawn.ids == answer.ids
    [[cut]] = answer_chats(model, ASKED, tokens=MIN_LENGTH - 1)
    assert cut.finish == "length"


def test_a_text_that_is_continued_may_repeat_itself() -> None:
    [text] = generate(looping(), "나", tokens=300, temperature=0)
    assert (text.tokens, text.finish) == (300, "length")


@pytest.mark.compile
@pytest.mark.parametrize(("kind", "cycle"), [("char", "뷁"), ("jamo", "하루"), ("bpe", "나는 학교에")])
def test_the_step_in_cpp_ends_where_pytorch_does(
    kind: str, cycle: str, native_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = looping(cycle, kind)
    monkeypatch.setenv("JUMOK_NATIVE", "0")
    expected = answer_chats(model, ASKED, tokens=400)
    assert expected[0][0].finish == "loop"
    monkeypatch.setenv("JUMOK_CACHE", native_cache)
    monkeypatch.delenv("JUMOK_NATIVE")
    assert answer_chats(pack(model, "float32"), ASKED, tokens=400) == expected
