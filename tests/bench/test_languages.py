"""The comparison on other languages: both contestants are judged alike, and nothing that fails is lost."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import torch

import languages
from languages import LOWEST, SHAPE, WARMUP, judge, paragraphs_of, parts, respelled, share_of_rate
from plain_gpt import PlainGPT


class Counted(PlainGPT):
    """Predicts the next token to be the present one plus one, or every token alike."""

    def __init__(self, vocabulary: int, *, knows: bool) -> None:
        super().__init__(vocabulary, **SHAPE)
        self.vocabulary, self.knows = vocabulary, knows

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        right = torch.nn.functional.one_hot((ids + 1) % self.vocabulary, self.vocabulary)
        return 100.0 * right if self.knows else torch.zeros(*ids.shape, self.vocabulary)


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 97, 250])
def test_each_held_out_character_counts_once(length: int) -> None:
    """The first token too, which stands behind a newline, and the few of the last window."""
    ids = [i % 7 for i in range(length)]
    assert judge(Counted(7, knows=False), ids, 6) == pytest.approx(math.log(7))
    assert judge(Counted(7, knows=True), ids, 6) == pytest.approx(0, abs=1e-6)
    if length > 1:
        ids[-1] = (ids[-1] + 3) % 7
        assert judge(Counted(7, knows=True), ids, 6) == pytest.approx(100 / length)


def test_the_held_out_part_is_that_of_the_recipe(tmp_path: Path, tales: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(tales, encoding="utf-8")
    before, after = parts(path)
    assert before + after == tales
    assert len(after) == round(len(tales) / 10)


def test_the_minimal_loop_learns(tmp_path: Path, tales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows all characters, also one that only the held-out part has; its figure is finite and below a guess."""
    monkeypatch.setitem(languages.SHAPE, "width", 32)
    path = tmp_path / "text.txt"
    path.write_text(tales + "뷁", encoding="utf-8")
    torch.manual_seed(0)
    found = languages.minimal(path, 0.8)
    assert found["steps"] >= 1
    assert 0 < found["nats"] < math.log(len(set(tales)) + 2) + 0.2


def test_the_rate_rises_and_falls() -> None:
    shares = [share_of_rate(i / 1000) for i in range(1001)]
    assert max(shares) == pytest.approx(1)
    assert shares.index(max(shares)) == round(1000 * WARMUP)
    assert 0 < shares[0] < 0.1
    assert shares[-1] == pytest.approx(LOWEST)


def test_a_page_is_read_by_its_paragraphs() -> None:
    page = "<head><title>no</title></head><p>日本語の\n  文。 &amp;</p><script>no()</script><p>English only</p>"
    assert paragraphs_of(page, 0.3) == "日本語の 文。 &"
    assert paragraphs_of(page, 0.0) == "日本語の 文。 &\nEnglish only"


def test_modern_korean_in_old_letters() -> None:
    """The letters are those of Old Korean, the normal form is NFC, and other characters stay as they are."""
    assert respelled("하늘 따라 a 각") == "ᄒᆞ늘 ᄯᅡᄅᆞ a 각"
    syllables = [chr(code) for code in range(0xAC00, 0xD7A4)]
    old = [respelled(syllable) for syllable in syllables]
    assert len(set(old)) == len(syllables), "two syllables became the same"
    assert all(unicodedata.is_normalized("NFC", one) for one in old)


def test_a_text_that_fails_is_a_row_and_the_next_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "README.md").write_text("not a text to train on")

    def row(path: Path, minutes: float, shape: list[str]) -> str:
        if path.stem == "a":
            raise subprocess.CalledProcessError(1, ["python", "-m", "jumok.cli", "train", "a.txt"], stderr="too short")
        return f"| {path.stem}, {minutes}, {shape} |"

    monkeypatch.setattr(languages, "row", row)
    monkeypatch.setattr(languages, "describe", lambda device: "a machine")
    monkeypatch.setattr(sys, "argv", ["languages.py", str(tmp_path), "--minutes", "3", "--context", "96"])
    monkeypatch.setattr(languages, "SHAPE", dict(SHAPE))
    with pytest.raises(SystemExit) as stop:
        languages.main()
    out, err = capsys.readouterr()
    assert stop.value.code == 1
    assert out.splitlines()[-1] == "| b, 3.0, ['--width', '128', '--context', '96'] |"
    assert "| a | failed: " in out
    assert "README" not in out
    assert "too short" in err


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
    assert cells[0] == "tales"
    assert cells[1] == f"{len(tales):,}"
    assert cells[-1] in {"yes", "no"}
    assert json.loads(cells[3].split("**")[1]) > 0
