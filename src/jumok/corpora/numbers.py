"""The built-in pairs `numbers`: text with digits, and its reading in Korean.

`1,234,567` is 백이십삼만사천오백육십칠, `고양이 3마리` is 고양이 세 마리, and `6월 5일` is 유월 오일. The pairs are
data for a sequence-to-sequence task without a download. Each reading follows from rules:

- Sino-Korean numerals (일, 이, 삼) have groups of four digits: 만, 억, 조, 경. 일 is omitted before 십, 백 and 천, and
  before 만 at the beginning: 10,000 is 만 and 110,000 is 십일만, but 100,000,000 is 일억 and 100,010,000 is 일억일만. A
  group of zeros is omitted; zero alone is 영.
- A numeral is one word. Hangul Orthography 44 separates its groups (백이십삼만 사천오백육십칠), except in amounts of
  money. Here they are always joined, so that numbers and prices have the same reading.
- A unit is a separate word (Orthography 43: 세 마리, 오 킬로미터, 만이천오백 원). 년, 월 and 일 of a date are joined to
  their numerals, which the rule allows for ordinal meanings. 분 of a fraction is a suffix: 삼분의 이.
- The unit determines native (하나, 둘, 셋) or Sino-Korean numerals: 20살 is 스무 살, 20세 is 이십 세. Before a
  noun 하나, 둘, 셋, 넷 and 스물 are 한, 두, 세, 네 and 스무; 1번째 is 첫 번째. Native numerals end at 99.
- Hours from 1 to 12 are native; hours 0 and 13 to 23, minutes and seconds are not: 세 시 이십오 분, 십오 시.
- June and October are 유월 and 시월 (Orthography 52).
- The digits after a decimal point and in telephone numbers are read one by one. Zero is 영 in decimals and 공 in
  telephone numbers.

The Orthography is 한글 맞춤법 of the National Institute of Korean Language
(https://korean.go.kr/kornorms/main/main.do). The use of 일 and the numerals of units follow common usage, as taught in
schools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from random import Random
from typing import TypeVar

from jumok.config import require_count
from jumok.memory import require_memory
from jumok.messages import message

COLUMNS = ("source", "target")
"""The names of the two columns of `write`."""

LONGEST = 12
"""Digits of the longest plain number of `write`: below 조."""

BYTES_PER_PAIR = 400  # in memory

Pair = tuple[str, str]
T = TypeVar("T")

_DIGITS = "영일이삼사오육칠팔구"
_NATIVE_ONES = ("", "하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉")
_NATIVE_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_BEFORE_NOUN = {"하나": "한", "둘": "두", "셋": "세", "넷": "네"}
_MONTHS = {6: "유월", 10: "시월"}


# --- Readings -----------------------------------------------------------------------------------------------------


def read_number(number: int) -> str:
    """Return the Sino-Korean reading of 0 to 10^20 - 1, as one word; 경 is the highest unit.

    >>> read_number(1_234_567), read_number(10_000), read_number(100_010_000), read_number(0)
    ('백이십삼만사천오백육십칠', '만', '일억일만', '영')
    """
    if number == 0:
        return "영"
    read, rest = "", number
    for unit in ("", "만", "억", "조", "경"):
        rest, group = divmod(rest, 10_000)
        opens_with_man = unit == "만" and group == 1 and rest == 0
        if group:
            read = ("" if opens_with_man else _read_group(group)) + unit + read
    return read


def read_native(number: int, *, before_noun: bool = False) -> str:
    """Return the native reading of 1 to 99, alone or before a noun.

    >>> read_native(99), read_native(20), read_native(20, before_noun=True), read_native(21, before_noun=True)
    ('아흔아홉', '스물', '스무', '스물한')
    """
    tens, ones = _NATIVE_TENS[number // 10], _NATIVE_ONES[number % 10]
    if not before_noun:
        return tens + ones
    return "스무" if number == 20 else tens + _BEFORE_NOUN.get(ones, ones)


def read_digits(digits: str, *, zero: str = "영") -> str:
    """Return one syllable for each digit: 이공이사 for "2024" with `zero="공"`."""
    return "".join(zero if digit == "0" else _DIGITS[int(digit)] for digit in digits)


def read_decimal(decimal: str) -> str:
    """Return the reading of a decimal number; digits after the point are read one by one.

    >>> read_decimal("3.14"), read_decimal("1000.05")
    ('삼 점 일사', '천 점 영오')
    """
    whole, point, fraction = decimal.partition(".")
    read = read_number(int(whole))
    return f"{read} 점 {read_digits(fraction)}" if point else read


def read_counted(number: int, unit: str) -> str:
    """Return the reading of 1 to 99 with a unit that takes native numerals: 스무 살, 세 마리, 첫 번째."""
    if number == 1 and unit == "번째":
        return "첫 번째"
    return f"{read_native(number, before_noun=True)} {unit}"


def read_date(year: int | None, month: int, day: int) -> str:
    """Return the reading of a date; with year=None, without a year.

    >>> read_date(2024, 3, 1), read_date(None, 10, 6)
    ('이천이십사년 삼월 일일', '시월 육일')
    """
    parts = [] if year is None else [f"{read_number(year)}년"]
    return " ".join([*parts, _MONTHS.get(month, f"{read_number(month)}월"), f"{read_number(day)}일"])


def read_time(hour: int, minute: int = 0, second: int = 0) -> str:
    """Return the reading of a time of day with hours 0 to 23; minutes and seconds of 0 are omitted.

    >>> read_time(3, 25), read_time(15), read_time(12, 0, 7)
    ('세 시 이십오 분', '십오 시', '열두 시 칠 초')
    """
    parts = [read_counted(hour, "시") if 1 <= hour <= 12 else f"{read_number(hour)} 시"]
    parts += [f"{read_number(value)} {unit}" for value, unit in ((minute, "분"), (second, "초")) if value]
    return " ".join(parts)


def read_phone(number: str) -> str:
    """Return the reading of a telephone number: 공일공 일이삼사 오육칠팔 for "010-1234-5678"."""
    return " ".join(read_digits(part, zero="공") for part in number.split("-"))


def _read_group(group: int) -> str:
    """Return the reading of 1 to 9999."""
    read = ""
    for place, unit in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = group // place % 10
        if digit:
            read += ("" if digit == 1 and unit else _DIGITS[digit]) + unit
    return read


# --- Pairs at random ----------------------------------------------------------------------------------------------

# Units that take native numerals, and nouns that they count. Not included are units before which both 석 and 세 are
# used (종이 석 장, 석 달), and units with both numerals (3번 is 세 번, three times, or 삼 번, number three).
_COUNTED = {
    "개": "사과 달걀 의자 가방 문제",
    "마리": "고양이 강아지 토끼 참새 물고기",
    "명": "학생 아이 손님 배우",
    "권": "책 공책 소설",
    "대": "버스 자동차 자전거",
    "송이": "장미 국화 포도",
    "그루": "나무 소나무",
    "켤레": "양말 구두 운동화",
    "벌": "옷 한복",
    "병": "물 우유 간장",
    "잔": "커피 녹차",
    "그릇": "밥 국수 비빔밥",
    "채": "집 한옥",
    "자루": "연필 붓",
    "통": "편지 수박",
    "가지": "방법 반찬",
    "곳": "식당 도시",
    "살": "",
    "번째": "",
}
# Units that take Sino-Korean numerals, and the largest number to use with each.
_NUMBERED = {"세": 120, "층": 120, "도": 360, "개월": 99, "인분": 99, "페이지": 999, "학년": 6}
_MEASURES = {
    "km": "킬로미터",
    "m": "미터",
    "cm": "센티미터",
    "mm": "밀리미터",
    "kg": "킬로그램",
    "g": "그램",
    "L": "리터",
    "mL": "밀리리터",
}
_AREA_CODES = ["02", *(f"0{area}" for area in (31, 32, 33, 41, 42, 43, 44, 51, 52, 53, 54, 55, 61, 62, 63, 64))]


_PHRASES = [f"{noun} {unit}" for unit, nouns in _COUNTED.items() for noun in nouns.split()]


class _Draw:
    """Random numbers, and the pairs made of them: a source, and its reading."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def below(self, bound: int) -> int:
        return int(self._random() * bound)

    def of(self, options: list[T]) -> T:
        return options[self.below(len(options))]

    def shuffle(self, rows: list[T]) -> None:
        for last in range(len(rows) - 1, 0, -1):
            other = self.below(last + 1)
            rows[last], rows[other] = rows[other], rows[last]

    def _of_any_length(self, longest: int) -> int:
        """Return a number whose length is equally likely, and for each length its number of zeros.

        With independent random digits, numbers such as 10,000 or 300,000,000, with omitted groups, would be very rare.
        """
        length = 1 + self.below(longest)
        if length == 1:
            return self.below(10)
        zeros = self.below(length)
        rest = [0] * zeros + [1 + self.below(9) for _ in range(length - 1 - zeros)]
        self.shuffle(rest)
        return int("".join(map(str, [1 + self.below(9), *rest])))

    def _with_places(self, whole: int | str, places: int) -> str:
        """Return a decimal number with so many places and no final 0."""
        return f"{whole}.{10 * self.below(10 ** (places - 1)) + 1 + self.below(9):0{places}}"

    def _written(self, number: int) -> str:
        return f"{number:,}" if self.below(2) else str(number)

    def number(self) -> Pair:
        number = self._of_any_length(LONGEST)
        return self._written(number), read_number(number)

    def price(self) -> Pair:
        won = 10 * self._of_any_length(8)  # there is no smaller coin
        return f"{self._written(won)}원", f"{read_number(won)} 원"

    def count(self) -> Pair:
        noun, space, unit = self.of(self.of([list(_COUNTED), _PHRASES])).rpartition(" ")
        number = 1 + self.below(99)
        return f"{noun}{space}{number}{unit}", f"{noun}{space}{read_counted(number, unit)}"

    def date(self) -> Pair:
        first, last = self.of([(date(2000, 1, 1), date(2001, 1, 1)), (date(1000, 1, 1), date(3000, 1, 1))])
        day = date.fromordinal(first.toordinal() + self.below((last - first).days))
        source = f"{day.month}월 {day.day}일"
        if first.year == 2000:
            return source, read_date(None, day.month, day.day)
        return f"{day.year}년 {source}", read_date(day.year, day.month, day.day)

    def time(self) -> Pair:
        """Return one of the hours 0 to 23, or of 1 to 12 with 오전 or 오후; with minutes, or also with seconds."""
        half = self.of(["", "", "오전 ", "오후 "])
        hour = 1 + self.below(12) if half else self.below(24)
        minute, second = self.of([(self.below(60), 0), (1 + self.below(59), 1 + self.below(59))])
        source = [f"{hour}시", f"{minute}분" if minute else "", f"{second}초" if second else ""]
        return half + " ".join(filter(None, source)), half + read_time(hour, minute, second)

    def phone(self) -> Pair:
        line = f"{self.below(10_000):04}"
        mobile = f"010-{2_000 + self.below(8_000)}-{line}"
        exchange = self.below(8_800)
        landline = f"{self.of(_AREA_CODES)}-{exchange + (200 if exchange < 800 else 1_200)}-{line}"
        number = self.of([mobile, landline])
        return number, read_phone(number)

    def measure(self) -> Pair:
        kind = self.below(len(_NUMBERED) + 2)
        if kind < len(_NUMBERED):
            unit, highest = list(_NUMBERED.items())[kind]
            number = 1 + self.below(highest)
            return f"{number}{unit}", f"{read_number(number)} {unit}"
        symbol, unit = self.of(list(_MEASURES.items()))
        text = str(1 + self.below(999)) if kind == len(_NUMBERED) else self._with_places(self.below(999), 1)
        return f"{text}{symbol}", f"{read_decimal(text)} {unit}"

    def decimal(self) -> Pair:
        digits = 1 + self.below(4)
        lowest = 10 ** (digits - 1) if digits > 1 else 0
        number = self._with_places(self._written(lowest + self.below(10**digits - lowest)), 1 + self.below(3))
        return number, read_decimal(number.replace(",", ""))

    def percent(self) -> Pair:
        places = self.below(3)
        number = self._with_places(self.below(100), places) if places else str(self.below(101))
        return f"{number}%", f"{read_decimal(number)} 퍼센트"

    def fraction(self) -> Pair:
        above, below = 1 + self.below(99), 2 + self.below(98)
        return f"{above}/{below}", f"{read_number(below)}분의 {read_number(above)}"


_SHARES: dict[Callable[[_Draw], Pair], int] = {  # in percent
    _Draw.number: 40,
    _Draw.count: 10,
    _Draw.date: 10,
    _Draw.price: 10,
    _Draw.time: 6,
    _Draw.phone: 6,
    _Draw.measure: 6,
    _Draw.decimal: 4,
    _Draw.percent: 4,
    _Draw.fraction: 4,
}
_KINDS = [kind for kind, share in _SHARES.items() for _ in range(share)]


# --- The stream ---------------------------------------------------------------------------------------------------


def write(rows: int, seed: int = 0) -> Iterator[Pair]:
    """Yield `rows` pairs of source and target: text with digits, and its reading.

    Plain numbers have the largest share. They have 1 to `LONGEST` digits, with or without commas; all lengths, and all
    numbers of zeros, are about equally frequent. A kind of which all pairs are drawn leaves its share to the others.

    No source occurs twice, not even with and without commas. The mixture is the same from the first row to the last, so
    the last rows can serve as validation data. A longer stream does not begin with a shorter one. Cells contain no tab,
    quotation mark or newline. The same arguments give the same pairs on every platform and Python version, because only
    `random.Random(seed).random()` is used.

    Args:
        rows: number of pairs, which are all drawn before the first one is yielded.

    Raises:
        ConfigError: `rows` or `seed` is negative, or the pairs do not fit into the memory.
    """
    require_count("rows", rows, 0)
    require_count("seed", seed, 0)
    require_memory(BYTES_PER_PAIR * rows, message("pairs of numbers"))
    return _write(rows, _Draw(seed))


def _write(rows: int, draw: _Draw) -> Iterator[Pair]:
    found: dict[str, str] = {}  # sources by their readings, which are those of one source, with or without commas
    while len(found) < rows:
        source, target = draw.of(_KINDS)(draw)
        found[target] = source
    pairs = [(source, target) for target, source in found.items()]
    draw.shuffle(pairs)  # kinds with few pairs are drawn to their end first
    yield from pairs
