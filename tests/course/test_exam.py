"""The exam: each answer computed a second time, sheets that differ, files that replace nothing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from conftest import Jumok
from jumok import GPT, GPTConfig
from jumok.course.exam.questions import KINDS, exact
from jumok.course.exam.sheets import QUESTIONS, make_exam, read_names, write_exam
from jumok.course.words import LANGUAGES
from jumok.errors import ConfigError
from jumok.nn.positions import rotary

Given = Mapping[str, Any]


# --- the answers, a second time: with fractions, or with PyTorch alone ---


def shares(powers: list[int]) -> list[Fraction]:
    return [Fraction(power, sum(powers)) for power in powers]


def dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def mean(rows: list[list[int]]) -> list[Fraction]:
    return [Fraction(sum(column), len(rows)) for column in zip(*rows, strict=True)]


def average(x: list[list[int]], t: int) -> list[list[Fraction]]:
    return [mean(x[: t + 1]), [Fraction(int(s <= t), t + 1) for s in range(len(x))]]


def gradient(powers: list[int], i: int, j: int) -> list[Fraction]:
    w = shares(powers)
    return [w[i] * (1 - w[i]), -w[i] * w[j]]


def weighted(powers: list[int], v: list[list[int]]) -> list[Fraction]:
    return [
        sum((w * x for w, x in zip(shares(powers), column, strict=True)), Fraction(0))
        for column in zip(*v, strict=True)
    ]


def scaled(q: list[int], k: list[list[int]]) -> list[Fraction]:
    return [Fraction(dot(q, key), math.isqrt(len(q))) for key in k]


def mask(t: int, s: int, row: int) -> list[Any]:
    rows = [[int(key <= query) for key in range(s)] for query in range(s)][-t:]
    return [rows[row], sum(map(sum, rows))]


def causal(powers: list[list[int]]) -> list[list[Fraction]]:
    return [[*shares(row[: t + 1]), *[Fraction(0)] * (len(row) - t - 1)] for t, row in enumerate(powers)]


def shapes(b: int, t: int, c: int, h: int, g: int) -> list[list[int]]:
    d = c // h
    return [[b, h, t, d], [b, g, t, d], [b, h, t, t], [b, t, c]]


def layer_norm(x: list[int], weight: int, bias: int) -> list[Fraction]:
    numbers = torch.tensor(x, dtype=torch.float64)
    return exact(F.layer_norm(numbers, (4,), eps=0.0) * weight + bias)


def sinusoidal(width: int, position: int, pair: int) -> list[Any]:
    angle = Fraction(position) / Fraction(10_000 ** (2 * pair / width)).limit_denominator(1)
    assert angle.denominator <= 1000
    return [angle, math.sin(angle), math.cos(angle)]


def rotation(width: int, pair: int, distance: int) -> Fraction:
    cos, sin = rotary(distance + 1, width)
    turns = float(torch.atan2(sin[distance, pair], cos[distance, pair]))
    angle = Fraction(distance) / Fraction(10_000 ** (2 * pair / width)).limit_denominator(1)
    assert math.cos(angle) == pytest.approx(math.cos(turns), abs=1e-5)
    return angle


def cache(layers: int, batch: int, groups: int, length: int, d: int, bytes: int) -> int:
    keys = torch.zeros(layers, batch, groups, length, d, dtype={4: torch.float32, 2: torch.float16}[bytes])
    return 2 * keys.nbytes


def parameters(vocab: int, context: int, layers: int, c: int) -> int:
    size = {"vocab_size": vocab, "context_length": context, "n_layer": layers, "n_embd": c}
    model = GPT(GPTConfig(**size, n_head=2, family="classic"))
    return sum(parameter.numel() for parameter in model.parameters())


def rates(steps: int, peak: int, end: int, final: int, early: int, late: int) -> list[Fraction]:
    top, low = Fraction(peak, 1000), Fraction(peak * final, 100_000)
    return [top * early / end, top - (top - low) * Fraction(late - end, steps - end)]


def warm(logits: list[int], temperature: str) -> list[Fraction]:
    return shares([math.isqrt(n) if temperature == "2" else n * n for n in logits])


def renormalised(p: list[Fraction], kept: set[int]) -> dict[str, Fraction]:
    total = sum(p[i] for i in kept)
    return {"ABCDEFG"[i]: p[i] / total for i in sorted(kept)}


def best_first(p: list[Fraction]) -> list[int]:
    return sorted(range(len(p)), key=lambda i: -p[i])


def top_k(p: list[Fraction], k: int) -> dict[str, Fraction]:
    return renormalised(p, set(best_first(p)[:k]))


def top_p(p: list[Fraction], limit: float) -> dict[str, Fraction]:
    kept: set[int] = set()
    for i in best_first(p):
        if sum(p[j] for j in kept) < limit:
            kept.add(i)
    return renormalised(p, kept)


def merges(counts: dict[str, int]) -> list[tuple[str, str]]:
    """By replacing text, with blanks between the pieces of a word."""
    words = {" ".join(word): count for word, count in counts.items()}
    found = []
    for _ in range(2):
        pairs = Counter[tuple[str, str]]()
        for word, count in words.items():
            for left, right in re.findall(r"(\w+)(?= (\w+))", word):
                pairs[left, right] += count
        (first, most), (_, second) = pairs.most_common(2)
        assert most > second, "two pairs are equally frequent, so the question has two answers"
        found.append(first)
        pattern = re.compile(rf"(?<!\w){first[0]} {first[1]}(?!\w)")
        words = {pattern.sub("".join(first), word): count for word, count in words.items()}
    return found


AGAIN: dict[str, Callable[..., Any]] = {
    "average": average,
    "dot_products": lambda q, k: [dot(q, key) for key in k],
    "softmax": shares,
    "softmax_gradient": gradient,
    "weighted_sum": weighted,
    "scaled_scores": scaled,
    "causal_row": mask,
    "masked_weights": causal,
    "shapes": shapes,
    "masked_mean": lambda x, length: mean(x[:length]),
    "layer_norm": layer_norm,
    "sinusoidal": sinusoidal,
    "rotary": rotation,
    "kv_cache": cache,
    "parameters": parameters,
    "cross_entropy": lambda powers: Fraction(sum(powers), len(powers)),
    "learning_rate": rates,
    "temperature": warm,
    "top_k": top_k,
    "top_p": top_p,
    "bpe_merges": merges,
}


@pytest.mark.parametrize("name", KINDS)
def test_each_answer_is_right(name: str) -> None:
    """Twenty draws of each kind, in both languages with the same numbers."""
    rng = Random(f"test/{name}")
    for _ in range(20):
        drawn = KINDS[name].draw(rng)
        again = AGAIN[name](**drawn.given)
        if name == "sinusoidal":  # the table is in float32
            assert drawn.value == pytest.approx(again, abs=1e-6)
        else:
            assert drawn.value == again, drawn.given
        numbers = [sorted(re.findall(r"\d+", text)) for text in (drawn.question.ko, drawn.question.en)]
        assert set(numbers[0]) == set(numbers[1]), name
        for text in (drawn.question, drawn.answer):
            assert text.ko.strip()
            assert text.en.strip()
            assert not re.search(r"[{}]|Fraction|None", text.ko + text.en)


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 12
    assert set(AGAIN) == set(KINDS)
    assert all(re.search("[가-힣]", kind.title.ko + kind.draw(Random(1)).question.ko) for kind in KINDS.values())
    chapters = [kind.chapter for kind in KINDS.values()]
    assert chapters == sorted(chapters)


# --- the sheets ---


def test_the_seed_decides_everything() -> None:
    """And more students leave the sheets of the first ones as they are."""
    exam = make_exam([""] * 5, 3)
    assert exam == make_exam([""] * 5, 3)
    assert exam.sheets == make_exam([""] * 9, 3).sheets[:5]
    assert exam.sheets != make_exam([""] * 5, 4).sheets


def test_each_student_has_other_numbers() -> None:
    exam = make_exam([""] * 30, 1)
    kinds = {frozenset(kind for kind, _ in sheet.questions) for sheet in exam.sheets}
    assert len(kinds) == 1, "all sheets have the same kinds, so that they are equally difficult"
    assert len(next(iter(kinds))) == QUESTIONS == 8
    assert len({tuple(kind for kind, _ in sheet.questions) for sheet in exam.sheets}) > 20
    questions = [drawn.question.ko for sheet in exam.sheets for _, drawn in sheet.questions]
    assert len(set(questions)) == len(questions)


def test_until_a_chapter() -> None:
    exam = make_exam([""], 1, until=5)
    assert all(KINDS[kind].chapter <= 5 for kind, _ in exam.sheets[0].questions)
    with pytest.raises(
        ConfigError, match=r"up to 3 have 6 kinds of questions, and a sheet has 8; until must be at .* 5\."
    ):
        make_exam([""], 1, until=3)


class _Page(HTMLParser):
    """What a page loads, its text, and its sections."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.sections = 0
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href", "srcset"}]
        self.sections += tag == "section"

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_files(language: Any, tmp_path: Path) -> None:
    """A name is printed as it is; the seed is in the key alone; the pages need nothing else."""
    odd = "김*민수* <b>&amp;"
    exam = make_exam([odd, "이서연"], 987_123)
    files = write_exam(exam, tmp_path / "new" / "exam", language, title="중간시험 <1>")
    assert [file.name for file in files] == ["exam.md", "exam.html", "key.md", "key.html"]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    sheets, key = _Page(texts["exam.html"]), _Page(texts["key.html"])
    assert sheets.loaded == key.loaded == []
    assert (sheets.sections, key.sections) == (2, 1)
    assert odd in sheets.text
    assert odd in key.text
    assert "중간시험 <1>" in sheets.text
    assert "987123" not in texts["exam.html"] + texts["exam.md"]
    assert "987123" in texts["key.md"]
    assert "987123" in key.text
    assert "size: A4" in texts["exam.html"]
    assert "break-after: page" in texts["exam.html"]
    for sheet in exam.sheets:
        for _, drawn in sheet.questions:
            assert drawn.question.said(language) in texts["exam.md"]
            assert drawn.answer.said(language) in texts["key.md"]
    assert texts["exam.md"].count("\n---\n") == 1


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "cp949", "utf-16"])
def test_names_in_any_encoding(codec: str, tmp_path: Path) -> None:
    file = tmp_path / "class.txt"
    file.write_bytes("김민수\r\n\r\n  이서연 \r\n박지훈\r\n".encode(codec))
    assert read_names(file) == ["김민수", "이서연", "박지훈"]


# --- the command ---


def test_the_command(jumok: Jumok, own_folder: Path) -> None:
    end = jumok("learn", "exam", "--students", 2, "--seed", 5, "--lang", "ko", "--json")
    assert end.code == 0
    assert (end.json["seed"], end.json["students"]) == (5, 2)
    first = Path("exam/exam.md").read_text(encoding="utf-8")
    jumok("learn", "exam", "--students", 2, "--seed", 5, "--lang", "ko", "--out", "again", "--quiet")
    assert Path("again/exam.md").read_text(encoding="utf-8") == first
    Path("class.txt").write_text("민수\n", encoding="utf-8")
    end = jumok("learn", "exam", "--names", "class.txt", "--out", "third", "--json")
    assert end.json["students"] == 1
    assert "민수" in Path("third/key.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--students", "0"], "students=0 is out of range: it must be between 1 and 1,000."),
        (["--students", "-3"], "students=-3 is out of range"),
        (["--students", "1000000000"], "students=1000000000 is out of range"),
        (["--students", "x"], "is not a valid integer"),
        (["--names", "nobody.txt"], "nobody.txt"),
        (["--names", "mine.txt", "--students", "2"], "--students and --names were both given"),
        (["--out", "full"], "full exists and is not empty; name another folder with --out."),
        (["--out", "mine.txt"], "mine.txt exists and is not empty"),
        (["--out", "mine.txt/exam"], "cannot write mine.txt/exam"),
        (["--until", "1"], "the chapters up to 1 have 1 kinds of questions"),
    ],
)
def test_wrong_use_writes_nothing(arguments: list[str], message: str, jumok: Jumok, own_folder: Path) -> None:
    Path("full").mkdir()
    Path("full/exam.md").write_text("mine")
    Path("mine.txt").write_text("mine")
    before = sorted(own_folder.rglob("*"))
    end = jumok("learn", "exam", *arguments)
    assert end.code != 0
    assert message in end.err
    assert sorted(own_folder.rglob("*")) == before
    assert Path("full/exam.md").read_text() == Path("mine.txt").read_text() == "mine"
