"""`jumok bench`: a table or one JSON object of what was measured. No time is asserted."""

from __future__ import annotations

import pytest
import torch

from conftest import Jumok
from jumok.cli import bench


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHARS": 5_000, "STEPS": 2, "WARM_UP": 1, "TOKENS": 5, "TEXTS": 1}.items():
        monkeypatch.setattr(bench, name, value)


@pytest.mark.long
def test_figures_as_json(jumok: Jumok) -> None:
    found = jumok("bench", "--size", "nano", "--device", "cpu", "--json").json
    assert found["size"] == "nano"
    assert found["context_length"] == 128
    assert found["torch"] == torch.__version__
    assert found["float32_gflops"] > 0 < found["memory_gb_per_second"]
    assert found["train_tokens_per_second"] > 0 < found["generate_tokens_per_second"]


@pytest.mark.long
def test_figures_as_a_table(jumok: Jumok) -> None:
    end = jumok("bench", "--size", "nano", "--device", "cpu", "--quiet")
    assert end.err == ""
    names = [line.split()[0] for line in end.out.splitlines() if line.strip()]
    assert names[-2:] == ["train_tokens_per_second", "generate_tokens_per_second"]
