"""Shards: they learn what a process alone learns, no process holds all parameters, and any number of processes goes on
from the states that several wrote together."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_runs import assert_close, begin, ends, finish, in_float64, losses_in
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystem

from conftest import state_of
from jumok.files import sha256_of
from jumok.models import build
from jumok.runs.checkpoints import Checkpoints
from jumok.runs.events import Notice, Step
from jumok.runs.folder import RunFolder
from jumok.training.parallel import ProcessGroup
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")

PART = "tensors/shard-0000{}-model-00001-of-00001.safetensors"


def resume(run: Path, group: ProcessGroup | None = None, *, shard: bool = True) -> Trainer:
    return Trainer.resume(run, group=group, device="cpu", shard=shard)


def goes_on(run: Path, count: int, steps: int | None = None, *, shard: bool = True) -> None:
    """Continue a run in so many processes, for so many steps or to its end."""
    if count == 1:
        finish(resume(run), stop_after=steps)
    else:
        found = ends(count, lambda group: finish(resume(run, group, shard=shard), stop_after=steps))
        assert found == [""] * count


def states_in(run: Path) -> list[Path]:
    return sorted((run / "state").glob("step-*"))


def steps_of(run: Path) -> list[int]:
    return [int(state.name.removeprefix("step-").partition(".")[0]) for state in states_in(run)]


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "task"),
    [
        pytest.param(2, "lm", marks=pytest.mark.slow),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((3, "seq2seq"), (2, "mlm"), (2, "classify"))),
    ],
)
def test_shards_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, task: str) -> None:
    """In float64, with validations, samples and two batches in a step. Three processes divide no dimension evenly, and
    parts of batches have fewer rows than there are processes."""
    in_float64(monkeypatch)
    cases = {
        name: {"task": task, "optimizer": name, "val": 0.1, "eval_every": 3, "sample_tokens": 4, "steps": 5}
        for name in ("adamw", "muon")
    }

    def work(group: ProcessGroup) -> None:
        for name, case in cases.items():
            finish(begin(tmp_path / name, group, shard=True, recompute=name == "muon", **case))

    assert ends(count, work) == [""] * count
    for name, case in cases.items():
        expected = finish(begin(tmp_path / f"{name}-1", **case))
        assert_close(losses_in(tmp_path / name), expected, 1e-12)
        found, one = state_of(tmp_path / name), state_of(tmp_path / f"{name}-1")
        assert found.tensors.keys() == one.tensors.keys()
        for key, tensor in one.tensors.items():
            torch.testing.assert_close(found.tensors[key], tensor, rtol=1e-8, atol=1e-10)
        for file in ("model.safetensors", "samples.txt"):
            assert (tmp_path / name / file).stat().st_size == (tmp_path / f"{name}-1" / file).stat().st_size


@pytest.mark.slow
def test_no_process_has_all_parameters(tmp_path: Path) -> None:
    def numbers(tensors: list[Tensor]) -> int:
        return sum(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in tensors)

    def work(group: ProcessGroup) -> None:
        with begin(tmp_path / "run", group, shard=True, val=0.1, steps=3, eval_every=2) as trainer:
            total = build(trainer.model.config).parameter_count()
            moments = 0
            for event in trainer.run():
                if not isinstance(event, Step):
                    continue
                parts = {id(each): each.to_local() for o in trainer.optimizers for each in params_of(o)}
                assert numbers(list(parts.values())) <= total / 2 + 100
                assert numbers([p.data for p in trainer.model.parameters()]) == 0
                states = [each for o in trainer.optimizers for state in o.state.values() for each in state.values()]
                moments = numbers([each.to_local() for each in states if each.dim()])
            assert 0 < moments <= 3 * (total / 2 + 100)  # two moments and a mean
        # Rank 0 has the best ones in the end.
        assert numbers([p.data for p in trainer.model.parameters()]) == (0 if group.rank else total)

    def params_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    assert ends(2, work) == ["", ""]


@pytest.mark.long
def test_blocks_in_bfloat16(tmp_path: Path) -> None:
    """The parameters of blocks are gathered in bfloat16, to which autocast would round them; gradients are float32."""
    case = {"precision": "bfloat16", "optimizer": "adamw", "steps": 8}
    assert ends(2, lambda group: finish(begin(tmp_path / "two", group, shard=True, **case))) == ["", ""]
    assert_close(losses_in(tmp_path / "two"), finish(begin(tmp_path / "one", **case)), 2e-3)
    assert {tensor.dtype for tensor in state_of(tmp_path / "two").tensors.values()} == {torch.float32}


def test_one_process_has_no_shards(tmp_path: Path) -> None:
    with begin(tmp_path / "run", shard=True, steps=1) as trainer:
        notices = [event.text for event in trainer.run() if isinstance(event, Notice)]
    assert any("has no effect" in text for text in notices)


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_same_curve_with_other_numbers_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    """With and without shards."""
    in_float64(monkeypatch)
    run, settings = tmp_path / "run", {"steps": 10, "optimizer": optimizer}
    expected = finish(begin(tmp_path / "whole", **settings))
    finish(begin(run, **settings), stop_after=2)
    for count, shard in ((2, True), (4, False), (4, True), (1, True)):
        goes_on(run, count, steps=2, shard=shard)
    # Muon rounds to bfloat16 what it orthogonalises, where a last bit can become a larger difference.
    assert_close(losses_in(run), expected, 1e-12 if optimizer == "adamw" else 1e-9)
    assert steps_of(run) == [8, 10]
    assert not list(run.rglob("*.metadata"))
    ours, theirs = state_of(run), state_of(tmp_path / "whole")
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        torch.testing.assert_close(ours.tensors[name], tensor, rtol=1e-6, atol=1e-8)


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes with two states, after 2 and after 4 of its 6 steps."""
    run = tmp_path_factory.mktemp("made") / "run"
    assert ends(2, lambda group: finish(begin(run, group, shard=True), stop_after=2)) == ["", ""]
    goes_on(run, 2, steps=2)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.mark.slow
def test_each_process_writes_its_part(run: Path) -> None:
    newest = states_in(run)[-1]
    sizes = [(newest / PART.format(rank)).stat().st_size for rank in (1, 2)]
    assert sum(1 for _ in (newest / "tensors").iterdir()) == 2
    assert max(sizes) < 0.7 * sum(sizes)
    manifest = json.loads((newest / "manifest.json").read_text())
    assert sorted(manifest) == ["best.safetensors", "numbers.json", PART.format(1), PART.format(2)]


def remove(file: Path) -> None:
    file.unlink()


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)


def forget_the_parts(manifest: Path) -> None:
    sums = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: each for name, each in sums.items() if not name.startswith("tensors/")}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (PART.format(2), remove, PART.format(2)),
        (PART.format(1), flip, f"{PART.format(1)} changed since it was written"),
        ("manifest.json", remove, "manifest.json"),
        ("manifest.json", forget_the_parts, "no file with tensors is named in manifest.json"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_damaged_state_is_passed_over(run: Path, name: str, damage: Callable[[Path], None], said: str) -> None:
    damage(states_in(run)[-1] / name)
    state, (message,) = RunFolder(run).checkpoints.newest()
    assert state is not None
    assert state.step == 2
    assert said in message
    assert "step-000000004" in message
    if damage is remove:
        goes_on(run, 2 if name == "manifest.json" else 1)
        assert len(losses_in(run)) == 6
        assert steps_of(run) == [2, 6]


def test_a_manifest_names_no_file_outside_its_state(tmp_path: Path) -> None:
    save_file({"model.x": torch.ones(1)}, tmp_path / "mine.safetensors")
    state = tmp_path / "state" / "step-000000001"
    (state / "tensors").mkdir(parents=True)
    (state / "numbers.json").write_text('{"step": 1}')
    names = {"numbers.json": state / "numbers.json", "tensors/../../../mine.safetensors": tmp_path / "mine.safetensors"}
    (state / "manifest.json").write_text(json.dumps({name: sha256_of(file) for name, file in names.items()}))
    found, [sentence] = Checkpoints(tmp_path / "state").newest()
    assert found is None
    assert "no file with tensors is named in manifest.json" in sentence


@pytest.mark.slow
def test_nothing_is_unpickled(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages between processes are; files are not, so one process unpickles nothing."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError

    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, never)
    assert state_of(run).tensors["model.token_embedding.weight"].any()


# --- failures while a state is written or read ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [errno.ENOSPC, 0])
def test_a_rank_that_cannot_write(run: Path, monkeypatch: pytest.MonkeyPatch, rank: int, number: int) -> None:
    """A full disk is told; a kill is the end of that process. What was saved before is what there is."""

    def fail(*_: Any) -> None:
        if number:
            raise OSError(number, os.strerror(number))
        os.kill(os.getpid(), signal.SIGKILL)

    def work(group: ProcessGroup) -> None:
        if group.rank == rank:
            monkeypatch.setattr(FileSystem, "create_stream", fail)
        finish(resume(run, group))

    found = ends(2, work)
    if number:
        fault = f"cannot write the training state in {run}: rank {rank} of 2: {os.strerror(number)}"
        assert found[0].startswith(f"RunError: {fault}")
        assert found[1] == ""  # it was the last state
    else:
        assert found[rank] == str(-signal.SIGKILL)
        assert found[1 - rank].startswith("ProcessLost: the connection to another process is lost")
    assert steps_of(run) == [2, 4]
    goes_on(run, 2)
    assert len(losses_in(run)) == 6
    assert not list((run / "state").glob(".*"))
