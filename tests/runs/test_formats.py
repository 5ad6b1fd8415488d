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
from jumok.errors import RunError
from jumok.runs.examine import examine

OLD = FIXTURES / "runs"
NAMES = sorted(path.parent.name for path in OLD.glob("*/config.json"))
STORED: dict[str, Any] = json.loads((OLD / "figures.json").read_text(encoding="utf-8"))


@pytest.fixture
def make_runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(OLD))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "training"))
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


# --- formats to come ---


@pytest.mark.parametrize("number", [7, [1], None, "1"], ids=str)
def test_another_format_is_refused(tmp_path: Path, number: Any) -> None:
    """Other keys may be gone by then. A list as the format could not be looked up in a table."""
    (tmp_path / "config.json").write_text(json.dumps({"format": number}), encoding="utf-8")
    with pytest.raises(RunError, match=r"this version of jumok supports format 1\. Update jumok"):
        jumok.load(tmp_path)
