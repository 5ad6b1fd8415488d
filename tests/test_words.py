"""Words that the Korean texts avoid, each with the reason: in the documentation, the chapters, the exercises, the
messages and the viewer.

The glossary, docs/ko/glossary.md, names the words to use. Not searched are texts that are data: the corpora, the lists
of Hangul, and output in ```text fences, which may quote a novel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("README.ko.md", "docs", "src/jumok")
DATA = ("src/jumok/corpora/", "src/jumok/text/", "src/jumok/course/chapters/text/")  # the last is a link to docs/learn
SUFFIXES = {".md", ".py", ".toml", ".js", ".html"}
OUTPUT = re.compile(r"^```text\n.*?^```$", re.MULTILINE | re.DOTALL)

AVOIDED = {  # a pattern -> why it is avoided, or what to write instead
    r"거든요": "a spoken ending; write -기 때문입니다 or leave the reason to the next sentence",
    r"[가-힣](?:지요|죠)(?![가-힣])": "a spoken ending; write -ㅂ니다",
    r"까닭": "write 이유",
    r"견[주줘준줄줍]": "write 비교하다",
    r"(?<![뺄덧곱눗])셈(?![가-힣]*(?:틀|법))": "write 것이다, or 세다 for counting",
    r"배울 것 ?없": "write 학습 파라미터가 없는",
    r"지난 것들": "write 이전 토큰들",
    r"눈길": "a matrix has no eyes; write 어텐션 or 어텐션 가중치",
    r"버젓이": "a comment, not a fact; say what the number is",
    r"(?<![가-힣])제 몫": "a matrix owns nothing; write 가중치 with what it weighs",
    r"널을? ?뛰": "an idiom; write 크게 달라지다",
    r"무엇으로 찾아지": "write 나는 어떤 정보를 갖고 있는가",
    r"문맥 벡터": "the glossary has 컨텍스트 벡터",
    r"다중 헤드": "the glossary has 헤드; write 멀티헤드",
}


def texts() -> Iterator[tuple[str, str]]:
    """The name and the text of each file that is searched."""
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in SUFFIXES and not name.startswith(DATA):
                text = file.read_text(encoding="utf-8")
                yield name, OUTPUT.sub(lambda fence: "\n" * fence[0].count("\n"), text)


def avoided(text: str) -> list[tuple[int, str, str]]:
    """Each avoided expression: its line, from 1, itself, and what to write instead."""
    found = [(match, reason) for pattern, reason in AVOIDED.items() for match in re.finditer(pattern, text)]
    return sorted((text.count("\n", 0, match.start()) + 1, match[0], reason) for match, reason in found)


FILES = dict(texts())


@pytest.mark.parametrize("name", [name for name, text in FILES.items() if re.search("[가-힣]", text)])
def test_a_text_uses_the_words_of_the_field(name: str) -> None:
    assert [f"{name}:{line}: {word!r}: {reason}" for line, word, reason in avoided(FILES[name])] == []


def test_what_is_searched() -> None:
    """Each kind of text that readers see, so that a moved folder does not silently leave the search."""
    for name in (
        "README.ko.md", "docs/ko/training.md", "docs/learn/README.md", "docs/learn/ko/03-queries-keys-values.md",
        "docs/learn/ko/ladder.md", "src/jumok/messages/ko.toml", "src/jumok/course/ladder/words.toml",
        "src/jumok/course/practice/exercises/softmax.py", "src/jumok/course/practice/hints/dot_product.toml",
        "src/jumok/course/practice/checks/dot_product.py", "src/jumok/view/assets/viewer/words.toml",
    ):  # fmt: skip
        assert re.search("[가-힣]", FILES[name]), name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("이미 봤거든요.", ["거든요"]),
        ("같지요? 그렇죠!", ["같지요", "렇죠"]),
        ("덧셈, 뺄셈, 곱셈과 나눗셈", []),
        ("합을 구한 셈입니다", ["셈"]),
        ("이미지 요약과 필요한 까닭", ["까닭"]),
        ("둘을 견주면\n눈길", ["견주", "눈길"]),
        ("문제 몫, 저마다 제 몫을", ["제 몫"]),
        ("배울 것 없는 어텐션", ["배울 것 없"]),
    ],
)
def test_words_are_recognised(text: str, words: list[str]) -> None:
    """In their forms, and not in other words that contain them."""
    assert [word for _, word, _ in avoided(text)] == words


def test_the_line_is_named_and_output_is_not_searched() -> None:
    assert avoided("하나\n둘\n까닭") == [(3, "까닭", "write 이유")]
    fenced = "```text\n까닭\n```\n\n눈길\n"
    assert OUTPUT.sub(lambda fence: "\n" * fence[0].count("\n"), fenced) == "\n\n\n\n눈길\n"
