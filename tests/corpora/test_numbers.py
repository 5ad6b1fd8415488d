"""The built-in pairs: readings checked by hand, a parser for them, and the properties of the stream."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from jumok.corpora import numbers
from jumok.corpora.numbers import (
    read_counted,
    read_date,
    read_decimal,
    read_digits,
    read_native,
    read_number,
    read_phone,
    read_time,
)
from jumok.errors import ConfigError
from jumok.text import from_rows

pytestmark = pytest.mark.slow

# --- Readings, checked by hand ------------------------------------------------------------------------------------

SINO = {
    0: "영",
    1: "일",
    10: "십",
    16: "십육",
    20: "이십",
    101: "백일",
    110: "백십",
    1001: "천일",
    2024: "이천이십사",
    9999: "구천구백구십구",
    10_000: "만",
    10_001: "만일",
    11_111: "만천백십일",
    19_999: "만구천구백구십구",
    20_000: "이만",
    110_000: "십일만",
    1_000_000: "백만",
    1_234_567: "백이십삼만사천오백육십칠",
    10_010_000: "천일만",
    100_000_000: "일억",
    100_010_000: "일억일만",
    1_234_567_898: "십이억삼천사백오십육만칠천팔백구십팔",
    10**12: "일조",
    10**16: "일경",
    10**20 - 1: "구천구백구십구경구천구백구십구조구천구백구십구억구천구백구십구만구천구백구십구",
}


@pytest.mark.parametrize(("number", "reading"), SINO.items())
def test_sino_korean_numbers_are_read_as_taught(number: int, reading: str) -> None:
    assert read_number(number) == reading


@pytest.mark.parametrize(
    ("number", "alone", "before_noun"),
    [
        (1, "하나", "한"),
        (2, "둘", "두"),
        (3, "셋", "세"),
        (4, "넷", "네"),
        (5, "다섯", "다섯"),
        (11, "열하나", "열한"),
        (20, "스물", "스무"),
        (21, "스물하나", "스물한"),
        (33, "서른셋", "서른세"),
        (54, "쉰넷", "쉰네"),
        (99, "아흔아홉", "아흔아홉"),
    ],
)
def test_native_numbers_change_before_a_noun(number: int, alone: str, before_noun: str) -> None:
    assert read_native(number) == alone
    assert read_native(number, before_noun=True) == before_noun


def test_the_rest_is_read_as_taught() -> None:
    assert [read_counted(1, "개"), read_counted(3, "마리"), read_counted(20, "살")] == ["한 개", "세 마리", "스무 살"]
    assert [read_counted(n, "번째") for n in (1, 2, 20, 21)] == ["첫 번째", "두 번째", "스무 번째", "스물한 번째"]
    assert read_date(2024, 3, 1) == "이천이십사년 삼월 일일"
    assert read_date(1910, 8, 29) == "천구백십년 팔월 이십구일"
    assert [read_date(None, month, month) for month in (6, 10, 11, 12)] == [
        "유월 육일",
        "시월 십일",
        "십일월 십일일",
        "십이월 십이일",
    ]
    assert read_date(None, 2, 29) == "이월 이십구일"
    assert [read_time(3, 25), read_time(12), read_time(1, 0, 7)] == ["세 시 이십오 분", "열두 시", "한 시 칠 초"]
    assert [read_time(0, 5), read_time(13, 10), read_time(20)] == ["영 시 오 분", "십삼 시 십 분", "이십 시"]
    assert read_phone("010-1234-5678") == "공일공 일이삼사 오육칠팔"
    assert read_phone("02-700-8090") == "공이 칠공공 팔공구공"
    assert [read_decimal(d) for d in ("3.14", "0.5", "10.05", "3.50", "1000.6", "12")] == [
        "삼 점 일사",
        "영 점 오",
        "십 점 영오",
        "삼 점 오영",
        "천 점 육",
        "십이",
    ]
    assert (read_digits("2024"), read_digits("119", zero="공")) == ("이영이사", "일일구")


# --- Readings, parsed back by another rule ------------------------------------------------------------------------


def parse_sino(reading: str) -> int:
    """Return the number of a reading; a unit without a digit before it counts once."""
    total = group = digit = 0
    for syllable in reading:
        if syllable in "영일이삼사오육칠팔구":
            assert digit == 0
            digit = "영일이삼사오육칠팔구".index(syllable)
        elif syllable in "십백천":
            group += (digit or 1) * {"십": 10, "백": 100, "천": 1000}[syllable]
            digit = 0
        else:
            total += (group + digit or 1) * {"만": 10**4, "억": 10**8, "조": 10**12, "경": 10**16}[syllable]
            group = digit = 0
    return total + group + digit


def test_ten_thousand_readings_are_read_back() -> None:
    draw = random.Random(5)
    for _ in range(10_000):
        digits = draw.randint(1, 20)
        number = draw.randrange(10**digits)
        if draw.random() < 0.5:  # with groups and digits of 0 and 1, where the rules are
            number = int("".join(draw.choice("0001125") for _ in range(digits)))
        reading = read_number(number)
        assert parse_sino(reading) == number, reading
        assert not re.search("일[십백천]", reading), reading
        assert not reading.startswith("일만"), reading
        assert ("영" in reading) == (number == 0)


# --- The stream ---------------------------------------------------------------------------------------------------


@cache
def sample() -> list[tuple[str, str]]:
    return list(numbers.write(20_000, seed=3))


NATIVE_UNITS = "개|마리|명|권|대|송이|그루|켤레|벌|병|잔|그릇|채|자루|통|가지|곳|살|번째"
SINO_UNITS = "세|층|도|개월|인분|페이지|학년"
SYMBOLS = {
    "km": "킬로미터",
    "m": "미터",
    "cm": "센티미터",
    "mm": "밀리미터",
    "kg": "킬로그램",
    "g": "그램",
    "L": "리터",
    "mL": "밀리리터",
    "%": "퍼센트",
}
FORMS: dict[str, tuple[str, Callable[..., str]]] = {
    "number": (r"(\d{1,3}(?:,\d{3})*|\d+)", lambda n: read_number(int(n.replace(",", "")))),
    "price": (r"(\d{1,3}(?:,\d{3})*|\d+)원", lambda n: read_number(int(n.replace(",", ""))) + " 원"),
    "count": (
        rf"([가-힣]+ )?(\d+)({NATIVE_UNITS})",
        lambda noun, n, unit: (noun or "") + read_counted(int(n), unit),
    ),
    "date": (
        r"(?:(\d{4})년 )?(\d+)월 (\d+)일",
        lambda year, month, day: read_date(int(year) if year else None, int(month), int(day)),
    ),
    "time": (
        r"(오전 |오후 )?(\d+)시(?: (\d+)분)?(?: (\d+)초)?",
        lambda half, *clock: (half or "") + read_time(*(int(part or 0) for part in clock)),
    ),
    "phone": (r"(0\d+-\d+-\d{4})", read_phone),
    "measure": (
        rf"([\d.]+)(?:({SINO_UNITS})|(km|m|cm|mm|kg|g|L|mL))",
        lambda n, unit, symbol: f"{read_decimal(n)} {unit or SYMBOLS[symbol]}",
    ),
    "decimal": (r"([\d,]+\.\d+)", lambda n: read_decimal(n.replace(",", ""))),
    "percent": (r"([\d.]+)%", lambda n: f"{read_decimal(n)} 퍼센트"),
    "fraction": (r"(\d+)/(\d+)", lambda above, below: f"{read_number(int(below))}분의 {read_number(int(above))}"),
}


def kind_of(source: str) -> str:
    (kind,) = [kind for kind, (form, _) in FORMS.items() if re.fullmatch(form, source)]
    return kind


def test_the_first_thousand_pairs_of_seed_0_never_change() -> None:
    """Trained models and published accuracies refer to these pairs."""
    text = "".join(f"{source}\t{target}\n" for source, target in numbers.write(1_000))
    assert list(numbers.write(1_000, seed=1)) != list(numbers.write(1_000))
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "6f9800ebbc7de5e6e9a2e4f0cac6feb2aa7abfee864d566cc094d9e908908051"
    )


def test_a_source_has_one_form_and_so_one_target() -> None:
    """The kinds have different forms, and the form and the digits determine the target."""
    for source, target in sample():
        form, read = FORMS[kind_of(source)]
        found = re.fullmatch(form, source)
        assert found is not None
        assert read(*found.groups()) == target, source


@pytest.mark.parametrize("rows", [0, 1, 10, 999, 50_000])
def test_no_source_occurs_twice_with_or_without_commas(rows: int) -> None:
    pairs = list(numbers.write(rows, seed=rows))
    assert len(pairs) == rows
    assert len({source.replace(",", "") for source, _ in pairs}) == rows


def test_a_kind_that_is_drawn_to_its_end_leaves_its_share_to_the_others() -> None:
    """There are 9,702 fractions and 6,633 counts, which have a larger share of so many rows."""
    pairs = list(numbers.write(300_000))
    kinds = Counter(kind_of(source) for source, _ in pairs)
    assert 0.6 * 9_702 < kinds["fraction"] < 9_702
    assert 0.9 * 6_633 < kinds["count"] <= 6_633
    last = Counter(kind_of(source) for source, _ in pairs[-30_000:])
    assert all(abs(10 * last[kind] - count) < 0.3 * count + 300 for kind, count in kinds.items())


def test_pairs_that_do_not_fit_into_the_memory_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="pairs of numbers"):
        numbers.write(10**15)


@pytest.mark.long
def test_kinds_have_their_shares_from_the_first_row_to_the_last() -> None:
    """The last tenth is the validation part, so no kind and no length may be exhausted before it."""
    pairs = list(numbers.write(50_000, seed=1))
    first, last = (Counter(kind_of(source) for source, _ in part) for part in (pairs[:5_000], pairs[-5_000:]))
    assert set(first) == set(last) == set(FORMS)
    for kind in FORMS:
        assert abs(first[kind] - last[kind]) < 6 * (first[kind] + last[kind]) ** 0.5, kind
    assert all(last["number"] > 3 * last[kind] for kind in FORMS if kind != "number")
    plain = [source.replace(",", "") for source, _ in pairs[-5_000:] if kind_of(source) == "number"]
    assert set(map(len, plain)) >= set(range(2, numbers.LONGEST + 1))


def test_cells_are_plain_and_fit_a_table() -> None:
    for source, target in sample():
        assert re.fullmatch(r"[0-9가-힣a-zA-Z.,%/ -]+", source)
        assert re.fullmatch(r"[가-힣]+( [가-힣]+)*", target), target
        assert not re.search("[0-9]", target)
        assert unicodedata.is_normalized("NFC", source + target)
    table = from_rows(numbers.COLUMNS, sample())
    assert table.rows == sample()
    assert table.empty_cells == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rows": -1}, "rows=-1 is out of range"),
        ({"rows": 1, "seed": -1}, "seed=-1 is out of range"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        numbers.write(**arguments)  # type: ignore[arg-type]
