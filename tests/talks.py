"""Small tables of conversations, for tests."""

from __future__ import annotations

import random
from typing import Any

from jumok.text import Table
from jumok.text.conversations import from_conversations

DIGITS = "영일이삼사오육칠팔구"


def said(*contents: str, system: str = "") -> list[dict[str, str]]:
    """Messages of a user and an assistant in turn, perhaps after a system message."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
    return [{"role": "system", "content": system}, *messages] if system else messages


def talks(count: int = 80, seed: int = 1) -> Table:
    """Conversations of one to three questions for digits, some with reasoning, some with a system message."""
    return from_conversations([row(random.Random(seed * 1000 + number)) for number in range(count)], name="talks")


def row(draw: random.Random) -> dict[str, Any]:
    numbers = [str(draw.randrange(10 ** draw.randrange(1, 5))) for _ in range(draw.randrange(1, 4))]
    answers = [" ".join(DIGITS[int(digit)] for digit in number) for number in numbers]
    contents = [text for pair in zip(numbers, answers, strict=True) for text in (f"{pair[0]}을 읽어 줘.", pair[1])]
    messages = said(*contents, system="수를 읽어라." if draw.randrange(4) == 0 else "")
    if draw.randrange(2):
        messages[-1]["reasoning_content"] = f"{len(numbers[-1])}자리"
    skill, checks = ("short", "long")[len(numbers[-1]) > 2], [f"{answer}[.]?" for answer in answers]
    return {"messages": messages, "skill": skill, "checks": checks if draw.randrange(4) else []}
