"""What people say first to someone they can talk to, and fitting answers: the everyday part of the corpus `talk`.

`everyday.toml` has the messages by group and intention, and their words. Messages are typed as people type: without
spaces, without a full stop, with a wrong vowel or a ㅋㅋ. Words of a list belong to one part only; so does a message,
except for the shortest, such as 안녕, which everyone types and which all are in the training part.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from jumok.corpora import templates
from jumok.corpora.numbers import read_native, read_number
from jumok.text.hangul import LEADS, VOWELS, is_syllable, join, josa, split

GROUPS = ("everyday", "feelings", "self", "outside")
TOPICS = ("country", "place", "person", "thing", "food", "science", "idea", "event", "job", "work")
WORDS_SHARE = 5  # one of so many words of a list belongs to the test part
MESSAGES_SHARE = 8  # one of so many messages
SHORT = 5  # letters of a message that is in the training part whatever its hash
PAIRS = (("을", "를"), ("이", "가"), ("은", "는"), ("과", "와"))
PARTICLES = {*"을를이가은는과와의도에", "", "하고", "랑", "으로", "에서", "이나"}
ALTERNATIVES = re.compile(r"\(([^()\[\]{}]*)\)")  # none of which has alternatives in it
POLITE = re.compile("(?:요|니다|니까|죠|시오)(?![가-힣])")
VOWELS_MISTAKEN = ("ㅐㅔ", "ㅔㅐ", "ㅗㅜ", "ㅜㅗ", "ㅓㅗ", "ㅛㅕ", "ㅖㅔ", "ㅚㅙ", "ㅏㅑ", "ㅓㅕ")
KEYS = ("ㅁㄴㅇㄹ", "ㅂㅈㄷㄱ", "ㅋㅌㅊㅍ", "ㄹㅇㄴㅁ", "asdf", "qwer", "zxcv", "qwerty", "fdsa", "jkl", "hjkl")

T = TypeVar("T")


class Draw(Protocol):
    """The random choices of one part, in one register (`jumok.corpora.talk`)."""

    test: bool
    casual: bool

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1."""
        ...

    def of(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        ...


Makers = dict[str, Callable[[Any], str]]


def small_talk(
    draw: Draw, groups: Sequence[str], makers: Makers, barred: Sequence[str], first: bool
) -> tuple[str, str, str]:
    """Return a message of the part, its answer and its check.

    Args:
        makers: texts of slots that are made and not listed.
        barred: words that the message does not have, because other skills ask for them in the other part.
        first: nothing was said before, so a message without a register gets a polite answer.
    """
    while True:
        said = _intention(draw, groups)
        common = bool(said["common"]) and draw.below(2) == 0
        template = draw.of(said["common" if common else "ask"])
        text = _with_particles(templates.say(template, draw.casual, _Words(draw, makers), draw.below))
        text = text if common and draw.below(2) else typed(draw, text)
        text = " ".join(text.split())
        if 0 < len(text) <= 80 and _belongs(draw, text) and not any(word in text for word in barred):
            break
    polite = POLITE.search(text) is not None
    casual = draw.casual and not polite and not (first and "[" not in template)
    answer = templates.say(draw.of(said["answer"]), casual, {}, draw.below)
    registers = (casual,) if polite else (casual, not casual)
    accepted = said["answer"] + said.get("also", [])
    check = "|".join(dict.fromkeys(templates.pattern(accepted, register, {}) for register in registers))
    return text, answer, check


def typed(draw: Draw, text: str) -> str:
    """Return a text as people type it: half of the time as it is, otherwise with one or two liberties."""
    if draw.below(2):
        return text
    for _ in range(1 + draw.below(2)):
        text = draw.of(_LIBERTIES)(draw, text)
    return text


def hurried(draw: Draw, text: str) -> str:
    """Return a question of another skill as it is, or now and then without spaces or without its last sign."""
    return draw.of((_closed_up, _without_end, _without_end))(draw, text) if draw.below(5) == 0 else text


@cache
def material() -> dict[str, Any]:
    """Return everyday.toml, in whose templates phrases are replaced by their alternatives."""
    found = tomllib.loads(resources.files("jumok.corpora").joinpath("everyday.toml").read_text(encoding="utf-8"))
    for group in GROUPS:
        for said in found[group]:
            for key in ("common", "ask", "answer", "also"):
                said[key] = [_expanded(template, found["phrases"]) for template in said.get(key, ())]
    return found


def _expanded(template: str, phrases: dict[str, str]) -> str:
    while any("{" + name + "}" in template for name in phrases):
        template = re.sub(r"\{(\w+)\}", lambda slot: phrases.get(slot[1], slot[0]), template)
    return ALTERNATIVES.sub(_marked, template)


def _marked(group: re.Match[str]) -> str:
    """Return alternatives, all of which are particles, in which 을 and 를 are one, <을/를>."""
    options = group[1].split("|")
    if {*options} <= PARTICLES:
        for first, second in PAIRS:
            options = [f"<{first}/{second}>" if one in (first, second) else one for one in options]
        options = list(dict.fromkeys(options))
    return f"({'|'.join(options)})"


def _with_particles(text: str) -> str:
    """Return a text in which each <을/를> fits the word before it."""
    while found := re.search("(.)<(./.)>", text):
        readable = found[1].isalnum() and not "\u3040" < found[1] < "\uabff"
        fitting = josa(found[1], found[2]) if readable else found[1] + found[2][-1]
        text = text[: found.start()] + fitting + text[found.end() :]
    return text


@cache
def _shares(groups: Sequence[str]) -> tuple[list[dict[str, Any]], list[int]]:
    said = [one for group in groups for one in material()[group]]
    return said, list(accumulate(one.get("share", 1) for one in said))


def _intention(draw: Draw, groups: Sequence[str]) -> dict[str, Any]:
    said, bounds = _shares(tuple(groups))
    ticket = draw.below(bounds[-1])
    return next(one for one, bound in zip(said, bounds, strict=True) if ticket < bound)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def _belongs(draw: Draw, text: str) -> bool:
    """Return whether a message belongs to the part; its spaces and signs do not count."""
    letters = "".join(filter(str.isalnum, text))
    return not draw.test if len(letters) <= SHORT else (_hash(letters) % MESSAGES_SHARE == 0) == draw.test


@cache
def words(name: str, test: bool) -> tuple[str, ...]:
    """Return the words of a list, or of all topics, that belong to the part."""
    lists = material()["lists"]
    listed = [word for topic in (TOPICS if name == "topic" else (name,)) for word in lists[topic].split()]
    return tuple(word.replace("_", " ") for word in listed if (_hash(word) % WORDS_SHARE == 0) == test)


class _Words(dict[str, str]):
    """A word for each slot, drawn anew whenever it is asked for."""

    def __init__(self, draw: Draw, makers: Makers) -> None:
        super().__init__()
        self._draw = draw
        self._makers = _MAKERS | makers

    def __missing__(self, slot: str) -> str:
        if slot in self._makers:
            return self._makers[slot](self._draw)
        if slot == "topic" and self._draw.below(9) == 0:
            return _nonsense(self._draw)
        word = self._draw.of(words(slot.rstrip("2"), self._draw.test))
        return word.split("-")[slot.endswith("2")] if "-" in word else word


# --- How people type ------------------------------------------------------------------------------------------------


def _closed_up(draw: Draw, text: str) -> str:
    return "".join(char for char in text if char != " " or draw.below(2))


def _without_spaces(draw: Draw, text: str) -> str:
    return text.replace(" ", "")


def _without_end(draw: Draw, text: str) -> str:
    return text.rstrip(".?!~ ") or text


def _with_tail(draw: Draw, text: str) -> str:
    return text + draw.of(material()["typing"]["tails"].split("|"))


def _with_opener(draw: Draw, text: str) -> str:
    return draw.of(material()["typing"]["openers"].split("|")) + text


def _mistyped(draw: Draw, text: str) -> str:
    """Change the vowel or the final consonant of one syllable."""
    at = draw.below(len(text))
    if not is_syllable(text[at]):
        return text
    lead, vowel, tail = split(text[at])
    wrong = [pair[1] for pair in VOWELS_MISTAKEN if pair[0] == vowel]
    if wrong and draw.below(2):
        vowel = draw.of(wrong)
    elif tail in ("ㅆ", "ㄶ", "ㅎ", "ㄲ", "ㅅ"):
        tail = {"ㅆ": "ㅅ", "ㄶ": "ㄴ", "ㅎ": "", "ㄲ": "ㄱ", "ㅅ": "ㅆ"}[tail]
    elif not tail and at >= len(text) - 3:
        tail = draw.of("ㅇㅁㅇㅅㅇ")
    return text[:at] + join(lead, vowel, tail) + text[at + 1 :]


def _softened(draw: Draw, text: str) -> str:
    """Write a 요 or a 다 at the end as people do."""
    end = {"요": "여용욤염유요", "다": "당다돵", "어": "엉", "야": "양", "해": "행", "지": "징", "네": "넹", "나": "낭"}
    bare = text.rstrip(".?!~ ")
    if not bare or bare[-1] not in end:
        return text
    return bare[:-1] + draw.of(end[bare[-1]]) + text[len(bare) :]


_LIBERTIES = (
    *(_closed_up, _closed_up, _without_spaces, _without_end, _without_end),
    *(_with_tail, _with_opener, _mistyped, _mistyped, _softened),
)


# --- Texts that are made --------------------------------------------------------------------------------------------


@cache
def common_syllables() -> str:
    """Return the 2,350 syllables of the standard KS X 1001."""
    return "".join(bytes((row, cell)).decode("euc_kr") for row in range(0xB0, 0xC9) for cell in range(0xA1, 0xFF))


def _repeated(draw: Draw, chars: Sequence[str], least: int, most: int) -> str:
    return draw.of(chars) * (least + draw.below(most - least + 1))


def _some(draw: Draw, chars: Sequence[str], least: int, most: int) -> str:
    return "".join(draw.of(chars) for _ in range(least + draw.below(most - least + 1)))


def _laugh(draw: Draw) -> str:
    return _repeated(draw, "ㅋㅋㅋㅎ", 1 + draw.below(2), draw.of((4, 8, 20))) + draw.of(
        ("", "", "", "ㅎㅎ", "ㅋㅋ", "큐ㅠ")
    )


def _cry(draw: Draw) -> str:
    return _repeated(draw, "ㅠㅠㅜ", 1, draw.of((3, 6, 14))) + draw.of(("", "", "", "ㅜ", "ㅠ"))


def _mash(draw: Draw) -> str:
    kind = draw.below(4)
    if kind == 0:
        return "".join(draw.of(KEYS) for _ in range(1 + draw.below(2)))
    if kind == 1:
        return _some(draw, LEADS[:15], 3, 9)
    return _some(draw, "abcdefghijklmnopqrstuvwxyz" if kind == 2 else LEADS + VOWELS, 3, 9)


def _nonsense(draw: Draw) -> str:
    if draw.below(4) == 0:
        return _repeated(draw, common_syllables(), 3, 9)
    return _some(draw, common_syllables(), 2, 4)


def _marks(draw: Draw) -> str:
    if draw.below(4) == 0:
        return _some(draw, "?!.~,;:@#$%^&*()_+-=/<>[]{}'\"", 1, 6)
    return _repeated(draw, "??!!..~,;:@#*-=/…", 1, draw.of((3, 6, 12)))


def _emoji(draw: Draw) -> str:
    return _repeated(draw, "😀😂🤣😊😎🤗😄😁😆🙂😉😋🥳👍👏💪🙏🎉🎂🌸🌞🌙⭐🔥🐶🐱🐰🍎🍕🍚☕★☆♪♬☺", 1, 3)


def _numeral(draw: Draw, most: int = 99) -> str:
    number = 1 + draw.below(most)
    return read_number(number) if draw.below(8) == 0 else str(number)


def _large(draw: Draw) -> str:
    number = 100 + draw.below(draw.of((900, 900, 9_900, 999_900)))
    return read_number(number) if draw.below(8) == 0 else str(number)


def _many(draw: Draw) -> str:
    return draw.of((", ", ", ", " ", ",")).join(str(1 + draw.below(99)) for _ in range(4 + draw.below(3)))


def _many_words(draw: Draw) -> str:
    return ", ".join(draw.of(words(draw.of(("thing", "food")), draw.test)) for _ in range(4 + draw.below(3)))


def _english(draw: Draw) -> str:
    word = draw.of(words("english", draw.test))
    return word.capitalize() if draw.below(6) == 0 else word


_MAKERS: Makers = {
    "laugh": _laugh,
    "cry": _cry,
    "mash": _mash,
    "nonsense": _nonsense,
    "marks": _marks,
    "happy_emoji": _emoji,
    "happy_face": lambda draw: draw.of(material()["typing"]["happy"].split()),
    "blank_face": lambda draw: draw.of(material()["typing"]["blank"].split()),
    "number": lambda draw: str(draw.below(draw.of((10, 100, 1_000, 100_000)))),
    "native": lambda draw: read_native(2 + draw.below(18), before_noun=True) + " ",
    "n": lambda draw: _numeral(draw, draw.of((10, 20, 99, 99))),
    "large": _large,
    "counted": lambda draw: read_native(1 + draw.below(50)),
    "many": _many,
    "many_words": _many_words,
    "english": _english,
    "kana": lambda draw: _some(
        draw, "あいうえおかきくけこさしすせそたちつてとなにのはまもやよらりるれをんアイコスタテトラン", 2, 6
    ),
    "hanja": lambda draw: _some(draw, "我你是的不人大中国天好愛水火山月日年学生何今名前東西南北一二三上下小心", 2, 5),
}
