"""Run folders of each task that an earlier version wrote are read, used and resumed; other formats are refused.

The folders are in tests/fixtures/runs, which make_runs.py there has made.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import jumok
from conftest import FIXTURES
from jumok import text as reader
from jumok.errors import RunError
from jumok.runs.examine import examine
from jumok.training.trainer import Trainer

OLD = FIXTURES / "runs"
NAMES = sorted(path.parent.name for path in OLD.glob("*/config.json"))
STORED: dict[str, Any] = json.loads((OLD / "figures.json").read_text(encoding="utf-8"))


@pytest.fixture
def make_runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(OLD))
    import make_runs

    yield make_runs
    sys.modules.pop("make_runs", None)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_used_and_resumed(name: str, make_runs: Any, tmp_path: Path) -> None:
    """It writes, predicts and evaluates as the version that made it, and goes on."""
    run = Path(shutil.copytree(OLD / name, tmp_path / name))
    found = examine(run)
    assert found.whole, found.findings
    assert found.usable
    assert found.resumable == 2
    computed, stored = make_runs.computed(run), STORED[name]
    if isinstance(stored["words"], str):
        assert computed["words"] == stored["words"]
    else:
        assert computed["words"] == pytest.approx(stored["words"], abs=1e-4)
    assert computed["figures"] == pytest.approx(stored["figures"], rel=1e-4)
    assert computed["losses"] == pytest.approx(stored["losses"], rel=1e-4)
    assert examine(run).whole
    jumok.load(run)


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder of a stranger is loaded, examined and resumed."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError

    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, never)
    run = Path(shutil.copytree(OLD / "lm-modern", tmp_path / "run"))
    jumok.load(run)
    assert examine(run).whole
    with Trainer.resume(run, device="cpu") as trainer:
        assert trainer.step == 2


def test_a_state_of_shards(tmp_path: Path) -> None:
    """Training states in parts, which earlier versions wrote with --shard, are refused with a way on; the model is
    used."""
    run = Path(shutil.copytree(OLD / "lm-modern", tmp_path / "run"))
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["train"]["shard"] = True
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    jumok.evaluate(jumok.load(run), reader.from_string("하나 둘"))
    with Trainer.resume(run, device="cpu") as trainer:
        assert trainer.step == 2
    for state in (run / "state").glob("step-*"):
        (state / "tensors").mkdir()
        (state / "tensors.safetensors").rename(state / "tensors" / "shard-00001-model-00001-of-00001.safetensors")
        sums = json.loads((state / "manifest.json").read_text(encoding="utf-8"))
        sums["tensors/shard-00001-model-00001-of-00001.safetensors"] = sums.pop("tensors.safetensors")
        (state / "manifest.json").write_text(json.dumps(sums), encoding="utf-8")
    with pytest.raises(RunError, match=r"manifest\.json lacks tensors\.safetensors.*init="):
        Trainer.resume(run, device="cpu")


# --- formats to come ---


@pytest.mark.parametrize("number", [7, [1], None, "1"], ids=str)
def test_another_format_is_refused(tmp_path: Path, number: Any) -> None:
    """Other keys may be gone by then. A list as the format could not be looked up in a table."""
    (tmp_path / "config.json").write_text(json.dumps({"format": number}), encoding="utf-8")
    with pytest.raises(RunError, match=r"this version of jumok supports format 1\. Update jumok"):
        jumok.load(tmp_path)
