"""Training with shards learns what training without learns, and no process holds all parameters while it trains."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from distributed_runs import CPU, assert_close, begin, ends, finish, in_float64, losses_in
from torch import Tensor

from conftest import state_of
from jumok.models import build
from jumok.runs.events import Notice, Step
from jumok.training import heartbeat
from jumok.training.distributed import World
from jumok.training.follower import follow
from jumok.training.optim import orthogonal
from jumok.training.sharding import Shards
from jumok.training.steps import Steps
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")


@pytest.mark.parametrize(
    ("count", "task"),
    [pytest.param(2, "lm", marks=pytest.mark.slow)]
    + [pytest.param(*each, marks=pytest.mark.long) for each in ((3, "seq2seq"), (2, "mlm"), (2, "classify"))],
)
def test_shards_learn_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, task: str) -> None:
    """In float64, with validations, samples and two batches in a step. Three processes divide no dimension evenly, and
    parts of batches have fewer rows than there are processes."""
    in_float64(monkeypatch)
    cases = {
        name: {"task": task, "optimizer": name, "val": 0.1, "eval_every": 3, "sample_tokens": 4, "steps": 5}
        for name in ("adamw", "muon")
    }

    def lead(world: World) -> None:
        for name, case in cases.items():
            finish(begin(tmp_path / name, world, shard=True, recompute=name == "muon", **case))

    assert ends(count, lead) == [""] * count
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

    def lead(world: World) -> None:
        with begin(tmp_path / "run", world, shard=True, val=0.1, steps=3, eval_every=2) as trainer:
            total = build(trainer.model.config).parameter_count()
            moments = 0
            for event in trainer.run():
                if not isinstance(event, Step):
                    continue
                parts = [each.to_local() for group in trainer.optimizers for each in params_of(group)]
                assert numbers(parts) <= total / 2 + 100
                assert numbers([p.data for p in trainer.model.parameters()]) == 0
                states = [each for o in trainer.optimizers for state in o.state.values() for each in state.values()]
                moments = numbers([each.to_local() for each in states if each.dim()])
            assert 0 < moments <= 2 * (total / 2 + 100)
        assert numbers([p.data for p in trainer.model.parameters()]) == total  # the best ones

    def params_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]

    assert ends(2, lead) == ["", ""]


@pytest.mark.long
def test_sharded_matrices_become_orthogonal() -> None:
    """With the bits of one process, also where some processes have no row of a matrix."""
    torch.manual_seed(0)
    matrices = [torch.randn(shape) for shape in [(8, 8), (7, 3), (2, 9), (1, 4), (12, 5)]]

    def work(world: World) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        from jumok.training.sharding import sharded_orthogonal

        mesh = init_device_mesh("cpu", (world.size,))
        found = sharded_orthogonal([distribute_tensor(each, mesh, [Shard(0)]) for each in matrices], world)
        for each, matrix in zip(found, matrices, strict=True):
            assert torch.equal(each.full_tensor(), orthogonal(matrix))  # type: ignore[attr-defined]

    assert ends(3, work, work) == [""] * 3


@pytest.mark.long
def test_a_run_goes_on_with_and_without_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1, 2, 4, 1 processes; shards are an option of each launch."""
    in_float64(monkeypatch)
    out, expected = tmp_path / "run", finish(begin(tmp_path / "whole", steps=8))

    def two_steps(*, shard: bool) -> object:

        def lead(world: World) -> None:
            again = {"shard": shard}
            finish(Trainer.resume(out, **again, world=world, device="cpu"), stop_after=2)

        return lead

    assert len(finish(begin(out, steps=8), stop_after=2)) == 2
    assert ends(2, two_steps(shard=True)) == [""] * 2  # type: ignore[arg-type]
    assert ends(4, two_steps(shard=False)) == [""] * 4  # type: ignore[arg-type]
    assert len(losses_in(out)) == 6
    finish(Trainer.resume(out, device="cpu"))
    assert_close(losses_in(out), expected, 1e-12)


@pytest.mark.long
def test_the_same_bits_after_a_resume_with_shards(tmp_path: Path) -> None:
    """In float32, with dropout, whose masks depend on the rank."""
    case = {"shard": True, "dropout": 0.2}

    def part(world: World) -> None:
        finish(begin(tmp_path / "parts", world, **case), stop_after=3)

    assert ends(2, lambda world: finish(begin(tmp_path / "whole", world, **case))) == ["", ""]
    assert ends(2, part) == ["", ""]
    assert ends(2, lambda world: finish(Trainer.resume(tmp_path / "parts", world=world, device="cpu"))) == ["", ""]
    assert losses_in(tmp_path / "parts") == losses_in(tmp_path / "whole")
    found, whole = state_of(tmp_path / "parts").tensors, state_of(tmp_path / "whole").tensors
    assert all(torch.equal(found[name], whole[name]) for name in whole)


@pytest.mark.long
@pytest.mark.parametrize("part", [(Steps, "take"), (Shards, "gather")])
def test_a_killed_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: tuple[type, str]) -> None:
    """FSDP's own messages fail, too."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.25)

    def others(world: World) -> None:
        monkeypatch.setattr(*part, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
        follow(world, CPU)

    first, _ = ends(2, lambda world: finish(begin(tmp_path / "run", world, shard=True)), others)
    assert first.startswith("ProcessLost: rank 1 of 2 ended: it was killed")


@pytest.mark.long
def test_blocks_in_bfloat16(tmp_path: Path) -> None:
    """The parameters of blocks are gathered in bfloat16, to which autocast would round them; gradients are float32."""
    case = {"precision": "bfloat16", "optimizer": "adamw", "steps": 8}
    assert ends(2, lambda world: finish(begin(tmp_path / "two", world, shard=True, **case))) == ["", ""]
    assert_close(losses_in(tmp_path / "two"), finish(begin(tmp_path / "one", **case)), 2e-3)
    assert {tensor.dtype for tensor in state_of(tmp_path / "two").tensors.values()} == {torch.float32}


def test_one_process_has_no_shards(tmp_path: Path) -> None:
    with begin(tmp_path / "run", shard=True, steps=1) as trainer:
        notices = [event.text for event in trainer.run() if isinstance(event, Notice)]
    assert any("has no effect" in text for text in notices)
