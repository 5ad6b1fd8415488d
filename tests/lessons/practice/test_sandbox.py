"""The process that runs the reader's code: what may go wrong there is explained, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.lessons.practice.course import exercise
from jumok.lessons.practice.sandbox import PRINTED, Verdict, check

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
}


def verdict_on(tmp_path: Path, code: str) -> Verdict:
    path = tmp_path / "04_softmax.py"
    path.write_text(code, encoding="utf-8")
    return check(path, exercise("softmax"), seconds=2)


@pytest.mark.parametrize("case", CASES)
def test_what_goes_wrong_is_explained(tmp_path: Path, case: str) -> None:
    code, mistake, line, words = CASES[case]
    verdict = verdict_on(tmp_path, code)
    assert verdict.status == "wrong"
    assert verdict.wrong is not None
    assert words in verdict.wrong.en
    assert verdict.wrong.ko != verdict.wrong.en
    if mistake is not None:
        assert verdict.mistake == mistake
    assert verdict.line == line
    assert len(verdict.printed) <= PRINTED


def test_a_solution_passes_and_prints(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, exercise("softmax").solution + "\nprint('점수')\n")
    assert (verdict.status, verdict.printed) == ("right", "점수")
