"""The SHA-256 of the parameters in config.json: what it notices, and that no kill makes a run that is refused."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from test_faults import die_in_child, watched

import jumok
from conftest import FIXTURES
from jumok.errors import RunError
from jumok.files import sha256_of
from jumok.interop.huggingface import to_hf
from jumok.models import Model
from jumok.runs import integrity
from jumok.runs.examine import examine
from jumok.runs.folder import RunFolder
from jumok.runs.integrity import finish_swap, sums_in
from jumok.training.trainer import Trainer

FORKED = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork, which this system has not")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps, with its states."""
    run = Path(shutil.copytree(FIXTURES / "runs" / "lm-modern", tmp_path_factory.mktemp("integrity") / "run"))
    with Trainer.resume(run, device="cpu") as trainer:
        list(trainer.run())
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy without hard links, as on another disk."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(path: Path) -> None:
    """Flip a bit of the last number of a file, in place."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def sums_of(run: Path) -> tuple[str, ...]:
    return sums_in(RunFolder(run).read_config())


# --- reading ---


def test_a_flipped_bit_is_noticed(run: Path) -> None:
    """A flipped bit in model.safetensors loaded without a word, and the model computed something else."""
    jumok.load(run)
    flip(run / "model.safetensors")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: it changed"):
        jumok.load(run)
    assert isinstance(jumok.load(run, verify=False), torch.nn.Module)


def test_the_remedy_is_one_that_can_work(run: Path) -> None:
    flip(run / "model.safetensors")
    with pytest.raises(RunError, match=r"changed after .* `jumok train --resume --out"):
        jumok.load(run)
    shutil.rmtree(run / "state")
    with pytest.raises(RunError, match=r"Restore the file from a copy.*verify=False"):
        jumok.load(run)


@pytest.mark.parametrize("sums", ["x", 5, [5], {"sha256": "abc"}, {"sha256": [3]}, {"sha256": ["a" * 63]}, {}], ids=str)
def test_damaged_sums_are_an_error(run: Path, sums: Any) -> None:
    config = RunFolder(run).read_config()
    (run / "config.json").write_text(json.dumps({**config, "parameters": sums}), encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        jumok.load(run)


def test_a_reader_meets_a_training(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has config.json, then a trainer replaces both files, then the reader computes the sum of the new one."""
    folder = RunFolder(run)
    model = jumok.load(run)
    torch.nn.init.zeros_(next(model.parameters()))

    def replaced_before(path: Path) -> str:
        monkeypatch.setattr(integrity, "sha256_of", sha256_of)
        folder.write_parameters(model)
        return sha256_of(path)

    monkeypatch.setattr(integrity, "sha256_of", replaced_before)
    assert not next(jumok.load(run).parameters()).any()


# --- writing ---


def changed(run: Path) -> Model:
    model: Model = jumok.load(run, verify=False)
    torch.nn.init.zeros_(next(model.parameters()))
    return model


@pytest.mark.parametrize("fault", [pytest.param("kill", marks=(pytest.mark.long, FORKED)), "error"])
def test_no_fault_makes_a_run_that_is_refused(run: Path, tmp_path: Path, fault: str) -> None:
    """Two files cannot be renamed at once; a kill in between left parameters with the sum of the others."""
    old, new = sha256_of(run / "model.safetensors"), changed(run)
    victim = tmp_path / "victim"
    shutil.copytree(run, victim)
    with watched() as disk:
        RunFolder(victim).write_parameters(new)
    (last,) = sums_of(victim)
    assert last == sha256_of(victim / "model.safetensors") != old
    seen = set()
    for n in range(disk.count):
        shutil.rmtree(victim)
        shutil.copytree(run, victim)
        if fault == "kill":
            die_in_child(lambda: RunFolder(victim).write_parameters(new), n)
        else:
            with suppress(RunError), watched(n, fault):
                RunFolder(victim).write_parameters(new)
        jumok.load(victim)
        accepted, there = sums_of(victim), sha256_of(victim / "model.safetensors")
        seen.add((accepted, there))
        finish_swap(victim)
        assert sums_of(victim) == (there,)
    assert seen >= {((old,), old), ((last, old), old), ((last, old), last)}


def test_the_first_parameters_that_a_kill_kept_away(run: Path) -> None:
    """Their sum was in config.json, and the file was not."""
    (run / "model.safetensors").unlink()
    finish_swap(run)
    assert sums_of(run) == ()


# --- what resuming restores ---


def test_resuming_takes_the_copy_of_a_state(run: Path) -> None:
    """A finished run whose parameters changed gets them back from the copy in its last state."""
    whole = (run / "model.safetensors").read_bytes()
    flip(run / "model.safetensors")
    with Trainer.resume(run, device="cpu") as trainer:
        list(trainer.run())
    assert (run / "model.safetensors").read_bytes() == whole
    assert examine(run).whole


# --- the doctor ---


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


DAMAGES = {
    "config.json": lambda run: cut(run / "config.json"),
    "tokenizer.json": lambda run: (run / "tokenizer.json").unlink(),
    "model.safetensors": lambda run: (run / "model.safetensors").unlink(),
    "state/step-000000004": lambda run: flip(run / "state" / "step-000000004" / "tensors.safetensors"),
    "state/step-000000002": lambda run: (run / "state" / "step-000000002" / "manifest.json").unlink(),
}


@pytest.mark.parametrize("file", DAMAGES)
def test_each_damaged_file_is_found(run: Path, file: str) -> None:
    assert examine(run).whole
    DAMAGES[file](run)
    found = examine(run)
    assert [one.file for one in found.findings if one.condition == "damaged"] == [file]
    assert found.usable == file.startswith("state/")
    assert found.resumable == (2 if file == "state/step-000000004" else 4)


def test_a_model_of_transformers_is_read_as_it_is_loaded(run: Path, tmp_path: Path) -> None:
    """The doctor said that its config.json was damaged."""
    to_hf(jumok.load(run), folder := tmp_path / "hf")
    found = examine(folder)
    assert (found.whole, found.usable, found.resumable) == (True, True, None)
    (folder / "tokenizer.json").unlink()
    assert [one.condition for one in examine(folder).findings] == ["ok", "damaged"]
    cut(folder / "model.safetensors")
    found = examine(folder)
    assert not found.usable
    assert "model.safetensors is damaged" in found.findings[0].text


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RunError, match="is no run folder"):
            examine(path)
