"""What a power failure can lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.runs import folder
from jumok.runs.folder import RunFolder


def test_the_entries_of_a_new_run_folder_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a run were flushed, and the entry of its folder was not: a power failure could lose all of them."""
    flushed: list[Path] = []
    monkeypatch.setattr(folder, "sync_folder", flushed.append)
    RunFolder.create(tmp_path / "runs" / "new")
    assert set(flushed) == {tmp_path, tmp_path / "runs"}
    flushed.clear()
    RunFolder.create(tmp_path / "runs" / "new")
    assert flushed == []
