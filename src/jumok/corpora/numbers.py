"""The built-in pairs: text with digits, and how it is read aloud in Korean, with exact answers and without end.

`1,234,567` is 백이십삼만사천오백육십칠, `고양이 3마리` is 고양이 세 마리, `6월 5일` is 유월 오일. So there is a task to
learn from pairs of texts offline, and each answer is settled by rule:

- Sino-Korean numerals (일, 이, 삼) go by groups of four digits: 만, 억, 조, 경. 일 is not said before 십, 백 and 천,
  nor before 만 where that opens the number: 10,000 is 만 and 110,000 is 십일만, but 100,000,000 is 일억 and
  100,010,000 is 일억일만. A group of zeros is not said; zero alone is 영.
- A numeral is one word. Hangul Orthography 44 parts its groups (백이십삼만 사천오백육십칠), save in amounts of money;
  here they are joined everywhere, so that a number and a price are read alike.
- A unit is a word of its own (Orthography 43: 세 마리, 오 킬로미터, 만이천오백 원). 년, 월 and 일 of a date are joined
  to their numerals, as the same rule allows where order is meant. 분 of a fraction is a suffix: 삼분의 이.
- The unit decides between native (하나, 둘, 셋) and Sino-Korean numerals: 20살 is 스무 살, 20세 is 이십 세. Before a
  noun 하나, 둘, 셋, 넷 and 스물 are 한, 두, 세, 네 and 스무; 1번째 is 첫 번째. Native numerals end at 99.
- Hours from 1 to 12 are native; 0 and 13 to 23 are not, nor are minutes and seconds: 세 시 이십오 분, 십오 시.
- June and October are 유월 and 시월 (Orthography 52).
- After the point of a decimal and in telephone numbers digits are read one by one; zero is 영 there and 공 here.

The Orthography is 한글 맞춤법 of the National Institute of Korean Language
(https://korean.go.kr/kornorms/main/main.do); where 일 is said and which numerals a unit takes is usage, as it is
taught in schools.
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

from jumok.config import require_choice
from jumok.errors import ConfigError
from jumok.messages import tr

COLUMNS = ("source", "target")
"""The names of the two columns that `write` gives."""

LIMIT = 10**20
"""The first number without a reading here; 경 is the highest unit."""

LONGEST = 12
"""Digits of the longest plain number that `write` gives: below 조."""

Pair = tuple[str, str]

_DIGITS = "영일이삼사오육칠팔구"
_NATIVE_ONES = ("", "하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉")
_NATIVE_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_BEFORE_NOUN = {"하나": "한", "둘": "두", "셋": "세", "넷": "네"}
_MONTHS = {6: "유월", 10: "시월"}


# --- How numbers are read -----------------------------------------------------------------------------------------


def read_number(number: int) -> str:
    """The Sino-Korean reading of 0 to 10^20 - 1, in one word.

    >>> read_number(1_234_567), read_number(10_000), read_number(100_010_000), read_number(0)
    ('백이십삼만사천오백육십칠', '만', '일억일만', '영')
    """
    _check("number", number, 0, LIMIT - 1)
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
    """The native reading of 1 to 99, alone or as it stands before a noun.

    >>> read_native(99), read_native(20), read_native(20, before_noun=True), read_native(21, before_noun=True)
    ('아흔아홉', '스물', '스무', '스물한')
    """
    _check("number", number, 1, 99)
    tens, ones = _NATIVE_TENS[number // 10], _NATIVE_ONES[number % 10]
    if not before_noun:
        return tens + ones
    return "스무" if number == 20 else tens + _BEFORE_NOUN.get(ones, ones)


def read_digits(digits: str, *, zero: str = "영") -> str:
    """One syllable for each digit: 이공이사 for "2024" with `zero="공"`."""
    if not re.fullmatch("[0-9]+", digits):
        raise ConfigError("digits={digits!r} is not a row of digits from 0 to 9", digits=digits)
    return "".join(zero if digit == "0" else _DIGITS[int(digit)] for digit in digits)


def read_decimal(decimal: str) -> str:
    """The reading of a number with digits after a point, which are read one by one; commas may group those before it.

    >>> read_decimal("3.14"), read_decimal("1,000.05")
    ('삼 점 일사', '천 점 영오')
    """
    whole, point, fraction = decimal.partition(".")
    if not re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+|[0-9]+", whole) or (point and not fraction):
        raise ConfigError("decimal={decimal!r} is not a number such as 3.14 or 1,000.05", decimal=decimal)
    read = read_number(int(whole.replace(",", "")))
    return f"{read} 점 {read_digits(fraction)}" if point else read


def read_counted(number: int, unit: str) -> str:
    """1 to 99 of a unit that takes native numerals: 스무 살, 세 마리, 첫 번째."""
    if number == 1 and unit == "번째":
        return "첫 번째"
    return f"{read_native(number, before_noun=True)} {unit}"


def read_date(year: int | None, month: int, day: int) -> str:
    """A date, with its year or, if that is None, without.

    >>> read_date(2024, 3, 1), read_date(None, 10, 6)
    ('이천이십사년 삼월 일일', '시월 육일')
    """
    try:
        date(2000 if year is None else year, month, day)  # a leap year, so that 29 February is a day
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(
            "year={year!r}, month={month!r}, day={day!r} is not a date: {error}",
            year=year,
            month=month,
            day=day,
            error=error,
        ) from None
    parts = [] if year is None else [f"{read_number(year)}년"]
    return " ".join([*parts, _MONTHS.get(month, f"{read_number(month)}월"), f"{read_number(day)}일"])


def read_time(hour: int, minute: int = 0, second: int = 0) -> str:
    """A time of day of hours 0 to 23; minutes and seconds of 0 are not said.

    >>> read_time(3, 25), read_time(15), read_time(12, 0, 7)
    ('세 시 이십오 분', '십오 시', '열두 시 칠 초')
    """
    for name, value, highest in (("hour", hour, 23), ("minute", minute, 59), ("second", second, 59)):
        _check(name, value, 0, highest)
    parts = [read_counted(hour, "시") if 1 <= hour <= 12 else f"{read_number(hour)} 시"]
    parts += [f"{read_number(value)} {unit}" for value, unit in ((minute, "분"), (second, "초")) if value]
    return " ".join(parts)


def read_phone(number: str) -> str:
    """A telephone number with hyphens: 공일공 일이삼사 오육칠팔 for "010-1234-5678"."""
    return " ".join(read_digits(part, zero="공") for part in number.split("-"))


def _read_group(group: int) -> str:
    """The reading of 1 to 9999."""
    read = ""
    for place, unit in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = group // place % 10
        if digit:
            read += ("" if digit == 1 and unit else _DIGITS[digit]) + unit
    return read


def _check(name: str, value: int, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise ConfigError(
            "{name}={value!r} is not a whole number from {lowest:,} to {highest:,}",
            name=name,
            value=value,
            lowest=lowest,
            highest=highest,
        )


# --- What is read: pools of pairs, each a function of its place in the pool ---------------------------------------

# Units that take native numerals, and what is counted by them. Left out are those before which 석 and 넉 compete with
# 세 and 네 (종이 석 장, 석 달), and those that take both (3번 is 세 번, three times, or 삼 번, the third).
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
# Korean units that take Sino-Korean numerals, and the highest number to write before each.
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
    """`size` pairs, each with another source; `pair(n)` gives number n."""

    size: int
    pair: Callable[[int], Pair]
    weight: Fraction = Fraction(1)
    amounts: bool = False  # the sources begin with a number that may be written with commas


class _Kind(NamedTuple):
    """What `write` may be asked for: its share of the rows in percent, which its pools divide by their weights."""

    share: int
    pools: Sequence[_Pool]


def _plain(number: int) -> Pair:
    return str(number), read_number(number)


def _price(coins: int) -> Pair:
    won = 10 * coins  # there is no smaller coin
    return f"{won}원", f"{read_number(won)} 원"


def _sparse(pair: Callable[[int], Pair], digits: int, zeros: int, index: int) -> Pair:
    return pair(_with_zeros(digits, zeros, index))


def _count(phrases: Sequence[str], index: int) -> Pair:
    """`phrases` are a unit each, or a noun, a space and its unit."""
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
    """Of 48 `face`s, half are the hours 0 to 23, half are 1 to 12 before and after noon."""
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
    """The decimals with so many places and no 0 at the end, in order: 0.1, 0.2, ... 0.9, 1.1, ... for one place."""
    whole, fraction = divmod(index, 9 * 10 ** (places - 1))
    return f"{whole}.{fraction // 9 * 10 + fraction % 9 + 1:0{places}}"


def _lengths(pair: Callable[[int], Pair], longest: int) -> list[_Pool]:
    """Pools of numbers in which all lengths are as frequent, and so is each count of zeros within a length.

    Digits drawn at random would hardly ever give 10,000 or 300,000,000, and nobody would learn what is not said.
    """
    pools = [_Pool(10, pair, amounts=True)]
    for digits in range(2, longest + 1):
        for zeros in range(digits):
            size, numbers = 9 * _ways(digits - 1, zeros), partial(_sparse, pair, digits, zeros)
            pools.append(_Pool(size, numbers, weight=Fraction(1, digits), amounts=True))
    return pools


def _with_zeros(digits: int, zeros: int, index: int) -> int:
    """Number `index`, from the smallest on, of those with so many digits and so many of them 0."""
    first, index = divmod(index, _ways(digits - 1, zeros))
    number = first + 1
    for places in reversed(range(digits - 1)):  # that follow the next digit
        if index < _ways(places, zeros - 1):
            number, zeros = 10 * number, zeros - 1
        else:
            digit, index = divmod(index - _ways(places, zeros - 1), _ways(places, zeros))
            number = 10 * number + digit + 1
    return number


def _ways(places: int, zeros: int) -> int:
    """How many rows of digits have so many places, so many of them 0."""
    return comb(places, zeros) * 9 ** (places - zeros) if 0 <= zeros <= places else 0


def _decimal_pool(digits: int, places: int) -> _Pool:
    """Decimals with so many digits before the point and so many after it."""
    first, after = (10**length * 9 * 10 ** (places - 1) for length in (digits - 1, digits))
    first = 0 if digits == 1 else first
    return _Pool(after - first, partial(_decimal, first, places), amounts=True)


_PHRASES = [f"{noun} {unit}" for unit, nouns in _COUNTED.items() for noun in nouns.split()]
_YEARS = (date(1000, 1, 1), date(3000, 1, 1))  # the second is not among the dates

_KINDS = {
    "number": _Kind(40, _lengths(_plain, LONGEST)),
    "count": _Kind(10, [_Pool(99 * len(each), partial(_count, each)) for each in (list(_COUNTED), _PHRASES)]),
    "date": _Kind(
        10,
        [
            _Pool(366, partial(_date, date(2000, 1, 1), False)),
            _Pool((_YEARS[1] - _YEARS[0]).days, partial(_date, _YEARS[0], True)),
        ],
    ),
    "price": _Kind(10, _lengths(_price, 8)),
    "time": _Kind(6, [_Pool(48 * 60, _minutes), _Pool(48 * 59 * 59, _seconds)]),
    "phone": _Kind(6, [_Pool(8_000 * 10_000, _mobile), _Pool(8_800 * 10_000 * len(_AREA_CODES), _landline)]),
    "measure": _Kind(
        6,
        [
            *(_Pool(highest, partial(_numbered, unit)) for unit, highest in _NUMBERED.items()),
            *(_Pool(999 * 9**places * len(_MEASURES), partial(_measure, places)) for places in (0, 1)),
        ],
    ),
    "decimal": _Kind(4, [_decimal_pool(digits, places) for digits in range(1, 5) for places in range(1, 4)]),
    "percent": _Kind(
        4, [_Pool(101, partial(_percent, 0)), *(_Pool(90 * 10**places, partial(_percent, places)) for places in (1, 2))]
    ),
    "fraction": _Kind(4, [_Pool(99 * 98, _fraction)]),
}

KINDS = tuple(_KINDS)
"""What `write` can give."""


# --- The stream ---------------------------------------------------------------------------------------------------


def write(rows: int, seed: int = 0, kinds: Sequence[str] | None = None) -> Iterator[Pair]:
    """`rows` pairs of source and target, as a stream: text with digits, and how it is read.

    `kinds` are some of `KINDS`, by default all. Plain numbers have the largest share; they are written with or without
    commas, and short and long ones (1 to `LONGEST` digits), round and crooked ones are as frequent, so far as there are
    such. What runs out of sources leaves its share to the rest.

    No source occurs twice, and no number with and without commas, however many rows there are. The mixture is the same
    from the first row to the last, so that the end of a stream is as good a held-out part as any. All arguments decide:
    a stream is not the beginning of a longer one. Cells have no tab, quote or newline. The same arguments give the same
    pairs on every platform and Python version: only `random.Random(seed).random()` is drawn from.

    Raises `ConfigError` for `rows` or `seed` below 0, an unknown kind, and more rows than the kinds have sources.
    """
    for name, value in (("rows", rows), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError("{name}={value!r} is not a whole number of 0 or more", name=name, value=value)
    names = KINDS if kinds is None else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for name in names:
        require_choice("kind", name, KINDS)
    chosen = [_KINDS[name] for name in dict.fromkeys(names)]
    size = sum(pool.size for kind in chosen for pool in kind.pools)
    if rows > size:
        raise ConfigError(
            "rows={rows}: there are {size:,} different sources of {kinds}; ask for fewer rows, or for more kinds",
            rows=rows,
            size=size,
            kinds=", ".join(names) or tr("no kind"),
        )
    return _write(_quotas(chosen, rows), Random(seed).random)


def _quotas(kinds: Sequence[_Kind], rows: int) -> list[tuple[_Pool, int]]:
    """How many rows each pool gives: its share, or all it has where that is less and leaves more to the others."""
    shares = []
    for kind in kinds:
        weights = sum((pool.weight for pool in kind.pools), Fraction())
        shares += [(pool, kind.share * pool.weight / weights) for pool in kind.pools]
    shares.sort(key=lambda entry: entry[0].size / entry[1])  # from the first that is used up to the last
    left, owed, given = sum((share for _, share in shares), Fraction()), Fraction(rows), 0
    quotas = []
    for pool, share in shares:
        part = min(Fraction(pool.size), owed * share / left)
        owed, left = owed - part, left - share
        quotas.append((pool, rows - round(owed) - given))  # what one pool gets less by rounding, the next one gets more
        given = rows - round(owed)
    return quotas[::-1]  # the largest first: they are found soonest when one is drawn


def _write(quotas: Sequence[tuple[_Pool, int]], draw: Callable[[], float]) -> Iterator[Pair]:
    orders = [_shuffled(pool.size, draw) for pool, _ in quotas]
    owed = [quota for _, quota in quotas]
    for rows in range(sum(owed), 0, -1):
        at, ticket = 0, int(draw() * rows)
        while ticket >= owed[at]:  # a pool's chance is what it still owes
            ticket -= owed[at]
            at += 1
        owed[at] -= 1
        pool = quotas[at][0]
        source, target = pool.pair(next(orders[at]))
        if pool.amounts and draw() < 0.5:
            source = re.sub("^[0-9]+", lambda digits: f"{int(digits[0]):,}", source)
        yield source, target


def _shuffled(size: int, draw: Callable[[], float]) -> Iterator[int]:
    """The numbers below `size`, each once, in an order that `draw` decides, without a list of them.

    A counter of as many bits as `size` needs is scrambled by steps that can all be undone modulo a power of two: times
    an odd number, plus a number, exclusive or with its own upper half. So no two counts become the same number; those
    that become `size` or more are passed over.
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
