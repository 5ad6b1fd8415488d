"""Refuse Korean words that the texts of jumok avoid: python .ci/words.py

The glossary, docs/ko/glossary.md, names the words to use. Not searched are texts that are data (the corpora, the lists
of Hangul) and output in ```text fences, which may quote a novel.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = ("README.ko.md", "docs", "src/jumok")
DATA = ("src/jumok/corpora/", "src/jumok/text/")
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
    r"돌려(?:주|줍|줬|준|줄)": "write 반환하다 of a function, 보내다 of a server",
    r"행렬 곱(?!셈)": "one word in the glossary: 행렬곱",
    r"표준 편차": "one word: 표준편차",
    r"문맥 길이(?=[가-힣])": "write 컨텍스트 길이",
    r"계수\(rank\)": "write 랭크",
    r"도함수": "write 미분",
    r"검증 부분": "the glossary has 검증용 부분",
    r"답변(?!`)": "write 답",
    r"(?:서른|마흔|쉰|예순|일흔|여든|아흔)[가-힣]{0,2} (?:개|번|장|줄|단계)": "write digits",
    r"(?:첫째|둘째|셋째) (?:열|행|줄|단계|대화|층)": "write 첫 번째, 두 번째, 세 번째",
    r"[가-힣]겠습니다": "a promise; write the sentence in the present",
    r"브래들리-|쿨백-": "names are joined by –",
    r"(?:은\(는\)|이\(가\)|을\(를\)|와\(과\)|\(으\)로)": "write the sentence so that no particle depends on a value",
}


def faults(text: str) -> list[tuple[int, str, str]]:
    """Return each avoided expression of a text: its line, itself, and what to write instead."""
    text = OUTPUT.sub(lambda fence: "\n" * fence[0].count("\n"), text)
    found = [(match, reason) for pattern, reason in AVOIDED.items() for match in re.finditer(pattern, text)]
    return sorted((text.count("\n", 0, match.start()) + 1, match[0], reason) for match, reason in found)


def main() -> int:
    """Print the faults of all texts; 1 if there are any."""
    found = 0
    for place in SEARCHED:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in SUFFIXES and file.is_file() and not name.startswith(DATA):
                for line, word, reason in faults(file.read_text(encoding="utf-8")):
                    print(f"{name}:{line}: {word!r}: {reason}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
