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

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from fractions import Fraction
from functools import partial
from math import comb
from random import Random
from typing import NamedTuple

from jumok.config import require_range

COLUMNS = ("source", "target")
"""The names of the two columns of `write`."""

LONGEST = 12
"""Digits of the longest plain number of `write`: below 조."""

Pair = tuple[str, str]

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


# --- Pools of pairs, each pair a function of its number in the pool -----------------------------------------------

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
_AREA_CODES = ("02", *(f"0{area}" for area in (31, 32, 33, 41, 42, 43, 44, 51, 52, 53, 54, 55, 61, 62, 63, 64)))


class _Pool(NamedTuple):
    """`size` pairs with different sources; `pair(n)` returns number n."""

    size: int
    pair: Callable[[int], Pair]
    weight: Fraction = Fraction(1)
    amounts: bool = False  # the sources begin with a number that can have commas


def _plain(number: int) -> Pair:
    return str(number), read_number(number)


def _price(coins: int) -> Pair:
    won = 10 * coins  # there is no smaller coin
    return f"{won}원", f"{read_number(won)} 원"


def _sparse(pair: Callable[[int], Pair], digits: int, zeros: int, index: int) -> Pair:
    return pair(_with_zeros(digits, zeros, index))


def _count(phrases: Sequence[str], index: int) -> Pair:
    """Count with a phrase, which is a unit, or a noun and a unit separated by a space."""
    phrase, number = divmod(index, 99)
    noun, space, unit = phrases[phrase].rpartition(" ")
    return f"{noun}{space}{number + 1}{unit}", f"{noun}{space}{read_counted(number + 1, unit)}"


def _numbered(unit: str, index: int) -> Pair:
    return f"{index + 1}{unit}", f"{read_number(index + 1)} {unit}"


def _measure(places: int, index: int) -> Pair:
    index, symbol = divmod(index, len(_MEASURES))
    number = _with_places(index, places) if places else str(index + 1)
    return f"{number}{list(_MEASURES)[symbol]}", f"{read_decimal(number)} {list(_MEASURES.values())[symbol]}"


def _decimal(first: int, places: int, index: int) -> Pair:
    number = _with_places(first + index, places)
    return number, read_decimal(number)


def _percent(places: int, index: int) -> Pair:
    number = _with_places(index, places) if places else str(index)
    return f"{number}%", f"{read_decimal(number)} 퍼센트"


def _fraction(index: int) -> Pair:
    above, below = index // 98 + 1, index % 98 + 2
    return f"{above}/{below}", f"{read_number(below)}분의 {read_number(above)}"


def _date(first: date, with_year: bool, index: int) -> Pair:
    day = date.fromordinal(first.toordinal() + index)
    source = f"{day.month}월 {day.day}일"
    if not with_year:
        return source, read_date(None, day.month, day.day)
    return f"{day.year}년 {source}", read_date(day.year, day.month, day.day)


def _minutes(index: int) -> Pair:
    index, minute = divmod(index, 60)
    return _clock(index, minute, 0)


def _seconds(index: int) -> Pair:
    index, second = divmod(index, 59)
    index, minute = divmod(index, 59)
    return _clock(index, minute + 1, second + 1)


def _clock(face: int, minute: int, second: int) -> Pair:
    """Tell a time by one of 48 faces: the hours 0 to 23, then the hours 1 to 12 with 오전 and with 오후."""
    half = ("", "", "오전 ", "오후 ")[face // 12]
    hour = face % 12 + 1 if half else face
    source = [f"{hour}시", f"{minute}분" if minute else "", f"{second}초" if second else ""]
    return half + " ".join(filter(None, source)), half + read_time(hour, minute, second)


def _mobile(index: int) -> Pair:
    number = f"010-{2_000 + index // 10_000}-{index % 10_000:04}"
    return number, read_phone(number)


def _landline(index: int) -> Pair:
    index, area = divmod(index, len(_AREA_CODES))
    exchange, line = divmod(index, 10_000)
    number = f"{_AREA_CODES[area]}-{200 + exchange if exchange < 800 else 1_200 + exchange}-{line:04}"
    return number, read_phone(number)


def _with_places(index: int, places: int) -> str:
    """Return decimal number `index` with `places` places and no final 0: 0.1, 0.2, ... 0.9, 1.1, ... for one place."""
    whole, fraction = divmod(index, 9 * 10 ** (places - 1))
    return f"{whole}.{fraction // 9 * 10 + fraction % 9 + 1:0{places}}"


def _lengths(pair: Callable[[int], Pair], longest: int) -> list[_Pool]:
    """Return pools of numbers with equally frequent lengths, and equally frequent numbers of zeros for each length.

    With independent random digits, numbers such as 10,000 or 300,000,000, with omitted groups, would be very rare.
    """
    pools = [_Pool(10, pair, amounts=True)]
    for digits in range(2, longest + 1):
        for zeros in range(digits):
            size, numbers = 9 * _ways(digits - 1, zeros), partial(_sparse, pair, digits, zeros)
            pools.append(_Pool(size, numbers, weight=Fraction(1, digits), amounts=True))
    return pools


def _with_zeros(digits: int, zeros: int, index: int) -> int:
    """Return number `index`, in ascending order, of the numbers with `digits` digits of which `zeros` are 0."""
    first, index = divmod(index, _ways(digits - 1, zeros))
    number = first + 1
    for places in reversed(range(digits - 1)):  # after the next digit
        if index < _ways(places, zeros - 1):
            number, zeros = 10 * number, zeros - 1
        else:
            digit, index = divmod(index - _ways(places, zeros - 1), _ways(places, zeros))
            number = 10 * number + digit + 1
    return number


def _ways(places: int, zeros: int) -> int:
    """Return the number of digit strings of length `places` with `zeros` zeros."""
    return comb(places, zeros) * 9 ** (places - zeros) if 0 <= zeros <= places else 0


def _decimal_pool(digits: int, places: int) -> _Pool:
    """Return a pool of decimals with `digits` digits before the point and `places` after it."""
    first, after = (10**length * 9 * 10 ** (places - 1) for length in (digits - 1, digits))
    first = 0 if digits == 1 else first
    return _Pool(after - first, partial(_decimal, first, places), amounts=True)


_PHRASES = [f"{noun} {unit}" for unit, nouns in _COUNTED.items() for noun in nouns.split()]
_YEARS = (date(1000, 1, 1), date(3000, 1, 1))  # the second is excluded

# The share of each kind of pairs in percent, which is divided among its pools by their weights.
_KINDS: list[tuple[int, Sequence[_Pool]]] = [
    # number
    (40, _lengths(_plain, LONGEST)),
    # count
    (10, [_Pool(99 * len(each), partial(_count, each)) for each in (list(_COUNTED), _PHRASES)]),
    # date
    (
        10,
        [
            _Pool(366, partial(_date, date(2000, 1, 1), False)),
            _Pool((_YEARS[1] - _YEARS[0]).days, partial(_date, _YEARS[0], True)),
        ],
    ),
    # price
    (10, _lengths(_price, 8)),
    # time
    (6, [_Pool(48 * 60, _minutes), _Pool(48 * 59 * 59, _seconds)]),
    # phone
    (6, [_Pool(8_000 * 10_000, _mobile), _Pool(8_800 * 10_000 * len(_AREA_CODES), _landline)]),
    # measure
    (
        6,
        [
            *(_Pool(highest, partial(_numbered, unit)) for unit, highest in _NUMBERED.items()),
            *(_Pool(999 * 9**places * len(_MEASURES), partial(_measure, places)) for places in (0, 1)),
        ],
    ),
    # decimal
    (4, [_decimal_pool(digits, places) for digits in range(1, 5) for places in range(1, 4)]),
    # percent
    (4, [_Pool(101, partial(_percent, 0)), *(_Pool(90 * 10**places, partial(_percent, places)) for places in (1, 2))]),
    # fraction
    (4, [_Pool(99 * 98, _fraction)]),
]


# --- The stream ---------------------------------------------------------------------------------------------------


def write(rows: int, seed: int = 0) -> Iterator[Pair]:
    """Yield `rows` pairs of source and target: text with digits, and its reading.

    Plain numbers have the largest share. They have 1 to `LONGEST` digits, with or without commas; all lengths, and all
    numbers of zeros, are about equally frequent. If a pool has too few sources, the others get its share.

    No source occurs twice, not even with and without commas. The mixture is the same from the first row to the last, so
    the last rows can serve as validation data. A longer stream does not begin with a shorter one. Cells contain no tab,
    quotation mark or newline. The same arguments give the same pairs on every platform and Python version, because only
    `random.Random(seed).random()` is used.

    Args:
        rows: number of pairs.

    Raises:
        ConfigError: `rows` or `seed` is negative.
    """
    require_range("rows", rows, 0)
    require_range("seed", seed, 0)
    return _write(_quotas(rows), Random(seed).random)


def _quotas(rows: int) -> list[tuple[_Pool, int]]:
    """Return the number of rows of each pool: its share, or its size if that is smaller."""
    shares = []
    for percent, pools in _KINDS:
        weights = sum((pool.weight for pool in pools), Fraction())
        shares += [(pool, percent * pool.weight / weights) for pool in pools]
    shares.sort(key=lambda entry: entry[0].size / entry[1])  # the first to be exhausted comes first
    left, owed, given = sum((share for _, share in shares), Fraction()), Fraction(rows), 0
    quotas = []
    for pool, share in shares:
        part = min(Fraction(pool.size), owed * share / left)
        owed, left = owed - part, left - share
        quotas.append((pool, rows - round(owed) - given))  # rounding errors do not accumulate
        given = rows - round(owed)
    return quotas[::-1]  # the largest first, which makes drawing fast


def _write(quotas: Sequence[tuple[_Pool, int]], draw: Callable[[], float]) -> Iterator[Pair]:
    orders = [_shuffled(pool.size, draw) for pool, _ in quotas]
    owed = [quota for _, quota in quotas]
    for rows in range(sum(owed), 0, -1):
        at, ticket = 0, int(draw() * rows)
        while ticket >= owed[at]:  # the probability of a pool is proportional to its remaining rows
            ticket -= owed[at]
            at += 1
        owed[at] -= 1
        pool = quotas[at][0]
        source, target = pool.pair(next(orders[at]))
        if pool.amounts and draw() < 0.5:
            source = re.sub("^[0-9]+", lambda digits: f"{int(digits[0]):,}", source)
        yield source, target


def _shuffled(size: int, draw: Callable[[], float]) -> Iterator[int]:
    """Yield the numbers below `size`, each once, in random order, without storing them.

    A counter is permuted by invertible steps modulo a power of two: multiplication by an odd number, addition, and
    exclusive or with its upper half. Results of `size` or more are skipped.
    """
    bits = max(1, (size - 1).bit_length())
    steps = [(int(draw() * 2**53) | 1, int(draw() * 2**53)) for _ in range(4)]
    for count in range(2**bits):
        scrambled = count
        for factor, term in steps:
            scrambled = (scrambled * factor + term) % 2**bits
            scrambled ^= scrambled >> (bits + 1) // 2
        if scrambled < size:
            yield scrambled
