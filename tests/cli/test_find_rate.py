"""`jumok train --find-rate`: the learning rate range test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, Jumok
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.range_test import STEPS, range_test
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

FLAGS = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()] + ["--device=cpu"]

pytestmark = pytest.mark.slow


@pytest.fixture
def text(tmp_path: Path, tales: str) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(tales, encoding="utf-8")
    return path


def test_it_suggests_a_rate_and_leaves_no_run(jumok: Jumok, text: Path, tmp_path: Path) -> None:
    end = jumok("train", text, "--find-rate", "--json", "--out=rates.png", *FLAGS)
    assert end.code == 0, end.err
    found = end.json
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "rates.png"]
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    points = found["points"]
    assert points[0]["learning_rate"] == pytest.approx(5e-6)
    lowest = min(points, key=lambda point: point["smoothed"])
    assert found["learning_rate"] == pytest.approx(lowest["learning_rate"] / 10)
    assert found["matrix_learning_rate"] == pytest.approx(4 * found["learning_rate"])
    assert 1e-4 < found["learning_rate"] < 0.1
    assert lowest["smoothed"] < points[0]["smoothed"] - 1


def test_it_prints_a_table_with_the_options(jumok: Jumok, text: Path) -> None:
    end = jumok("train", text, "--find-rate", "--optimizer=adamw", *FLAGS)
    assert end.code == 0, end.err
    assert "--matrix-learning-rate" not in end.out  # which AdamW does not have
    assert end.out.count("lowest") == 2  # in the table, and in the sentence
    assert "A tenth of the rate of the lowest loss: --learning-rate " in end.out.splitlines()[-1]


def test_a_test_that_diverges_ends_early(tmp_path: Path, story_text: Text) -> None:
    settings: dict[str, Any] = {**TINY, "learning_rate": 0.5, "matrix_learning_rate": 5.0, "clip": 0.0}
    with Trainer.start(tmp_path / "run", story_text, **configurations(settings), device="cpu") as trainer:
        found = range_test(trainer.begun, lambda share: None)
    assert found.diverged
    assert len(found.points) < STEPS
    assert found.learning_rate < 0.5


def test_it_is_the_same_each_time(tmp_path: Path, story_text: Text) -> None:
    """It begins with the first parameters and the first batches of the run that it is for."""

    def points(out: str) -> list[Any]:
        with Trainer.start(tmp_path / out, story_text, **configurations(TINY), device="cpu") as trainer:
            return range_test(trainer.begun, lambda share: None).points

    assert points("a") == points("b")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--resume", "--out=run"], "--find-rate applies to a new run"),
        (["--out=run"], "cannot draw run: a picture ends in"),
    ],
)
def test_what_does_not_go_together(flags: list[str], message: str, jumok: Jumok, text: Path) -> None:
    end = jumok("train", text, "--find-rate", *flags)
    assert end.code == 2 or end.code == 1
    assert message in end.err
    assert not RunFolder(Path("run")).is_trained()
