"""`jumok learn practice`, `check`, `hint` and `solution`: the reader's way through the exercises."""

from __future__ import annotations

import errno
import io
import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from jumok.cli.console.practice import show_verdict
from jumok.course.practice import folder, sandbox
from jumok.course.practice.catalogue import Exercise, exercise, exercises
from jumok.course.practice.child import judge
from jumok.course.practice.folder import Practice
from jumok.course.practice.sandbox import Fault, Verdict
from jumok.course.words import Words

FILE = "practice/08_softmax.py"
ONE = exercise("softmax")
WRONG = ONE.solution("en").replace("e.sum(dim=-1", "e.sum(dim=-2").replace("scores.max(dim=-1", "scores.max(dim=-2")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks without a process for each; tests/course/practice/test_sandbox.py has those."""

    def check(path: Path, one: Exercise, **_: object) -> Verdict:
        found = judge(path, one.slug)
        return Verdict(
            status=found["status"],
            right=tuple(Words(**words) for words in found["right"]),
            faults=tuple(Fault(Words(**one["words"]), one["mistake"], one["line"]) for one in found["faults"]),
        )

    monkeypatch.setattr(sandbox, "check", check)


def written(source: str) -> None:
    Path(FILE).write_text(source, encoding="utf-8")


def test_practice_writes_each_file_once(jumok) -> None:
    end = jumok("learn", "practice", "--lang", "ko")
    assert end.code == 0, end.err
    assert sorted(path.name for path in Path("practice").glob("*.py")) == [one.file for one in exercises()]
    assert ONE.title.ko in end.out
    written("mine")
    again = jumok("learn", "practice", "--json")
    assert (again.code, again.json["written"]) == (0, 0)
    assert Path(FILE).read_text() == "mine"


def test_the_files_are_in_the_language_of_the_reader(jumok) -> None:
    jumok("learn", "practice", "--lang", "ko")
    assert Path(FILE).read_text(encoding="utf-8") == ONE.template("ko")
    assert "was begun" in jumok("learn", "check").err
    Path(FILE).unlink()
    jumok("learn", "practice", "--lang", "en")
    assert Path(FILE).read_text(encoding="utf-8") == ONE.template("en")
    written(WRONG)
    jumok("learn", "check", FILE)
    assert jumok("learn", "solution", FILE, "--lang", "ko").out == ONE.solution("ko")


def test_the_last_hint_promises_no_solution_that_is_refused(jumok) -> None:
    """After hint 3 it named `jumok learn solution`, which refused because nothing had been checked."""
    jumok("learn", "practice")
    for _ in range(3):
        said = jumok("learn", "hint", FILE, "--lang", "en").err
    assert "after an attempt you may see the solution" in said
    assert f"jumok learn check {FILE}" in said
    written(WRONG)
    jumok("learn", "check", FILE)
    assert "These are all hints. The solution: jumok learn solution" in jumok("learn", "hint", FILE).err


def test_the_way_through_an_exercise(jumok) -> None:
    """Untouched, wrong, a hint, the solution after an attempt, right; and the progress is kept."""
    jumok("learn", "practice")
    assert jumok("learn", "check", FILE, "--json").json["exercises"][0]["status"] == "open"
    refused = jumok("learn", "solution", FILE)
    assert refused.code == 1
    assert "Try practice/08_softmax.py yourself first" in refused.err
    written(WRONG)
    end = jumok("learn", "check", "8", "--lang", "en")
    assert end.code == 1
    assert "The rows do not sum to one" in end.out
    assert "jumok learn hint practice/08_softmax.py" in end.err
    assert "행마다 합이 1이 아닙니다" in jumok("learn", "check", "softmax", "--lang", "ko").out
    for number in (1, 2, 3, 3):
        assert jumok("learn", "hint", FILE, "--json").json["hints"] == [h.en for h in ONE.hints[:number]]
    assert jumok("learn", "solution", FILE).out == ONE.solution("en")
    written(ONE.solution("en"))
    end = jumok("learn", "check", FILE, "--lang", "en")
    assert end.code == 0
    assert "All right." in end.out
    entry = json.loads(Path("practice/progress.json").read_text())["softmax"]
    assert entry == {"right": True, "attempts": 3, "hints": 3}
    listed = jumok("learn", "practice", "--json").json["exercises"]
    assert [one["exercise"] for one in listed if one["right"]] == ["softmax"]


def test_a_file_that_fails_now_loses_its_mark(jumok) -> None:
    """A file that had passed once kept its ✓, and the map its colour, whatever became of it."""

    def marked() -> bool:
        listed = jumok("learn", "practice", "--json").json["exercises"]
        return next(one["right"] for one in listed if one["exercise"] == "softmax")

    jumok("learn", "practice")
    for spoilt in (WRONG, ONE.template("en")):
        written(ONE.solution("en"))
        jumok("learn", "check", FILE)
        assert marked()
        written(spoilt)
        jumok("learn", "check", FILE)
        assert not marked()
    written(ONE.solution("en"))
    jumok("learn", "check", FILE)
    Path(FILE).unlink()
    jumok("learn", "practice")
    jumok("learn", "check", FILE)
    assert not marked()


@pytest.mark.parametrize("columns", [40, 61])
def test_a_terminal_breaks_lines_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal itself broke them wherever they were full: inside words."""
    printed = io.StringIO()
    monkeypatch.setattr(printed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", printed)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    fault = Fault(
        Words("행의 합이 1이 아닙니다. 소프트맥스를 구하는 차원을 다시 확인하세요, 마지막 차원입니다.", ""), None, 12
    )
    show_verdict(
        ONE, Path(FILE), Verdict(status="wrong", right=(Words("점수가 맞습니다.", ""),), faults=(fault,)), "ko"
    )
    shown = re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue()).splitlines()
    assert max(map(cell_len, shown)) <= columns
    wrong = shown[next(number for number, line in enumerate(shown) if "✗" in line) :]
    words = " ".join(line.strip(" ✗") for line in wrong).split()
    assert words[-len(fault.words.ko.split()) :] == fault.words.ko.split()
    assert all(line.startswith("    ") for line in wrong[1:])


def test_a_finished_part_can_be_trained(jumok) -> None:
    jumok("learn", "practice")
    block = exercise("block")
    (Path("practice") / block.file).write_text(block.solution("en"), encoding="utf-8")
    assert f"Train with it: jumok learn use {Path('practice') / block.file}" in jumok("learn", "check", "block").err
    written(ONE.solution("en"))
    last = jumok("learn", "check", "8").err
    assert "jumok learn use" not in last
    assert "Next: practice/09_dot_product_attention.py" in last


def test_check_without_a_file_checks_what_was_begun(jumok) -> None:
    nothing = jumok("learn", "check")
    assert nothing.code == 1
    assert "Write them first: jumok learn practice" in nothing.err
    jumok("learn", "practice")
    assert "was begun" in jumok("learn", "check").err
    written(WRONG)
    Path("practice/01_shapes.py").write_text(exercise("shapes").solution("en"), encoding="utf-8")
    end = jumok("learn", "check", "--json")
    assert end.code == 1
    assert [(one["exercise"], one["status"]) for one in end.json["exercises"]] == [
        ("shapes", "right"), ("softmax", "wrong"),
    ]  # fmt: skip
    assert end.json["exercises"][1]["faults"][0]["mistake"] == "dimension"


def test_a_file_anywhere_can_be_checked(jumok) -> None:
    Path("softmax.py").write_text(ONE.solution("en"), encoding="utf-8")
    assert jumok("learn", "check", "softmax.py").code == 0


BAD = [
    (["check", "nothing.py"], 2, "There is no exercise 'nothing.py'"),
    (["check", "sofmax"], 2, "08_softmax.py"),
    (["check", "elsewhere/08_softmax.py"], 1, "There is no file elsewhere/08_softmax.py"),
    (["check", "8"], 1, "There is no file practice/08_softmax.py"),
    (["hint"], 2, "Missing argument"),
    (["practice", "a-file"], 2, "is a file"),
    (["use", "a-file"], 1, "a-file"),
    (["use", "a-file", "--minutes", "1", "--steps", "2"], 2, "were both given"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input(jumok, arguments: list[str], code: int, message: str) -> None:
    Path("a-file").write_text("x = 1")
    end = jumok("learn", *arguments)
    assert (end.code, message in " ".join(end.err.split())) == (code, True), end.err
    assert [path.name for path in Path().iterdir()] == ["a-file"]


def test_damaged_progress_is_named(jumok) -> None:
    jumok("learn", "practice")
    Path("practice/progress.json").write_text("{")
    end = jumok("learn", "check", FILE)
    assert end.code == 1
    assert "practice/progress.json is damaged" in end.err
    assert Path(FILE).read_text(encoding="utf-8") == ONE.template("en")


def test_the_progress_of_two_commands_at_once_is_kept(jumok) -> None:
    """`check` has read the progress before `hint` is run in another terminal, and saves after it."""
    jumok("learn", "practice")
    watching = Practice(Path("practice"))
    jumok("learn", "hint", "8")
    watching.tried(ONE, Verdict(status="wrong"))
    kept = Practice(Path("practice")).progress["softmax"]
    assert (kept.attempts, kept.hints) == (1, 1)


def test_the_verdict_is_shown_where_the_progress_cannot_be_saved(jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only folder, or a full disk."""
    jumok("learn", "practice")
    written(ONE.solution("en"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder, "write_atomic", full)
    end = jumok("learn", "check", FILE, "--lang", "en")
    assert (end.code, "All right." in end.out, "No space left" in end.err) == (0, True, True)
    end = jumok("learn", "hint", FILE, "--lang", "en")  # it ended without the hint
    assert (end.code, "Hint 1 of 3" in end.out, "No space left" in end.err) == (0, True, True)


@pytest.mark.parametrize(
    ("content", "status", "mistake"),
    [
        (b"\xef\xbb\xbf" + ONE.solution("en").encode(), "right", None),
        (ONE.solution("en").replace("\n", "\r\n").encode(), "right", None),
        (ONE.solution("ko").encode("cp949", "replace"), "wrong", "encoding"),
        (b"", "wrong", "empty-file"),
    ],
)
def test_files_as_editors_save_them(jumok, content: bytes, status: str, mistake: str | None) -> None:
    jumok("learn", "practice")
    Path(FILE).write_bytes(content)
    found = jumok("learn", "check", FILE, "--json").json["exercises"][0]
    assert (found["status"], [fault["mistake"] for fault in found["faults"]]) == (status, [mistake] if mistake else [])
    assert all("{" not in fault["text"] for fault in found["faults"])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"raise NotImplementedError", "is not written yet"), ("# 그날".encode("cp949"), "encoded in UTF-8")],
)
def test_use_explains_a_file_that_cannot_be_used(jumok, content: bytes, words: str) -> None:
    Path("08_softmax.py").write_bytes(content)
    end = jumok("learn", "use", "08_softmax.py")
    assert (end.code, words in end.err) == (1, True), end.err
