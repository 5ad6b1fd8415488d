"""The process that runs the reader's code: what may go wrong there is explained, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.sandbox import PRINTED, Verdict, _read, check

pytestmark = pytest.mark.slow

CASES = {
    "endless loop": (
        "def softmax(scores):\n    while True: pass\n",
        "endless",
        2,
        "not finish within 2 seconds",
    ),
    "flood": ("while True:\n    print('x' * 1000)\n", "endless", 2, "not finish"),
    "os._exit": ("import os\nos._exit(3)\n", "crash", None, "code 3"),
    "exit": ("exit()\n", "exit", 1, "remove exit()"),
    "too large": ("import torch\nx = torch.zeros(10**13)\n", "memory", 2, "too much memory"),
    "recursion": ("def softmax(scores):\n    return softmax(scores)\n", None, 2, "RecursionError"),
    "input": ("name = input()\n", None, 1, "EOFError"),
    "syntax": ("def softmax(:\n", "syntax", 1, "cannot read this line"),
    "empty": ("", "empty-file", None, "The file is empty"),
    "missing": ("x = 1\n", None, None, "softmax is missing"),
    "a process that goes on": (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'])\n"
        "os._exit(3)\n",
        "crash",
        None,
        "code 3",
    ),
}


def verdict_on(tmp_path: Path, code: str, seconds: float = 100) -> Verdict:
    path = tmp_path / "08_softmax.py"
    path.write_text(code, encoding="utf-8")
    return check(path, exercise("softmax"), seconds=seconds)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_what_goes_wrong_is_explained(tmp_path: Path, case: str) -> None:
    code, mistake, line, words = CASES[case]
    verdict = verdict_on(tmp_path, code, seconds=2 if mistake == "endless" else 100)
    assert verdict.status == "wrong"
    (fault,) = verdict.faults
    assert words in fault.words.en
    assert fault.words.ko != fault.words.en
    if mistake is not None:
        assert fault.mistake == mistake
    assert fault.line == line
    assert len(verdict.printed) <= PRINTED


@pytest.mark.long
def test_a_solution_passes_and_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hangul in another encoding of the terminal; a file random.py in the current folder is not imported."""
    (tmp_path / "random.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONIOENCODING", "cp949")
    monkeypatch.setenv("LC_ALL", "C")
    verdict = verdict_on(tmp_path, exercise("softmax").solution("en") + "\nprint('점수')\n")
    assert (verdict.status, verdict.printed) == ("right", "점수")


def test_the_line_of_an_endless_loop_is_found_in_a_folder_with_a_korean_name(tmp_path: Path) -> None:
    """faulthandler writes Hangul as escapes, and the line was not found."""
    folder = tmp_path / "내 연습"
    folder.mkdir()
    verdict = verdict_on(folder, "def softmax(scores):\n    while True:\n        pass\n", seconds=3)
    assert (verdict.faults[0].mistake, verdict.faults[0].line in (2, 3)) == ("endless", True)


def test_a_verdict_that_was_not_written_completely_counts_as_none(tmp_path: Path) -> None:
    """A full disk leaves an empty file."""
    result = tmp_path / "result.json"
    result.write_text("")
    assert _read(result, "") is None
