"""The comparison on other languages: both contestants are judged alike."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import languages
from languages import SHAPE, judge, parts
from plain_gpt import PlainGPT


class Counted(PlainGPT):
    """Predicts the next token to be the present one plus one, or every token alike."""

    def __init__(self, vocabulary: int, *, knows: bool) -> None:
        super().__init__(vocabulary, **SHAPE)
        self.vocabulary, self.knows = vocabulary, knows

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        right = torch.nn.functional.one_hot((ids + 1) % self.vocabulary, self.vocabulary)
        return 100.0 * right if self.knows else torch.zeros(*ids.shape, self.vocabulary)


@pytest.mark.parametrize("length", [1, 65, 250])
def test_each_held_out_character_counts_once(length: int) -> None:
    """The first token too, which stands behind a newline, and the few of the last window."""
    ids = [i % 7 for i in range(length)]
    assert judge(Counted(7, knows=False), ids, 6) == pytest.approx(math.log(7))
    assert judge(Counted(7, knows=True), ids, 6) == pytest.approx(0, abs=1e-6)


def test_the_minimal_loop_learns(tmp_path: Path, tales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows all characters, also one that only the held-out part has; its figure is finite and below a guess."""
    monkeypatch.setitem(languages.SHAPE, "width", 32)
    path = tmp_path / "text.txt"
    path.write_text(tales + "뷁", encoding="utf-8")
    before, after = parts(path)
    assert before + after == tales + "뷁"
    torch.manual_seed(0)
    found = languages.minimal(path, 0.5)
    assert found["steps"] >= 1
    assert 0 < found["nats"] < math.log(len(set(tales)) + 2) + 0.2


@pytest.mark.long
def test_a_whole_row(tmp_path: Path, tales: str) -> None:
    """Both are trained for seconds, and the compressors of Python are beside them."""
    path = tmp_path / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, languages.__file__, str(path), "--minutes", "0.05"],
        capture_output=True, text=True, encoding="utf-8", timeout=280, check=True,
    )  # fmt: skip
    cells = [cell.strip() for cell in done.stdout.splitlines()[-1].strip("|").split("|")]
    assert cells[:2] == ["tales", f"{len(tales):,}"]
    assert json.loads(cells[3].split("**")[1]) > 0
