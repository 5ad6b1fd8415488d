"""The SHA-256 of the parameters in config.json: what it notices, and that no kill makes a run that is refused."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from test_faults import die_in_child, watched

import jumok
from conftest import FIXTURES, assert_same, state_of
from jumok.errors import RunError
from jumok.files import locked, sha256_of
from jumok.models import Model
from jumok.runs import integrity
from jumok.runs.examine import Examination, examine
from jumok.runs.folder import RunFolder
from jumok.runs.integrity import settle, sums_in
from jumok.runs.repair import repair
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


@pytest.fixture
def linked(run: Path) -> Path:
    """The same, with the hard link from the newest state to model.safetensors that a training makes."""
    copy = state_of(run).best
    assert copy is not None
    copy[0].unlink()
    os.link(run / "model.safetensors", copy[0])
    return run


def flip(path: Path) -> None:
    """Flip a bit of the last number of a file, in place."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def sums_of(run: Path) -> tuple[str, ...]:
    return sums_in(RunFolder(run).read_config())


def of(found: Examination, file: str) -> str:
    """The condition of a file."""
    return next(one.condition for one in found.findings if one.file == file)


# --- reading ---


def test_a_flipped_bit_is_noticed(run: Path) -> None:
    """A flipped bit in model.safetensors loaded without a word, and the model computed something else."""
    jumok.load(run)
    flip(run / "model.safetensors")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: it changed .*jumok doctor .* --repair"):
        jumok.load(run)
    assert isinstance(jumok.load(run, verify=False), torch.nn.Module)


def test_the_remedy_is_one_that_can_work(linked: Path) -> None:
    """Without a copy in a state, --repair could do nothing."""
    flip(linked / "model.safetensors")
    for state in (linked / "state").glob("step-*"):
        (state / "numbers.json").write_text("{}", encoding="utf-8")
        (state / "best.safetensors").unlink()
    with pytest.raises(RunError, match="jumok train --resume"):
        jumok.load(linked)
    shutil.rmtree(linked / "state")
    with pytest.raises(RunError, match=r"Restore the file from a copy.*--no-verify"):
        jumok.load(linked)


def test_a_run_without_a_sum_loads_as_before() -> None:
    run = FIXTURES / "runs" / "lm-modern"
    assert sums_of(run) == ()
    jumok.load(run)


@pytest.mark.parametrize("sums", ["x", 5, [5], {"sha256": "abc"}, {"sha256": [3]}, {"sha256": ["a" * 63]}, {}], ids=str)
def test_damaged_sums_are_an_error(run: Path, sums: Any) -> None:
    config = RunFolder(run).read_config()
    (run / "config.json").write_text(json.dumps({**config, "parameters": sums}), encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        jumok.load(run)


def test_the_file_is_hashed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte takes a second."""
    read: list[Path] = []
    monkeypatch.setattr(integrity, "sha256_of", lambda path: read.append(path) or sha256_of(path))
    jumok.load(run)
    assert read == [run / "model.safetensors"]
    jumok.load(run, verify=False)
    assert len(read) == 1


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
@pytest.mark.parametrize("recorded", [True, False], ids=["with a sum", "of an earlier version"])
def test_no_fault_makes_a_run_that_is_refused(run: Path, tmp_path: Path, recorded: bool, fault: str) -> None:
    """Two files cannot be renamed at once; a kill in between left parameters with the sum of the others."""
    if not recorded:
        config = {name: value for name, value in RunFolder(run).read_config().items() if name != "parameters"}
        RunFolder(run).write_config(config)
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
        settle(RunFolder(victim))
        assert sums_of(victim) == ((there,) if accepted else ())
    assert seen >= {((old,) if recorded else (), old), ((last, old), old), ((last, old), last)}


def test_the_first_parameters_that_a_kill_kept_away(run: Path) -> None:
    """Their sum was in config.json, and the file was not."""
    (run / "model.safetensors").unlink()
    settle(RunFolder(run))
    assert sums_of(run) == ()


# --- repair ---


def test_repair_takes_the_copy_of_a_state(run: Path) -> None:
    whole = (run / "model.safetensors").read_bytes()
    flip(run / "model.safetensors")
    damaged = (run / "model.safetensors").read_bytes()
    assert of(examine(run), "model.safetensors") == "damaged"
    done = repair(run)
    assert any("best.safetensors" in sentence for sentence in done)
    assert (run / "model.safetensors").read_bytes() == whole
    assert (run / "model.safetensors.damaged").read_bytes() == damaged
    assert examine(run).whole
    assert repair(run) == []
    jumok.load(run)


def test_repair_when_the_copy_is_the_same_file(linked: Path, finished: Path) -> None:
    """The copy in a state is a hard link, so a bit that flips in place flips in both; the tensors are another file."""
    flip(linked / "model.safetensors")
    found = examine(linked)
    assert not found.whole
    assert not found.usable
    repair(linked)
    assert examine(linked).whole
    assert_same(linked, finished)


def test_repair_with_earlier_parameters(linked: Path) -> None:
    """Where nothing has the best parameters, the best ones of an earlier state are better than none."""
    flip(linked / "model.safetensors")
    newest, older = sorted((linked / "state").glob("step-*"), reverse=True)
    shutil.rmtree(newest)
    (sentence,) = (one for one in repair(linked) if "earlier parameters" in one)
    assert "step 2" in sentence
    assert RunFolder(linked).read_config()["metrics"]["step"] == 2
    assert (linked / "model.safetensors").read_bytes() == (older / "best.safetensors").read_bytes()
    jumok.load(linked)


def test_repair_that_is_not_possible_changes_nothing(linked: Path) -> None:
    flip(linked / "model.safetensors")
    shutil.rmtree(linked / "state")
    before = (linked / "model.safetensors").read_bytes()
    (sentence,) = repair(linked)
    assert "restore it from a copy" in sentence
    assert (linked / "model.safetensors").read_bytes() == before
    assert not (linked / "model.safetensors.damaged").exists()


def test_a_damaged_file_is_never_overwritten(run: Path) -> None:
    for suffix in ("damaged", "damaged-2"):
        flip(run / "model.safetensors")
        repair(run)
        assert (run / f"model.safetensors.{suffix}").is_file()


def test_no_repair_while_it_is_trained(run: Path) -> None:
    flip(run / "model.safetensors")
    with locked(run / "state" / "lock"), pytest.raises(RunError, match="another process"):
        repair(run)
    assert examine(run).findings[2].condition == "damaged"


@pytest.mark.long
@FORKED
def test_a_killed_repair_is_repaired(linked: Path, finished: Path, tmp_path: Path) -> None:
    flip(linked / "model.safetensors")
    victim = tmp_path / "victim"

    def fresh() -> None:
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(linked, victim)

    fresh()
    with watched() as disk:
        repair(victim)
    for n in range(disk.count):
        fresh()
        die_in_child(lambda: repair(victim), n)
        repair(victim)
        assert examine(victim).whole, n
        assert (victim / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


# --- the other files ---


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


DAMAGES = {
    "config.json": lambda run: cut(run / "config.json"),
    "tokenizer.json": lambda run: (run / "tokenizer.json").unlink(),
    "model.safetensors": lambda run: (run / "model.safetensors").unlink(),
    "state/train.npy": lambda run: cut(run / "state" / "train.npy"),
    "state/val.npy": lambda run: (run / "state" / "val.npy").unlink(),
    "state/step-000000004": lambda run: flip(run / "state" / "step-000000004" / "tensors.safetensors"),
    "state/step-000000002": lambda run: (run / "state" / "step-000000002" / "manifest.json").unlink(),
    "state/step-000000002/best.safetensors": lambda run: flip(run / "state/step-000000002/best.safetensors"),
    "metrics.jsonl": lambda run: (run / "metrics.jsonl").write_bytes(b"?\n" + (run / "metrics.jsonl").read_bytes()),
    "samples.txt": lambda run: (run / "samples.txt").write_bytes(b"\xff\xfe\xfa"),
}


@pytest.mark.parametrize("file", DAMAGES)
def test_each_damaged_file_is_found(run: Path, file: str) -> None:
    assert examine(run).whole
    DAMAGES[file](run)
    found = examine(run)
    damaged = [one for one in found.findings if one.condition == "damaged"]
    assert [one.file for one in damaged] == [file]
    assert all(one.text and one.remedy for one in damaged)
    assert found.usable == (file not in {"config.json", "tokenizer.json", "model.safetensors"})
    resumable = {"config.json": None, "state/train.npy": None, "state/val.npy": None, "state/step-000000004": 2}
    assert found.resumable == resumable.get(file, 4)


def test_numbers_that_are_not_finite(run: Path) -> None:
    model = jumok.load(run)
    next(model.parameters()).data[0, 0] = torch.nan
    RunFolder(run).write_parameters(model)
    (finding,) = (one for one in examine(run).findings if one.condition == "damaged")
    assert "not finite" in finding.text


def test_ids_that_the_model_does_not_have(run: Path) -> None:
    path = run / "state" / "train.npy"
    content = bytearray(path.read_bytes())
    content[-2:] = b"\xff\xff"
    path.write_bytes(content)
    assert of(examine(run), "state/train.npy") == "damaged"


def test_a_cut_last_line_is_no_damage(run: Path) -> None:
    """A run that was killed while it wrote a line is whole: resuming removes the line, and so does --repair."""
    lines = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(lines + b'{"event": "st')
    found = examine(run)
    assert found.whole
    assert of(found, "metrics.jsonl") == "note"
    assert len(repair(run)) == 1
    assert (run / "metrics.jsonl").read_bytes() == lines


@pytest.fixture
def being_trained(run: Path) -> Iterator[Path]:
    with locked(run / "state" / "lock"):
        yield run


def test_a_run_that_is_being_trained(being_trained: Path) -> None:
    found: list[Examination] = []
    thread = threading.Thread(target=lambda: found.append(examine(being_trained)))
    thread.start()
    thread.join()
    assert of(found[0], "state/lock") == "note"


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RunError, match="is no run folder"):
            examine(path)
