"""`jumok doctor`: a run folder, and this installation."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import FIXTURES, Jumok
from jumok.cli import installation
from jumok.cli.installation import EXTRAS, examine_installation
from jumok.runs.load import load, save

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(own_folder: Path) -> Path:
    shutil.copytree(FIXTURES / "runs" / "lm-modern", own_folder / "run")
    return Path("run")


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_whole_and_one_that_is_not(run: Path, jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    end = jumok("doctor", run)
    assert end.code == 0
    assert "model.safetensors" in end.out
    assert "The newest whole training state is of step 2." in end.err
    found = jumok("doctor", run, "--json").json
    assert (found["whole"], found["usable"], found["resumable"]) == (True, True, 2)
    assert {one["condition"] for one in found["findings"]} == {"ok"}
    (run / "model.safetensors").write_bytes(b"damaged")
    end = jumok("doctor", run)
    assert end.code == 1
    assert "cannot be used" in end.err
    monkeypatch.setenv("JUMOK_LANG", "ko")
    assert "지금 상태로는 모델을 사용할 수 없습니다." in jumok("doctor", run).err


def test_a_changed_file_can_be_loaded_in_python(run: Path, jumok: Jumok) -> None:
    save(load(run), "new")
    content = bytearray(Path("new/model.safetensors").read_bytes())
    content[-1] ^= 1
    Path("new/model.safetensors").write_bytes(content)
    end = jumok("generate", "new", "하나", "--tokens", "2")
    assert (end.code, "verify=False" in end.err) == (1, True)
    assert load("new", verify=False).parameter_count() > 0


# --- the installation -------------------------------------------------------------------------------------------------


def conditions() -> dict[str, str]:
    return {one.name: one.condition for one in examine_installation()}


def test_the_installation(jumok: Jumok) -> None:
    end = jumok("doctor", "--json")
    names = [one["name"] for one in end.json["findings"]]
    assert len(names) == len(set(names))
    assert {"Python", "torch", "processors", "C++", "memory", "cache", "folder", "font", "terminal", *EXTRAS} <= {
        *names
    }
    assert end.json["well"] == (end.code == 0)
    assert all(one["remedy"] for one in end.json["findings"] if one["condition"] == "problem")


def test_the_extras_are_those_of_the_package() -> None:
    """Those for people who work on jumok are left out."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert EXTRAS.keys() == known.keys() - {"bench", "test", "docs", "dev"}


def test_a_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of the system was of another version, and the traceback of torch was all there was to read."""

    def broken(name: str) -> Any:
        raise OSError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(installation.importlib, "import_module", broken)
    (found,) = (one for one in examine_installation() if one.name == "torch")
    assert found.condition == "problem"
    assert "libgomp" in found.text
    assert "pip install" in found.remedy


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a compiler, and threads that a variable takes away."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(installation, "processors", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = conditions()
    assert found["packages"] == "problem"
    assert {found[name] for name in (*EXTRAS, "C++", "processors")} == {"note"}


def test_a_terminal_without_korean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first Korean sample was an error of the encoding."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    (found,) = (one for one in examine_installation() if one.name == "terminal")
    assert found.condition == "problem"
    assert found.remedy


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    assert conditions()["cache"] == "problem"
