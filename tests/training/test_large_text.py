"""A run on a large text: its ids in shards, and a start that was killed while it wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY
from jumok import text as reader
from jumok.cli.train import _free_folder
from jumok.data import ids, shards
from jumok.data.shards import ShardedIds
from jumok.errors import TextError
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.trainer import Trainer

SHARD = 2_000


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts are large."""
    chunks = Text.chunks
    monkeypatch.setattr(ids, "LARGE", 0)
    monkeypatch.setattr(shards, "SHARD", SHARD)
    monkeypatch.setattr(Text, "chunks", lambda text, start=0, stop=None, size=500: chunks(text, start, stop, size))


def start(out: Path, text: str, report: Callable[[str], None] = lambda _: None, **settings: Any) -> Trainer:
    given = {**TINY, **settings}
    return Trainer.start(out, reader.from_string(text), **given, tokenizer="char", report=report)


class Killed(BaseException):
    """Stands for a kill."""


def stop_at(share: str, error: type[BaseException]) -> Callable[[str], None]:
    def report(doing: str) -> None:
        if doing.endswith(share):
            raise error("stopped")

    return report


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "mlm"])
def test_a_run_is_the_same_with_shards(tmp_path: Path, tales: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for large in (0, 1 << 30):
        monkeypatch.setattr(ids, "LARGE", large)
        with start(tmp_path / str(large), tales, task=task) as trainer:
            assert isinstance(trainer.task.train, ShardedIds) == (large == 0)
            list(trainer.run())
            losses.append(trainer.validation.best)
    assert losses[0] == losses[1]


def test_the_same_command_goes_on_after_an_interruption(tmp_path: Path, tales: str) -> None:
    out = tmp_path / "run"
    shares: list[str] = []
    with start(tmp_path / "whole", tales, shares.append):
        pass
    shares = [said for said in shares if said.endswith("%")]
    with pytest.raises(KeyboardInterrupt):
        start(out, tales, stop_at(shares[1], KeyboardInterrupt))
    left = {path.name: path.stat().st_mtime_ns for path in (out / "state").glob("train.0*.npy")}
    assert len(left) == 2
    said: list[str] = []
    with start(out, tales, said.append):
        pass
    assert [one for one in said if one.endswith("%")] == shares[1:]
    assert all((out / "state" / name).stat().st_mtime_ns == time for name, time in left.items())
    for path in sorted((tmp_path / "whole" / "state").glob("*.npy")):
        assert (out / "state" / path.name).read_bytes() == path.read_bytes()


def test_another_command_finds_the_folder_free(tmp_path: Path, tales: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "run", tales, stop_at("%", KeyboardInterrupt))
    with start(tmp_path / "run", tales[: len(tales) // 3], val=0.2) as trainer:
        assert len(list((tmp_path / "run" / "state").glob("train.0*.npy"))) <= len(tales) // 3 // SHARD + 1
        list(trainer.run())


def test_an_error_of_the_settings_leaves_nothing(tmp_path: Path, tales: str) -> None:
    with pytest.raises(TextError, match="tokens to train on"):
        start(tmp_path / "run", tales[:3_000], context_length=20_000)
    assert not (tmp_path / "run").exists()


def test_the_folder_of_a_killed_start_is_used_again(
    tmp_path: Path, tales: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --out the same command chose another folder."""
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    assert _free_folder(("novel.txt",)) == runs / "novel"
    with pytest.raises(KeyboardInterrupt):
        start(runs / "novel", tales, stop_at("%", KeyboardInterrupt))
    assert _free_folder(("novel.txt",)) == runs / "novel"
    with RunFolder(runs / "novel").lock():
        assert _free_folder(("novel.txt",)) == runs / "novel-2"
    with start(runs / "novel", tales):
        pass
    assert _free_folder(("novel.txt",)) == runs / "novel-2"
