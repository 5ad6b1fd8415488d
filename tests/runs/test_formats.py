"""Run folders of every format that was written so far are read, used and resumed; newer formats name the version.

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
from jumok.runs.config import READ_SINCE, parse_config
from jumok.runs.examine import examine
from jumok.runs.integrity import sums_in

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


def test_each_format_has_a_folder() -> None:
    """A new format needs a run folder of its own, which later versions must be able to read."""
    formats = {json.loads((OLD / name / "config.json").read_text(encoding="utf-8"))["format"] for name in NAMES}
    assert formats == set(READ_SINCE)
    assert sorted(STORED) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_is_used_and_resumed(name: str, make_runs: Any, tmp_path: Path) -> None:
    """It writes, predicts and evaluates as the version that made it, goes on, and has a SHA-256 from then on."""
    run = Path(shutil.copytree(OLD / name, tmp_path / name))
    assert sums_in(parse_config(run / "config.json")) == ()
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
    assert len(sums_in(parse_config(run / "config.json"))) == 1
    assert examine(run).whole
    jumok.load(run)


# --- formats to come ---


def as_format(tmp_path: Path, **entries: Any) -> Path:
    """A run of a format that this version does not know; nothing but these entries need be there."""
    run = tmp_path / "new"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    return run


def test_a_newer_format_names_the_version(tmp_path: Path) -> None:
    """The message was "update jumok", to a version that the reader had to find out. Other keys may be gone by then."""
    run = as_format(tmp_path, format=7, needs="0.2")
    with pytest.raises(RunError, match=r"format 7, which needs jumok 0\.2 or newer; this is jumok .* Update it"):
        jumok.load(run)


@pytest.mark.parametrize("needs", [None, "the newest", ["0.2"]], ids=str)
def test_a_newer_format_that_names_no_version(tmp_path: Path, needs: Any) -> None:
    run = as_format(tmp_path, format=7, needs=needs)
    with pytest.raises(RunError, match="has format 7; this version of jumok supports format 2"):
        jumok.load(run)


@pytest.mark.parametrize("number", [[1], None, "1"], ids=str)
def test_a_format_that_is_no_number(tmp_path: Path, number: Any) -> None:
    """A list as the format could not be looked up in a table."""
    with pytest.raises(RunError):
        jumok.load(as_format(tmp_path, format=number))


def test_a_run_says_which_version_reads_it(tmp_path: Path) -> None:
    jumok.save(jumok.load(OLD / "lm-modern"), tmp_path / "run")
    config = parse_config(tmp_path / "run" / "config.json")
    assert (config["format"], config["needs"]) == (1, READ_SINCE[1])
