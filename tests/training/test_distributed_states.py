"""Training states of several processes: each way to go on from one, and each way in which one can be broken."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import distributed as bench
import pytest
import torch
from distributed_runs import CPU, Work, assert_close, begin, ends, finish, in_float64, losses_in
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.tensor import DTensor

from conftest import assert_same, fork, state_of
from jumok.errors import RunError
from jumok.files import sha256_of
from jumok.runs import config as config_of_runs
from jumok.runs.checkpoints import Checkpoint, Checkpoints
from jumok.runs.folder import RunFolder
from jumok.runs.stored import StoredTensors, write_part  # here once, not in each forked process
from jumok.training.distributed import World
from jumok.training.follower import follow
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")

PART = "tensors/shard-0000{}-model-00001-of-00001.safetensors"


def resume(run: Path, world: World | None = None, **settings: Any) -> Trainer:
    return Trainer.resume(run, world=world, device="cpu", **settings)


def goes_on(run: Path, count: int, steps: int | None = None, **settings: Any) -> None:
    """Continue a run in so many processes, for so many steps or to its end."""
    if count == 1:
        finish(resume(run, **settings), stop_after=steps)
    else:
        found = ends(count, lambda world: finish(resume(run, world, **settings), stop_after=steps))
        assert found == [""] * count


def states_in(run: Path) -> list[Path]:
    return sorted((run / "state").glob("step-*"))


def steps_of(run: Path) -> list[int]:
    return [int(state.name.removeprefix("step-").partition(".")[0]) for state in states_in(run)]


# --- going on ---------------------------------------------------------------------------------------------------------

# The numbers of processes from save to save, and whether the parameters are sharded.
JOURNEYS = {
    "1-2-1": [(1, False), (2, False), (1, False)],
    "2-2 sharded": [(2, True), (2, True)],
    "1-2-4-1": [(1, False), (2, False), (4, False), (1, False)],
    "1-2-4-1 sharded": [(1, False), (2, True), (4, True), (1, True)],
    "4 sharded-2-4-2 sharded": [(4, True), (2, False), (4, False), (2, True)],
}


@pytest.mark.parametrize(
    ("journey", "optimizer"),
    [
        pytest.param(*each, marks=pytest.mark.slow if each == ("1-2-1", "adamw") else pytest.mark.long)
        for each in product(JOURNEYS, ("adamw", "muon"))
    ],
)
def test_the_same_curve_with_other_numbers_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journey: str, optimizer: str
) -> None:
    in_float64(monkeypatch)
    stays, run, steps = JOURNEYS[journey], tmp_path / "run", 2 * len(JOURNEYS[journey])
    expected = finish(begin(tmp_path / "whole", steps=steps, optimizer=optimizer))
    settings = {"steps": steps, "optimizer": optimizer}
    (count, shard), *later = stays
    if count == 1:
        finish(begin(run, **settings), stop_after=2)
    else:
        work = lambda world: finish(begin(run, world, shard=shard, **settings), stop_after=2)  # noqa: E731
        assert ends(count, work) == [""] * count
    for count, shard in later:
        goes_on(run, count, steps=2, shard=shard)
    # Muon rounds to bfloat16 what it orthogonalises, where a last bit can become a larger difference.
    assert_close(losses_in(run), expected, 1e-12 if optimizer == "adamw" else 1e-9)
    assert steps_of(run) == [steps - 2, steps]
    assert json.loads((run / "config.json").read_text())["format"] == 2
    assert not list(run.rglob("*.metadata"))
    ours, theirs = state_of(run), state_of(tmp_path / "whole")
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        torch.testing.assert_close(ours.tensors[name], tensor, rtol=1e-6, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize(("count", "shard"), [(2, False), (2, True), (4, False), (4, True)])
def test_the_same_bits_with_the_same_number(tmp_path: Path, count: int, shard: bool) -> None:
    """Parameters, moments, losses and samples, in float32 and with dropout."""
    settings = {"optimizer": "muon", "steps": 5, "dropout": 0.1, "val": 0.2, "eval_every": 2, "shard": shard}
    settings["sample_tokens"] = 4

    def whole(world: World) -> None:
        finish(begin(tmp_path / "whole", world, **settings))

    def parts(world: World) -> None:
        finish(begin(tmp_path / "run", world, **settings), stop_after=2)

    assert ends(count, whole) == [""] * count
    assert ends(count, parts) == [""] * count
    goes_on(tmp_path / "run", count)
    assert losses_in(tmp_path / "run") == losses_in(tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.long
def test_float32_stays_close(tmp_path: Path) -> None:
    settings = {"optimizer": "adamw", "steps": 12, "learning_rate": 1e-3}
    assert ends(2, lambda world: finish(begin(tmp_path / "run", world, **settings), stop_after=6)) == ["", ""]
    goes_on(tmp_path / "run", 1)
    assert_close(losses_in(tmp_path / "run"), finish(begin(tmp_path / "whole", **settings)), 1e-6)


@pytest.mark.long
def test_other_weights_are_saved_before_the_others_have_them(tmp_path: Path) -> None:
    """The first state of a run with --init, and a stage, which begins with the best parameters."""
    first, run = tmp_path / "first", tmp_path / "run"
    finish(begin(first, val=0.2, eval_every=2))
    given = {"steps": 2, "batch_size": 6, "val": 0.2, "eval_every": 2, "compile": "off"}

    def lead(world: World) -> None:
        finish(Trainer.start(run, bench.material("lm"), **given, init=first, device="cpu", world=world))  # type: ignore[arg-type]

    assert ends(2, lead) == ["", ""]
    assert steps_of(run) == [0, 2]
    assert [len(list(state.glob("tensors.safetensors"))) for state in states_in(run)] == [1, 0]
    assert ends(2, lambda world: finish(resume(run, world, steps=4))) == ["", ""]  # another stage
    assert steps_of(run) == [2, 6]


@pytest.mark.slow
def test_one_process_writes_one_file_in_the_first_format(tmp_path: Path) -> None:
    finish(begin(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["format"] == 1
    (state,) = states_in(tmp_path / "run")
    assert {file.name for file in state.iterdir()} == {
        "tensors.safetensors", "numbers.json", "manifest.json", "best.safetensors",
    }  # fmt: skip


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes with two states, after 2 and after 4 of its 6 steps."""
    run = tmp_path_factory.mktemp("made") / "run"

    def lead(world: World) -> None:
        finish(begin(run, world), stop_after=2)

    assert ends(2, lead) == ["", ""]
    goes_on(run, 2, steps=2)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.mark.slow
def test_each_process_writes_about_half(run: Path) -> None:
    newest = states_in(run)[-1]
    sizes = [(newest / PART.format(rank)).stat().st_size for rank in (1, 2)]
    assert sum(1 for _ in (newest / "tensors").iterdir()) == 2
    assert max(sizes) < 0.7 * sum(sizes)
    parts = [set(safe_open(newest / PART.format(rank), "pt").keys()) for rank in (1, 2)]  # type: ignore[no-untyped-call]
    assert not parts[0] & parts[1]
    manifest = json.loads((newest / "manifest.json").read_text())
    assert sorted(manifest) == ["best.safetensors", "numbers.json", PART.format(1), PART.format(2)]


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)


def forget_the_parts(manifest: Path) -> None:
    sums = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: each for name, each in sums.items() if not name.startswith("tensors/")}))


def forget_a_part(manifest: Path) -> None:
    sums = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({name: each for name, each in sums.items() if name != PART.format(2)}))


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (PART.format(2), remove, PART.format(2)),
        (PART.format(2), truncate, f"{PART.format(2)} changed since it was written"),
        (PART.format(1), flip, f"{PART.format(1)} changed since it was written"),
        ("manifest.json", remove, "manifest.json"),
        ("manifest.json", truncate, "is damaged"),
        ("manifest.json", forget_the_parts, "no file with tensors is named in manifest.json"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_damaged_state_is_passed_over(
    run: Path, count: int, name: str, damage: Callable[[Path], None], said: str
) -> None:
    damage(states_in(run)[-1] / name)
    state, (message,) = RunFolder(run).checkpoints.newest()
    assert state is not None
    assert state.step == 2
    assert said in message
    assert "step-000000004" in message
    if (name, count) in ((PART.format(2), 2), ("manifest.json", 1)) and damage in (remove, forget_the_parts):
        goes_on(run, count)
        assert len(losses_in(run)) == 6
        assert steps_of(run) == [2, 6]


@pytest.mark.slow
def test_a_manifest_that_lost_a_name(run: Path) -> None:
    """The files that are left are whole; that they are too few is seen by the names of the model."""
    for state in states_in(run):
        forget_a_part(state / "manifest.json")
    with pytest.raises(RunError, match=r"does not fit the model of config.json: .* is missing"):
        resume(run)
    first, second = ends(2, lambda world: finish(resume(run, world)))
    assert first.startswith("RunError: the training state of")
    assert " is missing" in first
    assert second == ""


@pytest.mark.long
def test_a_file_too_many_is_not_read(run: Path) -> None:
    newest = states_in(run)[-1]
    (newest / "tensors" / "notes.safetensors").write_bytes(b"no tensors")
    (newest / "tensors" / "old.metadata").write_bytes(b"no pickle")
    goes_on(run, 2)
    assert len(losses_in(run)) == 6


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


@pytest.mark.long
def test_the_state_of_another_model(run: Path, tmp_path: Path) -> None:
    assert ends(2, lambda world: finish(begin(tmp_path / "wide", world, n_embd=48))) == ["", ""]
    shutil.copytree(states_in(tmp_path / "wide")[-1], run / "state" / "step-000000009")
    with pytest.raises(RunError, match=r"does not fit the model of config.json: .*\(\d+, 48\), not \(\d+, 16\)"):
        resume(run)
    first, second = ends(2, lambda world: finish(resume(run, world)))
    assert first.startswith("RunError: the training state of")
    assert second == ""


@pytest.mark.long
def test_a_moment_of_no_parameter(run: Path) -> None:
    """Sums that are right, of names that are not: the optimizer of the state was another one."""
    state = state_of(run)
    tensors = {name.replace("optimizer.1.0.", "optimizer.1.99."): tensor for name, tensor in state.tensors.items()}
    RunFolder(run).write_checkpoint(Checkpoint(step=5, tensors=tensors, numbers=state.numbers))
    first, second = ends(2, lambda world: finish(resume(run, world)))
    assert first.startswith("RunError: the training state of")
    assert "optimizer.1.99.exp_avg is unknown" in first
    assert second == ""


@pytest.mark.long
def test_an_older_version_refuses_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the states for damaged ones, and remove them."""
    monkeypatch.setattr(config_of_runs, "READ_SINCE", {1: "0.1.0"})
    with pytest.raises(RunError, match=r"has format 2, which needs jumok"):
        RunFolder.open(run)


# --- failures while a state is written or read ------------------------------------------------------------------------


def failing(fail: Callable[[Path], object], name: str = "create_stream") -> Work:
    """Follow, and fail where a file of a state is written."""

    def work(world: World) -> None:
        usual = getattr(FileSystem, name)

        def call(self: FileSystem, path: Path, *arguments: Any) -> Any:
            fail(Path(path))
            return usual(self, path, *arguments)

        setattr(FileSystem, name, call)
        follow(world, CPU)

    return work


def error(number: int) -> Callable[[Path], object]:
    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return fail


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "place"),
    [
        pytest.param(errno.ENOSPC, "create_stream", id="full"),
        pytest.param(errno.EROFS, "mkdir", id="read-only"),
    ],
)
def test_a_rank_that_cannot_write(run: Path, number: int, place: str) -> None:
    first, second = ends(2, lambda world: finish(resume(run, world)), failing(error(number), place))
    assert first.startswith(f"RunError: cannot write the training state in {run}: rank 1 of 2: {os.strerror(number)} (")
    assert "What was saved before is untouched; make room or repair the folder, then continue with" in first
    assert second == ""
    assert steps_of(run) == [2, 4]
    assert not list((run / "state").glob(".*"))
    goes_on(run, 2)
    assert len(losses_in(run)) == 6


@pytest.mark.long
def test_rank_0_cannot_write(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lead(world: World) -> None:
        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        FileSystem.create_stream = full  # type: ignore[method-assign, assignment]
        finish(resume(run, world))

    first, second = ends(2, lead)
    assert first.startswith(f"RunError: cannot write the training state in {run}: rank 0 of 2: No space left")
    assert second == ""
    assert steps_of(run) == [2, 4]


@pytest.mark.long
@pytest.mark.parametrize(
    "shard", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.long)]
)
def test_a_rank_that_is_killed_while_it_writes(run: Path, shard: bool) -> None:
    """Without shards rank 0 has all of the state and writes it alone; with shards the last state is what there is."""
    kill = failing(lambda path: os.kill(os.getpid(), signal.SIGKILL))
    first, second = ends(2, lambda world: finish(resume(run, world, shard=shard)), kill)
    assert first.startswith("ProcessLost: rank 1 of 2 ended: it was killed, or its host cannot be reached.")
    assert second == str(-signal.SIGKILL)
    assert steps_of(run) == ([2, 4] if shard else [4, 6])
    assert not list((run / "state").glob(".*"))
    goes_on(run, 1)
    assert len(losses_in(run)) == 6


@pytest.mark.long
def test_rank_0_is_killed_while_it_writes(run: Path) -> None:
    def lead(world: World) -> None:
        FileSystem.create_stream = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
        finish(resume(run, world))

    first, second = ends(2, lead)
    assert first == str(-signal.SIGKILL)
    assert second.startswith("ProcessLost: rank 0 of 2 ended: it was killed")
    assert steps_of(run) == [2, 4]
    goes_on(run, 2)
    assert steps_of(run) == [4, 6]
    assert not list((run / "state").glob(".*"))


@pytest.mark.long
def test_a_rank_that_cannot_read(run: Path) -> None:
    def blind(world: World) -> None:
        StoredTensors.__init__ = lambda *_: error(errno.ENOENT)(run)  # type: ignore[method-assign, assignment, return-value]
        follow(world, CPU)

    found = ends(2, lambda world: finish(resume(run, world)), blind)
    assert all(end.startswith("SharedFault: rank 1 of 2: ") for end in found)
    assert steps_of(run) == [2, 4]


@pytest.mark.long
def test_a_disk_that_fails_while_a_rank_reads(run: Path) -> None:
    from jumok.runs import stored

    def broken(world: World) -> None:
        stored._Reader.read_data = lambda *_: error(errno.EIO)(run)  # type: ignore[method-assign, assignment, return-value]
        follow(world, CPU)

    found = ends(2, lambda world: finish(resume(run, world)), broken)
    said = f"SharedFault: cannot read the training state of {run}: rank 1 of 2: Input/output error."
    assert found == [said, said]


# --- shards that are uneven or empty ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_shards_of_few_rows(tmp_path: Path, count: int) -> None:
    """Of three rows the fourth process has none."""

    def work(world: World) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (count,))
        whole = {"rows": torch.arange(15.0).view(3, 5), "bias": torch.arange(3.0), "step": torch.tensor(7.0)}
        divided: dict[str, Tensor] = {n: distribute_tensor(t, mesh, [Shard(0)]) for n, t in whole.items() if t.dim()}
        divided["step"] = whole["step"]
        sums: Mapping[str, str] = write_part(divided, tmp_path / "parts")
        assert len(sums) == (count if world.rank == 0 else 0)
        torch.distributed.barrier()
        stored = StoredTensors(sorted((tmp_path / "parts").iterdir()))
        assert all(torch.equal(stored[name], tensor) for name, tensor in whole.items())
        blank: dict[str, Tensor] = {name: torch.zeros_like(tensor) for name, tensor in divided.items()}
        stored.read_into(blank)
        for name, tensor in blank.items():
            found = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            assert torch.equal(found, whole[name])

    assert ends(count, work, work) == [""] * count


@pytest.mark.long
def test_a_part_of_a_tensor_is_missing(tmp_path: Path) -> None:
    """The first rows are not there, which the sizes of the others do not show."""

    def work() -> int:
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        write_part({"a": distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])}, tmp_path)
        return 0

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 0
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(content.replace(b"[0]", b"[4]", 1))
    with pytest.raises(ValueError, match="a part of a is missing"):
        StoredTensors([file])
