"""`jumok doctor`: a run folder, and this installation."""

from __future__ import annotations

import importlib
import importlib.util
import io
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from conftest import FIXTURES, Jumok
from jumok.cli import app
from jumok.cli.doctor import EXTRAS
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


def test_the_installation(jumok: Jumok) -> None:
    end = jumok("doctor", "--json")
    names = [one["name"] for one in end.json["findings"]]
    assert len(names) == len(set(names))
    assert {"Python", "packages", "torch", "processors", "C++", "font", "terminal", *EXTRAS} <= {*names}
    assert end.json["well"] == (end.code == 0)
    assert all(one["remedy"] for one in end.json["findings"] if one["condition"] == "problem")


def test_the_extras_are_those_of_the_package() -> None:
    """Those for people who work on jumok are left out."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert EXTRAS.keys() == known.keys() - {"bench", "test", "docs", "dev"}


def findings(jumok: Jumok) -> dict[str, Any]:
    return {one["name"]: one for one in jumok("doctor", "--json").json["findings"]}


def test_a_torch_that_cannot_be_imported(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of the system was of another version, and the traceback of torch was all there was to read."""

    def broken(name: str, *given: Any) -> Any:
        if name == "torch":
            raise OSError("libgomp.so.1: cannot open shared object file")
        return real(name, *given)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", broken)
    found = findings(jumok)["torch"]
    assert found["condition"] == "problem"
    assert "libgomp" in found["text"]
    assert "pip install" in found["remedy"]


def test_what_is_missing(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = findings(jumok)
    assert found["packages"]["condition"] == "problem"
    assert {found[name]["condition"] for name in (*EXTRAS, "C++")} == {"note"}


def test_a_terminal_without_korean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first Korean sample was an error of the encoding."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", output)
    assert app(["doctor"], standalone_mode=False) == 1
    output.flush()
    assert b"Korean cannot be shown" in output.buffer.getvalue()  # type: ignore[attr-defined]
